"""Agents, shapes and reference attention for the tests of contexts in tiers."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onggi_library.in_process import InProcessAgent

MIB = 1024 * 1024


@contextmanager
def agent(memory: int = 32 * MIB, **settings: Any) -> Iterator[InProcessAgent]:
    running = InProcessAgent(memory=memory, extent=4 * MIB, policy="lru", **settings)
    try:
        yield running
    finally:
        running.close()


def noise(seed: int, *shape: int, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def reference(
    queries: Any,
    keys: Any,
    values: Any,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Any:
    """By the definition, in float64. The queries are of the last positions."""
    group = queries.shape[1] // keys.shape[1]
    keys = keys.double().repeat_interleave(group, dim=1)
    values = values.double().repeat_interleave(group, dim=1)
    scores = queries.double() @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    count, length = queries.shape[2], keys.shape[2]
    query = torch.arange(length - count, length)[:, None]
    key = torch.arange(length)[None, :]
    seen = key <= query
    if window is not None:
        seen &= key > query - window
    scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ values


class Counting(TorchDispatchMode):
    """Bytes of all tensors that are made while it is on and still live."""

    def __init__(self) -> None:
        super().__init__()
        self.there: set[int] = set()
        self.live = self.peak = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        at, nbytes = storage._cdata, storage.nbytes()
        if at not in self.there:
            self.there.add(at)
            self.live += nbytes
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._gone, at, nbytes)

    def _gone(self, at: int, nbytes: int) -> None:
        self.there.discard(at)
        self.live -= nbytes
