"""What a manager begins with: the tiers below, and under a name the steps that are there."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final, NamedTuple

from onggi_library.manager import journal
from onggi_library.manager.below import Below, Exact, Int8
from onggi_library.manager.journal import Journal, Known, Notes
from onggi_library.manager.lower import LowerTiers
from onggi_library.manager.table import StepTable
from onggi_library.rounding import EXACT

OWNER_BITS: Final = 63


class Beginning(NamedTuple):
    below: Below
    steps: StepTable
    notes: Notes
    lost: int
    """Steps of an earlier manager that are not whole any more, and were given up."""


def begin(socket: str, lower: str, *, alone: bool, folder: Path | None) -> Beginning:
    """folder: of the steps that outlive the process, if they do. Raises ValueError for what an
    earlier manager left and this one cannot read, DoesNotFit where there is less room than it had,
    and Unreachable while nobody knows."""
    coding = Exact() if lower == EXACT else Int8()
    if folder is None:
        owner = secrets.randbits(OWNER_BITS)
        tiers = LowerTiers(socket, alone=alone, owner=owner, lower=lower)
        return Beginning(Below(tiers, coding, Notes()), StepTable(), Notes(), 0)
    known = journal.read(folder, lower) or Known(secrets.randbits(OWNER_BITS), lower)
    tiers = LowerTiers(socket, alone=alone, owner=known.root, lower=lower, owner_of=known.owner)
    try:
        return _take_over(folder, known, tiers, Below(tiers, coding, Notes()))
    except BaseException:
        tiers.close()
        raise


def _take_over(folder: Path, known: Known, tiers: LowerTiers, before: Below) -> Beginning:
    living, lost = set(known.steps.values()), 0
    for serial in [serial for serial in known.begun if serial not in living]:
        before.drop(serial, known.begun.pop(serial))
    for step, serial in [*known.steps.items()]:
        if not before.holds(serial, known.begun[serial]):
            before.drop(serial, known.begun.pop(serial))
            del known.steps[step]
            lost += 1
    tiers.wait_until_gone()
    for form in known.begun.values():
        tiers.reserve(before.cut(form))
    first, owners = known.next_serial, {known.owner(serial) for serial in known.begun}
    known.lives = [life for life in known.lives if life[1] in owners]
    known.lives.append((first, secrets.randbits(OWNER_BITS)))
    table = StepTable(first)
    for step, serial in known.steps.items():
        table.replace(step, serial, known.begun[serial])
    notes = Journal(folder, known)
    return Beginning(Below(tiers, before.coding, notes), table, notes, lost)
