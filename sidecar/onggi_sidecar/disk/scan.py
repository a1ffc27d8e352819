"""Read a page table: which blocks lie where, in bulk.

A block of records is believed by one digest and no record becomes an object of its own, so that a
million of them take well under a second. Nothing found here is believed beyond that: a block of
the pool becomes a hit only when its page matches its checksum. What is damaged is counted and
freed.
"""

import os
import stat
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from onggi_core.engine.events import IoOutcome
from onggi_core.geometry import ALIGN_BYTES, stride
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    ENTRY,
    ENTRY_MAGIC,
    FREE_BLOCK,
    FREE_RECORD,
    HEADER,
    NUMBER_FREE,
    NUMBER_WORD,
    RECORD_BYTES,
    RECORD_WORDS,
    RECORDS_BYTES,
    REGIONS_OFFSET,
    SECOND_OF,
    SECONDS_VERSION,
    SPACE,
    SPACE_BYTES,
    SPACES_MAX,
    SPACES_OFFSET,
    TABLE_MAGIC,
    TABLE_VERSION,
    USE_BYTES,
    TableLayout,
    blocks_for,
    close_block,
    crc_holds,
    heal_block,
    patch_record,
)
from onggi_sidecar.disk.outcome import classify
from onggi_sidecar.disk.table import TableState


class UnreadableTable(ValueError):
    """Not a table this version reads; the tier starts empty and says why."""


@dataclass(slots=True)
class Region:
    """One segment's records, whole blocks as they lie in the file, healed."""

    number: int
    stride_bytes: int
    blocks: bytearray
    uses: "array[int]"
    """Last uses, as layout.COUNT_MASK says."""
    spaces: Counter[int]
    """Live records by space number."""
    alike: list[int | None] = field(default_factory=list)
    """Of each block the space number that all of its records have; None where they differ."""

    def records(self, block: int) -> memoryview:
        """A block's records, [RECORDS_BYTES] uint8."""
        begin = block * BLOCK_BYTES
        return memoryview(self.blocks)[begin : begin + RECORDS_BYTES]

    def numbers(self, block: int) -> list[int]:
        """The space of each record of a block, NUMBER_FREE where there is none."""
        return self._numbers(block).tolist()

    def number_of(self, block: int) -> int | None:
        raw = self._numbers(block).tobytes()
        return int.from_bytes(raw[:4], "little") if raw == raw[:4] * BLOCK_RECORDS else None

    def _numbers(self, block: int) -> "memoryview[int]":
        return self.records(block).cast("I")[NUMBER_WORD::RECORD_WORDS]


@dataclass(slots=True)
class Scanned:
    """What a table says."""

    tier_uuid: bytes
    segment_bytes: int
    sealed: bool
    version: int
    spaces: dict[int, SpaceSpec] = field(default_factory=dict)
    regions: dict[int, Region] = field(default_factory=dict)
    damaged_records: int = 0
    torn_bytes: int = 0
    damaged_regions: list[int] = field(default_factory=list)
    """Segments of which not even the page size is known any more."""

    def state(self) -> TableState:
        """What the table goes on with: the spaces and segments that hold something."""
        used = {number for region in self.regions.values() for number in region.spaces}
        return TableState(
            self.tier_uuid,
            self.segment_bytes,
            numbers={spec: number for number, spec in self.spaces.items() if number in used},
            strides={region.number: region.stride_bytes for region in self.regions.values()},
            uses={region.number: region.uses for region in self.regions.values()},
            uses_written=self.version == TABLE_VERSION,
        )


def scan_table(path: Path, *, budget_bytes: int) -> Scanned:
    """Read a whole table, freeing records that are damaged.

    budget_bytes bounds what is believed of the file's length. Raises UnreadableTable when its
    header is not this version's, FileNotFoundError, OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for ever
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnreadableTable("the page table is not a regular file")
        scanned = _read_header(os.pread(fd, BLOCK_BYTES, 0))
        _read_spaces(os.pread(fd, SPACES_MAX * SPACE_BYTES, SPACES_OFFSET), scanned)
        layout = TableLayout(scanned.segment_bytes)
        room_bytes = max(0, os.fstat(fd).st_size - REGIONS_OFFSET)
        regions = min(budget_bytes // layout.segment_bytes, -(-room_bytes // layout.region_bytes))
        for segment in range(regions):
            _read_region(fd, layout, segment, scanned)
    finally:
        os.close(fd)
    return scanned


def _read_header(raw: bytes) -> Scanned:
    if len(raw) < BLOCK_BYTES:
        raise UnreadableTable(f"the page table has {len(raw)} bytes, less than its header")
    magic, version, record_bytes, tier_uuid, segment_bytes, sealed_s = HEADER.unpack_from(raw)
    if magic != TABLE_MAGIC or not crc_holds(raw[: HEADER.size + 4]):
        raise UnreadableTable("the page table's header is damaged")
    if version not in (TABLE_VERSION, SECONDS_VERSION) or record_bytes != RECORD_BYTES:
        raise UnreadableTable(
            f"the page table has format {version} with records of {record_bytes} bytes; this "
            f"agent reads {SECONDS_VERSION} and {TABLE_VERSION} with {RECORD_BYTES}"
        )
    if segment_bytes % ALIGN_BYTES or not segment_bytes:
        raise UnreadableTable(f"the page table speaks of segments of {segment_bytes} bytes")
    return Scanned(tier_uuid, segment_bytes, sealed=sealed_s > 0, version=version)


def _read_spaces(raw: bytes, scanned: Scanned) -> None:
    for number in range(len(raw) // SPACE_BYTES):
        entry = raw[number * SPACE_BYTES : (number + 1) * SPACE_BYTES]
        if any(entry) and crc_holds(entry):
            spec = SpaceSpec(*SPACE.unpack_from(entry))
            if spec.page_bytes and spec.block_tokens:
                scanned.spaces[number] = spec


def _read_region(fd: int, layout: TableLayout, segment: int, scanned: Scanned) -> None:
    raw = os.pread(fd, ENTRY.size + 4, layout.entry_offset(segment))
    if not any(raw):
        return  # never given to a page size
    magic, number, stride_bytes = ENTRY.unpack(raw[: ENTRY.size].ljust(ENTRY.size, b"\0"))
    sound = crc_holds(raw) and magic == ENTRY_MAGIC and number == segment
    if not sound or stride_bytes % ALIGN_BYTES or stride_bytes > layout.segment_bytes:
        scanned.damaged_regions.append(segment)
        return
    if not stride_bytes:
        return
    region = _load(fd, layout, segment, stride_bytes, scanned)
    for block in _heal(region, scanned):
        raw_block = memoryview(region.blocks)[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
        _write_back(fd, raw_block, layout.blocks_offset(segment) + block * BLOCK_BYTES)
    scanned.regions[segment] = region


def _load(
    fd: int, layout: TableLayout, segment: int, stride_bytes: int, scanned: Scanned
) -> Region:
    """A region as it lies in the file; behind a cut its places are free."""
    slots = layout.slots(stride_bytes)
    blocks_bytes = blocks_for(slots) * BLOCK_BYTES
    offset = layout.blocks_offset(segment)
    blocks = bytearray(blocks_bytes)
    del blocks[os.preadv(fd, [blocks], offset) :]
    if torn_bytes := blocks_bytes - len(blocks):
        scanned.torn_bytes += torn_bytes
        del blocks[len(blocks) // BLOCK_BYTES * BLOCK_BYTES :]
        blocks += FREE_BLOCK * ((blocks_bytes - len(blocks)) // BLOCK_BYTES)
        _write_back(fd, blocks, offset)
    raw_uses = os.pread(fd, slots * USE_BYTES, layout.uses_offset(segment, stride_bytes))
    uses = bytearray(raw_uses.ljust(slots * USE_BYTES, b"\0"))
    if scanned.version == SECONDS_VERSION:
        uses[::USE_BYTES] = uses[::USE_BYTES].translate(SECOND_OF)
    return Region(segment, stride_bytes, blocks, array("I", uses), Counter())


def _write_back(fd: int, raw: bytearray | memoryview, offset: int) -> None:
    """What a full filesystem has no room for is left as it is: whoever reads it finds the same."""
    try:
        os.pwrite(fd, raw, offset)
    except OSError as fault:
        if classify(fault) is not IoOutcome.NO_SPACE:
            raise


def _heal(region: Region, scanned: Scanned) -> list[int]:
    """Free what cannot be believed and count what can; answers the blocks that were changed."""
    known = {
        number
        for number, spec in scanned.spaces.items()
        if stride(spec.page_bytes) == region.stride_bytes
    }
    healed = []
    for block in range(len(region.blocks) // BLOCK_BYTES):
        if lost := heal_block(region.blocks, block):
            healed.append(block)
            scanned.damaged_records += lost
        number = region.number_of(block)
        region.alike.append(number)
        if number is not None and (number in known or number == NUMBER_FREE):
            region.spaces[number] += BLOCK_RECORDS
            continue
        found = Counter(region.numbers(block))
        del found[NUMBER_FREE]
        if not found.keys() <= known:
            healed.append(block)
            scanned.damaged_records += _free_unknown(region, block, known)
            found = Counter({n: count for n, count in found.items() if n in known})
        region.spaces.update(found)
    del region.spaces[NUMBER_FREE]
    return healed


def _free_unknown(region: Region, block: int, known: set[int]) -> int:
    """Free the records of a block whose space is not known or has pages of another size."""
    lost = 0
    for within, number in enumerate(region.numbers(block)):
        if number != NUMBER_FREE and number not in known:
            patch_record(region.blocks, block * BLOCK_RECORDS + within, FREE_RECORD)
            lost += 1
    close_block(region.blocks, block)
    return lost
