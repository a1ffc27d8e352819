"""Every invariant, in the order in which they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checkers.base import Checker
from tests.sim.checkers.budgets import Budgets
from tests.sim.checkers.bytes import Bytes
from tests.sim.checkers.leaks import Leaks
from tests.sim.checkers.liveness import Liveness
from tests.sim.checkers.modes import Modes
from tests.sim.checkers.owners import Owners
from tests.sim.checkers.promises import Promises
from tests.sim.checkers.refusals import Refusals
from tests.sim.checkers.sessions import Sessions
from tests.sim.checkers.table import Table
from tests.sim.checkers.visibility import Visibility

if TYPE_CHECKING:
    from tests.sim.world import World

CHECKERS: tuple[type[Checker], ...] = (
    Owners,
    Visibility,
    Bytes,
    Budgets,
    Table,
    Liveness,
    Modes,
    Promises,
    Sessions,
    Refusals,
    Leaks,
)


def all_checkers(world: World) -> list[Checker]:
    return [checker(world) for checker in CHECKERS]
