"""Every planted bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.rotten import (
    AdoptsWithoutBeginnings,
    CountsBeginningsForItself,
    DiscardsWhatIsRead,
    DiscardsWhatIsStoredAgain,
    KeepsTheDead,
    MakesRoomOfWhatItFound,
)
from tests.sim.saboteurs import (
    AlwaysActive,
    BeyondTheArena,
    BeyondTheDisk,
    ForgetsToForget,
    LosesAnAnswer,
    LosesAnEnd,
    MissesTheEnd,
    NamesBackwards,
    NeverShrinks,
    NoPin,
    NoQuarantine,
    Raises,
    RefusesAndObeys,
    RoomOfTwo,
    RoomTakenBack,
    RoomWithoutBound,
    Saboteur,
    SealsTheAbandoned,
    ShortLoad,
    StaysOnTheBoard,
    TwoOwners,
    WrongOffset,
)

from onggi_core.engine.state import Facts

PLANTED: Final[tuple[tuple[Callable[[Facts], Saboteur], str, str], ...]] = (
    (WrongOffset, "calm", "bytes"),
    (NoPin, "cramped", "owners"),
    (NoQuarantine, "hostile", "owners"),
    (TwoOwners, "calm", "owners"),
    (RoomOfTwo, "calm", "owners"),
    (RoomTakenBack, "hostile", "owners"),
    (NamesBackwards, "calm", "bytes"),
    (RoomWithoutBound, "calm", "budgets"),
    (BeyondTheArena, "calm", "budgets"),
    (BeyondTheDisk, "calm", "budgets"),
    (ForgetsToForget, "cramped", "table"),
    (LosesAnAnswer, "calm", "liveness"),
    (NeverShrinks, "shrinking", "liveness"),
    (AlwaysActive, "usual", "modes"),
    (ShortLoad, "calm", "promises"),
    (SealsTheAbandoned, "memory", "visibility"),
    (MissesTheEnd, "deaths", "sessions"),
    (RefusesAndObeys, "hostile", "refusals"),
    (LosesAnEnd, "calm", "leaks"),
    (StaysOnTheBoard, "cramped", "bytes"),
    (MakesRoomOfWhatItFound, "memory", "promises"),
    (DiscardsWhatIsRead, "memory", "owners"),
    (DiscardsWhatIsStoredAgain, "calm", "promises"),
    (KeepsTheDead, "roomy", "leaks"),
    (CountsBeginningsForItself, "calm", "promises"),
    (AdoptsWithoutBeginnings, "restarts", "leaks"),
    (Raises, "calm", "no-fault"),
)
"""Which bug, in which world, which checker finds it."""
