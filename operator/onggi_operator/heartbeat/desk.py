"""Where a report is answered: by whoever leads, or not here."""

from dataclasses import dataclass

from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.world import World


@dataclass(frozen=True, slots=True)
class Desk:
    """What a report changes. Without `may_grant` it is heard, and told to go on as it is: this
    operator led a moment ago and cannot tell whether it still does."""

    world: World
    fleet: Fleet
    may_grant: bool = True


@dataclass(frozen=True, slots=True)
class Away:
    """Nobody answers here. `retry_s` None: another operator does, now, behind the same Service."""

    why: str
    retry_s: int | None
