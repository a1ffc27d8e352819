"""The device's memory that a context holds, counted to the byte."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

DEVICES: Final = ("cpu", "cuda")


class DeviceMemory:
    """Gives tensors out of a budget. Whoever gives one back must not use it any more."""

    def __init__(self, budget_bytes: int, device: Any) -> None:
        """Raises ValueError for a device to which nobody here can bring anything."""
        if (kind := torch.device(device).type) not in DEVICES:
            raise ValueError(
                f"keys and values are on {kind}; a context in tiers is for {' and '.join(DEVICES)}"
            )
        self.budget_bytes = budget_bytes
        self.device = device
        self.used_bytes = 0
        self.peak_bytes = 0

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory of this shape, of no particular content. Raises MemoryError past the budget."""
        nbytes = math.prod(shape) * int(torch.empty((), dtype=dtype).element_size())
        if self.used_bytes + nbytes > self.budget_bytes:
            raise MemoryError(
                f"{nbytes} more bytes of the device with {self.used_bytes} in use of "
                f"{self.budget_bytes}: shares that add up to more are a fault of the library"
            )
        self.used_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        with torch.inference_mode(mode=False):  # else no other thread might write to it
            return torch.empty(shape, dtype=dtype, device=self.device)

    def give_back(self, memory: Any) -> None:
        self.used_bytes -= memory.numel() * memory.element_size()
