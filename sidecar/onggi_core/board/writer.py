"""The agent's side of the board: show what is sealed, and take it off before its page is let go."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from onggi_core.board.beginnings import Beginnings
from onggi_core.board.layout import (
    BUCKETS_AT,
    ENTRIES,
    GATE_BYTES,
    KEY_BYTES,
    MARK,
    SPACE,
    Layout,
)
from onggi_core.errors import IllegalMove
from onggi_core.wire.frame import Op
from onggi_core.wire.requests import SpaceSpec

_ENTRY_SHIFT: Final = 32
_MARKS: Final = (1 << _ENTRY_SHIFT) - 1


class Board:
    """Blocks are the index's numbers. Each call is made between two requests: what it changes is
    in place before any page changes hands."""

    def __init__(self, buffer: bytearray | memoryview, slots: int) -> None:
        """buffer: zeros, Layout(slots).nbytes of them, which readers may see."""
        self.layout = layout = Layout(slots)
        self.buffer = whole = memoryview(buffer)[: layout.nbytes]
        """What readers see."""
        self._gate = whole[:24].cast("Q")
        self._spaces = whole[GATE_BYTES:BUCKETS_AT]
        self._entries = whole[BUCKETS_AT : layout.keys_at].cast("Q")
        self._keys = whole[layout.keys_at : layout.parents_at]
        self._parents = whole[layout.parents_at : layout.tags_at]
        self._tags = whole[layout.tags_at : layout.places_at].cast("I")
        self._places = whole[layout.places_at : layout.stamps_at].cast("I")
        self._stamps = whole[layout.stamps_at : layout.beginnings_at].cast("Q")
        self.beginnings = Beginnings(whole[layout.beginnings_at :])
        self._gate[1], self._gate[2] = layout.beginnings, max(Op)
        self._slot_of = array("I")
        """Slot + 1 by block; 0: not shown."""
        self._free: list[int] = []
        self._used = 0
        """Slots given so far, free ones included."""
        self._serial = 0
        self.unshown_blocks = 0
        """Blocks there was no slot for."""

    @property
    def shown_blocks(self) -> int:
        return self._used - len(self._free)

    def open(self) -> None:
        """From now on readers may believe what is shown."""
        self._gate[0] = 1

    def close(self) -> None:
        """From now on whatever is shown is a miss."""
        self._gate[0] = 0

    def shows(self, block: int) -> bool:
        return self.slot_of(block) >= 0

    def slot_of(self, block: int) -> int:
        """Where a block is shown; -1: nowhere."""
        return self._slot_of[block] - 1 if block < len(self._slot_of) else -1

    def name_space(self, number: int, tag: int, spec: SpaceSpec) -> None:
        """What a tag means from now on. number: the space's row in the index, below SPACES_MAX."""
        at = number * SPACE.size
        self._spaces[at : at + SPACE.size] = SPACE.pack(
            spec.fingerprint, spec.page_bytes, spec.block_tokens, tag
        )

    def show(
        self,
        blocks: Sequence[int],
        tag: int,
        keys: Sequence[bytes],
        parents: Sequence[bytes],
        units: array[int],
    ) -> None:
        """Sealed blocks of one space, in order; units: their places. Those beyond what there is
        room for are left out. Raises IllegalMove where one is shown already."""
        if self.shown_blocks == self.layout.slots:
            self.unshown_blocks += len(blocks)
            return
        self._reach(max(blocks, default=-1) + 1)
        for block in blocks:
            if self._slot_of[block]:
                raise IllegalMove("board", "shown", "SHOW")
        self._serial += 1
        begun = 0
        while begun < len(blocks):
            row = self._row(len(blocks) - begun)
            if not row:
                self.unshown_blocks += len(blocks) - begun
                return
            end = begun + len(row)
            self._write(row, tag, keys[begun:end], parents[begun:end], units[begun:end])
            for at, slot in zip(range(begun, end), row, strict=True):
                self._slot_of[blocks[at]] = slot + 1
                self._enter(tag, keys[at], slot)
            begun = end

    def take_off(self, blocks: Sequence[int]) -> None:
        """Blocks whose pages are about to be let go, those among them that are shown."""
        of = self._slot_of
        if type(blocks) is range:
            slots: Sequence[int] = of[blocks.start : blocks.stop]
        else:
            slots = [of[block] for block in blocks if block < len(of)]
        if not any(slots):
            return
        first, count = slots[0], len(slots)
        if (
            first
            and slots[-1] - first == count - 1
            and list(slots) == [*range(first, first + count)]
        ):
            self._stamps[first - 1 : first - 1 + count] = array("Q", bytes(8 * count))
            self._free.extend(range(first + count - 2, first - 2, -1))
        else:
            for slot in reversed(slots):
                if slot:
                    self._stamps[slot - 1] = 0
                    self._free.append(slot - 1)
        for block in blocks:
            if block < len(of):
                of[block] = 0

    # ---- slots

    def _reach(self, blocks: int) -> None:
        if (missing := blocks - len(self._slot_of)) > 0:
            self._slot_of.frombytes(bytes(4 * max(missing, len(self._slot_of) // 4)))

    def _row(self, most: int) -> range:
        """Free slots in a row, as many as there are up to `most`; none: the board is full. Those
        given back last come first: a chain that went left a row for the next one."""
        free = self._free
        if free:
            first = end = free.pop()
            while free and end - first + 1 < most and free[-1] == end + 1:
                end = free.pop()
            return range(first, end + 1)
        first = self._used
        self._used = min(self.layout.slots, first + most)
        return range(first, self._used)

    def _write(
        self,
        row: range,
        tag: int,
        keys: Sequence[bytes],
        parents: Sequence[bytes],
        units: array[int],
    ) -> None:
        """The stamps last: from then on the row is believed."""
        begin, end, count = row.start, row.stop, len(row)
        self._keys[begin * KEY_BYTES : end * KEY_BYTES] = b"".join(keys)
        self._parents[begin * KEY_BYTES : end * KEY_BYTES] = b"".join(parents)
        self._tags[begin:end] = array("I", [tag]) * count
        self._places[begin:end] = units
        self._stamps[begin:end] = array("Q", [self._serial]) * count

    def _enter(self, tag: int, key: bytes, slot: int) -> None:
        """Make a name findable by itself. Where its bucket is full of names that are shown, it is
        found behind the one before it alone."""
        bucket = self.layout.bucket(tag, key)
        entries = self._entries
        word = (slot + 1) << _ENTRY_SHIFT | int.from_bytes(key[MARK], "little")
        for at in range(bucket * ENTRIES, (bucket + 1) * ENTRIES):
            if not entries[at]:
                entries[at] = word
                return
        for at in range(bucket * ENTRIES, (bucket + 1) * ENTRIES):
            if self._left_over(bucket, entries[at]):
                entries[at] = word
                return

    def _left_over(self, bucket: int, word: int) -> bool:
        """Whether an entry's slot shows nothing, or a name of another entry."""
        slot = (word >> _ENTRY_SHIFT) - 1
        key = bytes(self._keys[slot * KEY_BYTES : (slot + 1) * KEY_BYTES])
        return (
            not self._stamps[slot]
            or int.from_bytes(key[MARK], "little") != word & _MARKS
            or self.layout.bucket(self._tags[slot], key) != bucket
        )
