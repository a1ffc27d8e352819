"""Runs a seed, says how it ended, and finds the shortest run that ends the same way."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.broken import Broken
from tests.sim.trace import shown
from tests.sim.world import Steppable, World

from onggi_core.engine.engine import Engine
from onggi_core.engine.state import Facts

ENGINE_FAULT = "no-fault"
"""The name of an invariant too: the engine never raises."""


@dataclass(slots=True)
class Outcome:
    """checker: what failed, or empty. steps: how far it came."""

    seed: int
    config: str
    asked_steps: int
    steps: int
    checker: str
    seen: str
    world: World

    @property
    def happened(self) -> Counter[str]:
        return self.world.happened + Counter(self.world.disk.happened)

    @property
    def replay(self) -> str:
        return f"python -m tests.sim --seed {self.seed} --steps {self.steps} --config {self.config}"

    def report(self) -> str:
        config = f"config: {shown(self.world.config)}"
        lines = [*self.world.trace.lines(), config, self.seen]
        return "\n".join([*lines, f"replay: {self.replay}"])


def run(
    seed: int, config: str, steps: int, engine_of: Callable[[Facts], Steppable] = Engine
) -> Outcome:
    """One world from its seed, for `steps` events and then to rest."""
    world = World(seed, config, engine_of)
    checker = seen = ""
    try:
        world.run(steps)
    except Broken as broken:
        checker, seen = broken.checker, str(broken)
    except Exception as fault:  # noqa: BLE001 - whatever it is, it ends this seed and is shown
        checker = ENGINE_FAULT
        seen = "".join(traceback.format_exception(fault))
    return Outcome(seed, config, steps, world.steps, checker, seen, world)


def shrink(failed: Outcome, engine_of: Callable[[Facts], Steppable] = Engine) -> Outcome:
    """The shortest prefix of a failed run that fails by the same checker.

    A run is its prefix and the rest at its end, so a failure inside the run needs no search: the
    step it failed at is the shortest. One at rest may show after fewer steps; halving finds a
    length that fails where the one before it does not.
    """
    best = failed
    low, high = 0, min(failed.steps, failed.asked_steps)
    while low < high:
        middle = (low + high) // 2
        again = run(failed.seed, failed.config, middle, engine_of)
        if again.checker == failed.checker:
            best, high = again, middle
        else:
            low = middle + 1
    best.steps = min(best.steps, best.asked_steps)
    return best
