"""Four contexts that do not fit, at full size and by one factor smaller, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Shape:
    """Of a model's keys and values. dtype: as torch names it."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    dtype: str
    item_bytes: int

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * self.item_bytes

    @property
    def said(self) -> str:
        return (
            f"{self.layers} layers of {self.kv_heads} key heads of {self.head_size} in {self.dtype}"
            f" ({self.token_bytes // 1024} KiB a token)"
        )


LARGE: Final = Shape(32, 32, 8, 128, "bfloat16", 2)
"""As Llama 3.1 8B: 128 KiB a token."""
SMALL: Final = Shape(4, 8, 2, 64, "float32", 4)
"""4 KiB a token; float32, in which every processor computes."""
SCALE: Final = LARGE.token_bytes // SMALL.token_bytes
"""The factor where there is no GPU: bytes of a token. There are as many tokens as at full size."""
QUICK_SCALE: Final = 16 * SCALE
DEVICE_PART: Final = 4
"""The device's budget is one in so many bytes of the context."""


@dataclass(frozen=True)
class Scenario:
    """sinks and recent: tokens that stay on the device. on_disk: the host tier holds little, so
    that the middle lies on disk."""

    name: str
    tokens: int
    batch: int
    sinks: int
    recent: int
    on_disk: bool

    def context_bytes(self, shape: Shape) -> int:
        return self.tokens * self.batch * shape.token_bytes

    @property
    def said(self) -> str:
        return f"{self.tokens // K}K tokens, batch {self.batch}"


K: Final = 1024
SCENARIOS: Final = (
    Scenario("32k_x4", 32 * K, 4, 512, 2 * K, on_disk=False),
    Scenario("128k_x2", 128 * K, 2, 512, 2 * K, on_disk=False),
    Scenario("256k_x1", 256 * K, 1, 512, 2 * K, on_disk=False),
    Scenario("512k_x1_disk", 512 * K, 1, 512, 2 * K, on_disk=True),
)


def scaled(scenario: Scenario, scale: int) -> tuple[Scenario, Shape]:
    """A context of one part in `scale` of the bytes: 1 is the full size, SCALE a small model's, and
    a multiple of SCALE has fewer tokens too. Raises ValueError."""
    if scale == 1:
        return scenario, LARGE
    fewer, rest = divmod(scale, SCALE)
    if rest or scale < SCALE:
        raise ValueError(f"scale is {scale}; use 1 for the full size, or a multiple of {SCALE}")
    some = replace(
        scenario,
        tokens=scenario.tokens // fewer,
        sinks=scenario.sinks // fewer,
        recent=scenario.recent // fewer,
    )
    return some, SMALL


def by_name(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)
