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
from onggi_core.quantity import spell_bytes
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.budget import DiskPlan, nominal_segment_bytes, plan_disk
from onggi_sidecar.disk.columns import adopted_columns
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.outcome import of_the_file
from onggi_sidecar.disk.scan import Scanned, UnreadableTable, scan_table
from onggi_sidecar.disk.segment import DamagedSegment, open_segment, segment_number
from onggi_sidecar.disk.table import TABLE_NAME, PageTable, TableState
from onggi_sidecar.heap import give_back_free_heap

UUID_BYTES: Final = 16
SPACES_ADOPTED_MAX: Final = 512
"""Half of what the engine knows at once (onggi_core.engine.state.SPACES_MAX): old fingerprints,
largest first, may not keep new ones from being served."""
OLD_NAMES: Final = ("journal", "journal.new")
"""Of format 1."""


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
    table: PageTable
    devices: dict[int, Device]
    adopted: list[Adopted]
    report: RecoveryReport

    @property
    def unused_segments(self) -> set[int]:
        return {number for number in self.devices if not self.table.holds(number)}


def recover(folder: Path, *, budget_bytes: int, dice: Callable[[int], bytes]) -> RecoveredTier:
    """Read the page table, open its segments, remove what is not theirs. Blocking; raises OSError.

    dice(n) gives n random bytes, for the identity of a new tier.
    """
    report = RecoveryReport()
    path = folder / TABLE_NAME
    found = _scan(path, budget_bytes, report)
    if found is None:
        return _begin_anew(folder, budget_bytes, dice(UUID_BYTES), report)
    plan = plan_disk(budget_bytes, found.segment_bytes)
    devices = _open_segments(folder, found, plan, report)
    gone = [number for number in found.regions if number not in devices]
    for number in gone:
        report.lost_blocks += found.regions.pop(number).spaces.total()
    spaces = _choose_spaces(found, report)
    report.damaged_records, report.torn_bytes = found.damaged_records, found.torn_bytes
    report.sealed = found.sealed
    table = PageTable(path, found.state())
    adopted = adopted_columns(found, spaces)
    for number in (*gone, *found.damaged_regions):
        table.release(number)
    table.cut(plan.segments)
    give_back_free_heap()
    return RecoveredTier(plan, table, devices, adopted, report)


def _scan(path: Path, budget_bytes: int, report: RecoveryReport) -> Scanned | None:
    old = [name for name in OLD_NAMES if (path.parent / name).exists()]
    if old and not path.exists():
        report.problems.append(
            "the disk tier was made by an agent of format 1, which this one does not read; it "
            "begins empty"
        )
        return None
    try:
        found = scan_table(path, budget_bytes=budget_bytes)
    except FileNotFoundError:
        return None
    except UnreadableTable as unreadable:
        report.problems.append(f"{unreadable}; the disk tier begins empty")
        return None
    except OSError as fault:
        if not of_the_file(fault):
            raise
        report.problems.append(
            f"the page table cannot be read ({fault.strerror}); the disk tier begins empty"
        )
        return None
    if plan_disk(budget_bytes, found.segment_bytes).segments < 1:
        report.problems.append(
            f"the tier was made with segments of {spell_bytes(found.segment_bytes)}, too large for "
            f"a budget of {spell_bytes(budget_bytes)}; it begins empty"
        )
        return None
    report.problems += [
        f"the page table no longer says what segment {number} holds; its blocks are given up"
        for number in found.damaged_regions
    ]
    return found


def _begin_anew(
    folder: Path, budget_bytes: int, tier_uuid: bytes, report: RecoveryReport
) -> RecoveredTier:
    for name in (TABLE_NAME, *OLD_NAMES):
        _remove(folder / name)
    for path in folder.glob("segment-*"):
        if segment_number(path) is not None:
            _remove(path)
    plan = plan_disk(budget_bytes, nominal_segment_bytes(budget_bytes))
    table = PageTable(folder / TABLE_NAME, TableState(tier_uuid, plan.segment_bytes))
    return RecoveredTier(plan, table, {}, [], report)


def _open_segments(
    folder: Path, found: Scanned, plan: DiskPlan, report: RecoveryReport
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
        except OSError as fault:
            if not of_the_file(fault):
                raise
            report.problems.append(f"{path.name} cannot be read ({fault.strerror}); it was removed")
            _remove(path)
    return devices


def _choose_spaces(found: Scanned, report: RecoveryReport) -> dict[int, SpaceSpec]:
    """Which spaces are adopted: of each fingerprint the fullest, and the fullest of all."""
    blocks: dict[int, int] = {}
    for region in found.regions.values():
        for number, count in region.spaces.items():
            blocks[number] = blocks.get(number, 0) + count
    by_fingerprint: dict[bytes, int] = {}
    for number in sorted(blocks, key=blocks.__getitem__):
        by_fingerprint[found.spaces[number].fingerprint] = number
    fullest = sorted(by_fingerprint.values(), key=blocks.__getitem__, reverse=True)
    chosen = fullest[:SPACES_ADOPTED_MAX]
    report.adopted_blocks = sum(blocks[number] for number in chosen)
    report.lost_blocks += sum(blocks.values()) - report.adopted_blocks
    return {number: found.spaces[number] for number in chosen}


def _remove(path: Path) -> None:
    """A file or pipe goes; a folder, which no agent makes, stays and costs its segment."""
    if not path.is_dir():
        path.unlink(missing_ok=True)


def system_dice(count: int) -> bytes:
    return os.urandom(count)
