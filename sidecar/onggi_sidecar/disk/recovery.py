"""Open a claimed folder: adopt what an earlier agent left there, or begin anew.

A tier that cannot be read is begun anew, never refused: it is a cache. What was given up, and
why, is in the report, which the agent logs and counts.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onggi_core.engine.events import Adopted
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.budget import DiskPlan, nominal_segment_bytes, plan_disk
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.journal import JOURNAL_NAME, Journal
from onggi_sidecar.disk.replay import Put, Replayed, UnreadableJournal, read_journal
from onggi_sidecar.disk.segment import DamagedSegment, open_segment, segment_number

UUID_BYTES: Final = 16
SPACES_ADOPTED_MAX: Final = 512
"""Half of what the engine knows at once (onggi_core.engine.state.SPACES_MAX): old fingerprints,
largest first, may not keep new ones from being served."""


@dataclass(slots=True)
class RecoveryReport:
    """What was found. problems: sentences, one a thing given up."""

    adopted_blocks: int = 0
    damaged_records: int = 0
    torn_bytes: int = 0
    lost_blocks: int = 0
    """Blocks whose segment is gone, damaged or beyond the budget."""
    sealed: bool = True
    """Whether the earlier agent ended cleanly; True for a new tier."""
    problems: list[str] = field(default_factory=list)

    @property
    def damaged_blocks(self) -> int:
        return self.damaged_records + self.lost_blocks


@dataclass(slots=True)
class RecoveredTier:
    plan: DiskPlan
    journal: Journal
    devices: dict[int, Device]
    adopted: list[Adopted]
    report: RecoveryReport


def recover(folder: Path, *, budget_bytes: int, dice: Callable[[int], bytes]) -> RecoveredTier:
    """Read the journal, open its segments, remove what is not theirs. Blocking; raises OSError.

    dice(n) gives n random bytes, for the identity of a new tier.
    """
    report = RecoveryReport()
    path = folder / JOURNAL_NAME
    path.with_suffix(".new").unlink(missing_ok=True)
    found = _read(path, budget_bytes, report)
    if found is None:
        segment_bytes = nominal_segment_bytes(budget_bytes)
        plan = plan_disk(budget_bytes, segment_bytes)
        _remove_segments(folder)
        if path.exists() and not path.is_file() and not path.is_dir():
            path.unlink()
        journal = Journal.create(path, dice(UUID_BYTES), segment_bytes)
        journal.bound(plan)
        return RecoveredTier(plan, journal, {}, [], report)
    plan = plan_disk(budget_bytes, found.segment_bytes)
    devices = _open_segments(folder, found, plan, report)
    adopted = _adopt(found, devices, report)
    report.damaged_records, report.torn_bytes = found.damaged_records, found.torn_bytes
    report.sealed = found.sealed
    journal = Journal.reopen(path, found)
    journal.bound(plan)
    return RecoveredTier(plan, journal, devices, adopted, report)


def _read(path: Path, budget_bytes: int, report: RecoveryReport) -> Replayed | None:
    try:
        found = read_journal(path, tier_bytes=budget_bytes)
    except FileNotFoundError:
        return None
    except UnreadableJournal as unreadable:
        report.problems.append(f"{unreadable}; the disk tier begins empty")
        return None
    plan = plan_disk(budget_bytes, found.segment_bytes)
    if plan.segments < 1 or found.records >= plan.records_max:
        report.problems.append(
            f"the tier was made with segments of {found.segment_bytes} bytes and has "
            f"{found.records} records, too large for a budget of {budget_bytes} bytes; it begins "
            "empty"
        )
        return None
    return found


def _open_segments(
    folder: Path, found: Replayed, plan: DiskPlan, report: RecoveryReport
) -> dict[int, Device]:
    devices: dict[int, Device] = {}
    for path in sorted(folder.glob("segment-*")):
        number = segment_number(path)
        if number is None:
            continue  # not a name of ours
        if number >= plan.segments:
            report.problems.append(f"{path.name} is beyond the budget and was removed")
            path.unlink()
            continue
        try:
            devices[number] = open_segment(
                path, tier_uuid=found.tier_uuid, segment_bytes=found.segment_bytes
            )
        except DamagedSegment as damaged:
            report.problems.append(f"{damaged}; it was removed")
            _remove(path)
    return devices


def _adopt(found: Replayed, devices: dict[int, Device], report: RecoveryReport) -> list[Adopted]:
    """The live records as the engine takes them; the raw ones are let go of on the way."""
    puts_of: dict[int, list[Put]] = {number: [] for number in found.spaces}
    segment_bytes = found.segment_bytes
    for put in found.live:
        if put.place // segment_bytes in devices:
            puts_of[put.space].append(put)
    by_space: dict[bytes, tuple[SpaceSpec, list[Put]]] = {}
    for number, puts in puts_of.items():
        spec = found.spaces[number]
        if len(puts) > len(by_space.get(spec.fingerprint, (spec, ()))[1]):
            by_space[spec.fingerprint] = spec, puts
    fullest = sorted(by_space.values(), key=lambda item: len(item[1]), reverse=True)
    adopted = [_columns(spec, puts) for spec, puts in fullest[:SPACES_ADOPTED_MAX]]
    report.adopted_blocks = sum(len(event.keys) for event in adopted)
    report.lost_blocks = len(found.live) - report.adopted_blocks
    return adopted


def _columns(spec: SpaceSpec, puts: list[Put]) -> Adopted:
    return Adopted(
        spec,
        keys=[put.key for put in puts],
        parents=[put.parent for put in puts],
        places=[put.place for put in puts],
        checksums=[put.checksum for put in puts],
    )


def _remove_segments(folder: Path) -> None:
    for path in folder.glob("segment-*"):
        if segment_number(path) is not None:
            _remove(path)


def _remove(path: Path) -> None:
    """A file or pipe goes; a folder, which no agent makes, stays and costs its segment."""
    if not path.is_dir():
        path.unlink()


def system_dice(count: int) -> bytes:
    return os.urandom(count)
