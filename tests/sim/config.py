"""What kind of world a seed makes: sizes, who lives there, and how much goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from onggi_core.geometry import ALIGN_BYTES

SLOT: Final = ALIGN_BYTES
"""The smallest room a page takes; sizes below are counted in it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances for each page moved, or a mean time between two in seconds; 0 is never."""

    eio: float = 0.0
    abandoned: float = 0.0
    lost_write: float = 0.0
    bad_place: float = 0.0
    flip_every_s: float = 0.0
    swap_every_s: float = 0.0
    full_every_s: float = 0.0
    slow_every_s: float = 0.0
    hang_every_s: float = 0.0
    touch_refused: float = 0.0


@dataclass(frozen=True, slots=True)
class Config:
    name: str
    extents: int = 4
    extent_slots: int = 8
    segments: int = 6
    segment_slots: int = 8
    clients: int = 4
    rogues: int = 1
    deadly: float = 0.002
    """The chance that a client dies at any one thing it does."""
    kill_every_s: float = 60.0
    """Of the agent, without warning."""
    power_cut: float = 0.3
    """The part of those ends in which the machine loses what it had not written through."""
    stop_every_s: float = 120.0
    mode_every_s: float = 60.0
    budget_every_s: float = 20.0
    jump_every_s: float = 60.0
    drought_every_s: float = 60.0
    """No tick for a while."""
    faults: Faults = field(default_factory=Faults)


CALM: Final = Config(
    "calm",
    rogues=0,
    deadly=0.0,
    kill_every_s=0.0,
    stop_every_s=0.0,
    mode_every_s=0.0,
    budget_every_s=0.0,
    jump_every_s=0.0,
    drought_every_s=0.0,
)
ROUGH: Final = Faults(
    eio=0.01,
    abandoned=0.02,
    lost_write=0.01,
    bad_place=0.002,
    flip_every_s=5.0,
    swap_every_s=8.0,
    full_every_s=40.0,
    slow_every_s=30.0,
    hang_every_s=25.0,
    touch_refused=0.1,
)
_USUAL: Final = Config("usual", faults=replace(ROUGH, hang_every_s=0.0))

CONFIGS: Final = {
    config.name: config
    for config in (
        CALM,
        _USUAL,
        replace(CALM, name="memory", segments=0, rogues=1, deadly=0.002, budget_every_s=5.0),
        replace(_USUAL, name="cramped", extents=2, extent_slots=4, segments=2, segment_slots=4),
        replace(_USUAL, name="hostile", clients=2, rogues=4),
        replace(_USUAL, name="shrinking", budget_every_s=4.0, kill_every_s=0.0, extents=8),
        replace(_USUAL, name="restarts", kill_every_s=6.0, stop_every_s=12.0, power_cut=0.5),
        replace(_USUAL, name="sick-disk", faults=ROUGH, kill_every_s=20.0, segments=10),
        replace(_USUAL, name="roomy", extents=6, extent_slots=32, segments=8, segment_slots=64),
        replace(_USUAL, name="deaths", deadly=0.03, jump_every_s=20.0),
    )
}
ANY: Final = "any"
"""Every seed draws a world of its own: what no list of ours thought of."""


def config_of(name: str, rng: Random) -> Config:
    """The named configuration; for `any` one drawn from `rng`."""
    return _drawn(rng) if name == ANY else CONFIGS[name]


def _drawn(rng: Random) -> Config:
    def some(mean: float) -> float:
        return rng.choice((0.0, mean / 5, mean))

    return Config(
        ANY,
        extents=rng.randint(1, 8),
        extent_slots=rng.choice((4, 8, 8, 32)),
        segments=rng.choice((0, 1, 2, 6, 12)),
        segment_slots=rng.choice((4, 8, 64)),
        clients=rng.randint(1, 6),
        rogues=rng.randint(0, 3),
        deadly=rng.choice((0.0, 0.002, 0.03)),
        kill_every_s=some(60.0),
        power_cut=rng.choice((0.0, 0.3, 1.0)),
        stop_every_s=some(60.0),
        mode_every_s=some(60.0),
        budget_every_s=some(20.0),
        jump_every_s=some(60.0),
        drought_every_s=some(60.0),
        faults=Faults(
            eio=some(0.05),
            abandoned=some(0.05),
            lost_write=some(0.05),
            bad_place=some(0.01),
            flip_every_s=some(10.0),
            swap_every_s=some(10.0),
            full_every_s=some(40.0),
            slow_every_s=some(40.0),
            hang_every_s=some(80.0),
            touch_refused=some(0.3),
        ),
    )
