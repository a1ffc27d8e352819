"""The page table of a disk tier: what lies at each place, in one file of fixed places.

Data first, then its record: a record never speaks of bytes that were not written before it. No
fsync: after a power cut a record may name a page that never reached the disk, and its checksum
turns that into a miss. One lock guards the file; only I/O threads take it, so a slow disk holds up
other writers of the same disk and never the agent's loop.
"""

import errno
import os
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    FREE_BLOCK,
    FREE_RECORD,
    NUMBER_FREE,
    NUMBER_WORD,
    RECORD_WORDS,
    RECORDS_BYTES,
    SPACE_BYTES,
    SPACES_MAX,
    SPACES_OFFSET,
    TableLayout,
    blocks_for,
    close_block,
    heal_block,
    pack_entry,
    pack_header,
    pack_record,
    pack_space,
    patch_record,
    use_at,
)

TABLE_NAME: Final = "table"
BLOCKS_AT_ONCE: Final = 256
"""A megabyte of free records at a time when a segment is given to a page size."""


@dataclass(slots=True)
class TableState:
    """What a table says beside its records, as found or as new.

    uses: for each segment that holds pages, when each was last used and how often it was asked
    for (layout.COUNT_MASK). uses_written: whether the file has them so.
    """

    tier_uuid: bytes
    segment_bytes: int
    numbers: dict[SpaceSpec, int] = field(default_factory=dict)
    strides: dict[int, int] = field(default_factory=dict)
    uses: dict[int, "array[int]"] = field(default_factory=dict)
    uses_written: bool = True


class PageTable:
    """Writes one table. Only `forget` and `touch` are for any thread; both never block."""

    def __init__(self, path: Path, state: TableState) -> None:
        """Open the file at `path`, made if need be. Raises OSError."""
        self.tier_uuid = state.tier_uuid
        self.segment_bytes = state.segment_bytes
        self.damaged_records = 0
        """Found while patching their neighbours, since start."""
        self._layout = TableLayout(state.segment_bytes)
        self._numbers = state.numbers
        self._strides = state.strides
        self._uses = state.uses
        self._used_lately: set[int] = set() if state.uses_written else set(state.uses)
        self._forgotten: dict[int, None] = {}
        """Places whose records are to be freed: no more than there are places."""
        self._last = 0, bytearray()
        """The block of records written last: where it lies, and its bytes."""
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        self.write_uses()  # before the header that says what they mean
        self._write_header(0.0)

    @property
    def file_bytes(self) -> int:
        return os.fstat(self._fd).st_blocks * 512

    def holds(self, segment: int) -> bool:
        """Whether the segment was given to pages of some size."""
        return segment in self._strides

    def assign(self, segment: int, stride_bytes: int) -> None:
        """Before the first page of a size goes to a segment: free records for all its places.

        They are written, so that a filesystem which others fill never refuses the record of a page
        that is on disk. Raises OSError.
        """
        if self._strides.get(segment) == stride_bytes:
            return
        with self._lock:
            if self._strides.get(segment) == stride_bytes:
                return
            self._last = 0, bytearray()
            self._write_entry(segment, 0)
            slots = self._layout.slots(stride_bytes)
            offset, left = self._layout.blocks_offset(segment), blocks_for(slots)
            while left:
                now = min(left, BLOCKS_AT_ONCE)
                _write_whole(self._fd, FREE_BLOCK * now, offset)
                offset, left = offset + now * BLOCK_BYTES, left - now
            self._uses[segment] = array("I", bytes(4 * slots))
            self._write_uses(segment, stride_bytes)
            self._write_entry(segment, stride_bytes)

    def put(
        self,
        spec: SpaceSpec,
        place: int,
        *,
        stride_bytes: int,
        keys: Sequence[bytes],
        parents: Sequence[bytes],
        checksums: Sequence[bytes],
        now_s: float,
    ) -> None:
        """Record a run of pages that is on disk, in a segment assigned to their stride.

        A page with an empty checksum was not written: its place is free. Raises OSError.
        """
        segment, slot = self._slot(place, stride_bytes)
        with self._lock:
            self._free_forgotten()
            number = self._number(spec)
            records = [
                pack_record(key, parent, checksum, number) if checksum else FREE_RECORD
                for key, parent, checksum in zip(keys, parents, checksums, strict=True)
            ]
            self._patch(segment, dict(enumerate(records, slot)))
        self.touch(place, stride_bytes, bytes(len(keys)), now_s)

    def touch(self, place: int, stride_bytes: int, counts: bytes, now_s: float) -> None:
        """Note that a run of pages was used, and how often each was asked for, COUNT_MASK at most;
        written down by `write_uses`."""
        segment, slot = self._slot(place, stride_bytes)
        uses, pages = self._uses.get(segment), len(counts)
        if uses is not None and slot + pages <= len(uses):
            uses[slot : slot + pages] = _used(use_at(now_s), counts)
            self._used_lately.add(segment)

    def forget(self, place: int) -> None:
        """Note that a place was given up. Written before the next record, so that the two cannot
        change order."""
        self._forgotten[place] = None

    def write_uses(self) -> None:
        """Write down what `touch` noted. Raises OSError."""
        with self._lock:
            while self._used_lately:
                segment = self._used_lately.pop()
                if stride_bytes := self._strides.get(segment):
                    self._write_uses(segment, stride_bytes)

    def cut(self, segments: int) -> None:
        """Give back what a larger budget took behind the last of `segments`. Raises OSError."""
        end = self._layout.entry_offset(segments)
        if os.fstat(self._fd).st_size > end:
            os.ftruncate(self._fd, end)

    def release(self, segment: int) -> None:
        """The segment holds no page any more. Raises OSError."""
        with self._lock:
            self._free_forgotten()
            self._write_entry(segment, 0)

    def seal(self, now_s: float, *, wait_s: float) -> bool:
        """Mark a clean end, on stable storage. False if a writer hangs for longer than wait_s.

        Raises OSError.
        """
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            self._free_forgotten()
        finally:
            self._lock.release()
        self.write_uses()
        self._write_header(now_s)
        os.fdatasync(self._fd)
        return True

    def close(self) -> None:
        os.close(self._fd)

    def _slot(self, place: int, stride_bytes: int) -> tuple[int, int]:
        segment, within = divmod(place, self.segment_bytes)
        return segment, within // stride_bytes

    def _free_forgotten(self) -> None:
        by_block: dict[tuple[int, int], dict[int, bytes]] = {}
        while self._forgotten:
            place, _ = self._forgotten.popitem()
            if stride_bytes := self._strides.get(place // self.segment_bytes):
                segment, slot = self._slot(place, stride_bytes)
                by_block.setdefault((segment, slot // BLOCK_RECORDS), {})[slot] = FREE_RECORD
        for (segment, _), records in by_block.items():
            self._patch(segment, records)

    def _patch(self, segment: int, records: dict[int, bytes]) -> None:
        """Write records by slot, all within a few blocks in a row."""
        first = min(records) // BLOCK_RECORDS
        count = max(records) // BLOCK_RECORDS - first + 1
        offset = self._layout.blocks_offset(segment) + first * BLOCK_BYTES
        blocks = self._read_blocks(offset, count)
        for slot, record in records.items():
            patch_record(blocks, slot - first * BLOCK_RECORDS, record)
        for block in range(count):
            close_block(blocks, block)
        self._last = 0, bytearray()
        _write_whole(self._fd, blocks, offset)
        self._last = offset + (count - 1) * BLOCK_BYTES, blocks[-BLOCK_BYTES:]

    def _read_blocks(self, offset: int, count: int) -> bytearray:
        """Whole blocks, freed of what is damaged or cut off; the one written last is not read
        again, since the next run most often goes on there."""
        if count == 1 and self._last[0] == offset:
            return self._last[1]
        blocks = bytearray(os.pread(self._fd, count * BLOCK_BYTES, offset))
        if cut := count - len(blocks) // BLOCK_BYTES:
            del blocks[(count - cut) * BLOCK_BYTES :]
            blocks += FREE_BLOCK * cut
        for block in range(count):
            self.damaged_records += heal_block(blocks, block)
        return blocks

    def _number(self, spec: SpaceSpec) -> int:
        number = self._numbers.get(spec)
        if number is None:
            if len(self._numbers) >= SPACES_MAX:
                self._forget_unused_spaces()
            taken = set(self._numbers.values())
            number = next((n for n in range(SPACES_MAX) if n not in taken), None)
            if number is None:
                raise OSError(errno.ENOSPC, f"pages of {SPACES_MAX} spaces are on disk already")
            _write_whole(self._fd, pack_space(spec), SPACES_OFFSET + number * SPACE_BYTES)
            self._numbers[spec] = number
        return number

    def _forget_unused_spaces(self) -> None:
        """Numbers that no record bears can be given away again."""
        used: set[int] = set()
        for segment, stride_bytes in self._strides.items():
            offset = self._layout.blocks_offset(segment)
            for block in range(blocks_for(self._layout.slots(stride_bytes))):
                raw = os.pread(self._fd, BLOCK_BYTES, offset + block * BLOCK_BYTES)
                used |= block_numbers(raw)
        self._numbers = {spec: n for spec, n in self._numbers.items() if n in used}

    def _write_header(self, sealed_s: float) -> None:
        header = pack_header(self.tier_uuid, self.segment_bytes, sealed_s)
        _write_whole(self._fd, header, 0)

    def _write_entry(self, segment: int, stride_bytes: int) -> None:
        entry = pack_entry(segment, stride_bytes)
        _write_whole(self._fd, entry, self._layout.entry_offset(segment))
        if stride_bytes:
            self._strides[segment] = stride_bytes
        else:
            self._strides.pop(segment, None)
            self._uses.pop(segment, None)

    def _write_uses(self, segment: int, stride_bytes: int) -> None:
        offset = self._layout.uses_offset(segment, stride_bytes)
        _write_whole(self._fd, self._uses[segment].tobytes(), offset)


def block_numbers(block: bytes | memoryview) -> set[int]:
    """The spaces that the records of a block are of."""
    words = memoryview(block)[:RECORDS_BYTES].cast("I")
    return set(words[NUMBER_WORD::RECORD_WORDS].tolist()) - {NUMBER_FREE}


def _used(use: int, counts: bytes) -> "array[int]":
    if counts == counts[:1] * len(counts):
        return array("I", [use | counts[0]]) * len(counts)
    return array("I", [use | count for count in counts])


def _write_whole(fd: int, raw: bytes | bytearray, offset: int) -> None:
    view = memoryview(raw)
    while view:
        put = os.pwrite(fd, view, offset)
        view, offset = view[put:], offset + put
