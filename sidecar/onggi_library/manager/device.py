"""The device's tier: copies of values that lie below too, so that leaving it costs nothing.

Memory is taken in slabs of slots of one size, as values of that size come, until the budget is
reached; from then on a slab that is empty goes back when another size needs its room. The first
values that are put, and the last ones, stay; of the others the policy picks who goes. Where counts
of gets choose better (hot.py), a value that comes up passes through a small part, and stays longer
only if it was asked for more often than one that would have to go.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import torch

from onggi_core.index.ids import NOWHERE
from onggi_core.policy.choosers import Chooser
from onggi_core.policy.ranking import Ranking
from onggi_library.manager.hot import PASS_SHARE, HotSet
from onggi_library.manager.lanes import new_bytes

SLAB_SHARE: Final = 64
"""A slab is one part in so many of the budget, so that sizes share it in fair steps."""
SLAB_MAX: Final = 256 << 20
STAY_SHARE: Final = 2
"""First and last values hold one part in so many at most: the rest is for what is asked for."""
KEPT_BYTES: Final = 512
"""Of a value that is here: its place, its slot's, and its rank."""
_GROUP: Final = 0


@dataclass(slots=True)
class _Slab:
    memory: torch.Tensor
    """uint8 [slots, bytes of a slot]"""
    free: list[int]
    serials: dict[int, int] = field(default_factory=dict)
    """Slot -> whose value is there."""


@dataclass(slots=True)
class _Kept:
    slab: int
    slot: int
    block: int
    """Its number in the ranking."""
    ahead: bool
    """Brought up before anybody asked, and not asked for since."""


class DeviceTier:
    """Not thread-safe. Rows are uint8 on the device; a row it answers with is its own memory."""

    def __init__(
        self,
        capacity_bytes: int,
        device: torch.device,
        chooser: Chooser,
        hot: HotSet,
        *,
        first: int,
        last: int,
    ) -> None:
        """hot: which values are worth more than others; whoever asks for one tells it. first, last:
        how many of the values put first and last stay."""
        self.hot = hot
        self.capacity_bytes = capacity_bytes
        self.taken_bytes = 0
        """Of all slabs."""
        self.used_bytes = 0
        self._device = device
        self._ranking = Ranking(chooser)
        self._use = 0
        self._slabs: dict[int, _Slab] = {}
        self._with_room: dict[int, dict[int, None]] = {}
        """Slot size -> its slabs that have a free slot."""
        self._next_slab = 0
        self._kept: dict[int, _Kept] = {}
        self._blocks: list[int] = []
        """Ranking's numbers given back."""
        self._serials: list[int] = []
        """Whose value each of the ranking's numbers is."""
        self._first, self._first_max, self._puts = set[int](), first, 0
        self._last: OrderedDict[int, None] = OrderedDict()
        self._last_max = last
        self._staying_bytes = 0
        self._passing: OrderedDict[int, None] = OrderedDict()
        self._passing_bytes = 0

    def __contains__(self, serial: int) -> bool:
        return serial in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """What is known of the values that are here; of the slabs a list of their slots."""
        return KEPT_BYTES * len(self._kept)

    def find(self, serial: int) -> tuple[torch.Tensor, bool] | None:
        """The row of a value, which is of use now, and whether it was brought up ahead of this."""
        kept = self._kept.get(serial)
        if kept is None:
            return None
        ahead, kept.ahead = kept.ahead, False
        if ahead:
            self.passes(serial)
        elif serial in self._passing:
            self._passing.move_to_end(serial)
        self._use += 1
        self._ranking.hit(kept.block, self._use)
        return self._slabs[kept.slab].memory[kept.slot], ahead

    def room_for(self, serial: int, nbytes: int, *, ahead: bool = False) -> torch.Tensor | None:
        """A row for a value that is not here, to be written to now; None: there is none."""
        assert serial not in self._kept, "each value is here once"
        if nbytes > self.capacity_bytes:
            return None
        while not (with_room := self._with_room.get(nbytes)):
            if not self._new_slab(nbytes) and not self._one_goes():
                return None
        number = next(iter(with_room))
        slab = self._slabs[number]
        slot = slab.free.pop()
        if not slab.free:
            del with_room[number]
        block = self._blocks.pop() if self._blocks else len(self._serials)
        self._serials[block : block + 1] = [serial]
        slab.serials[slot] = serial
        self._use += 1
        self._ranking.insert(block, NOWHERE, _GROUP, self._use)
        self._kept[serial] = _Kept(number, slot, block, ahead)
        self.used_bytes += nbytes
        return slab.memory[slot]

    def was_put(self, serial: int) -> None:
        """A value that is here was just put: it stays for now, or for good."""
        if serial not in self._kept:
            return
        self._puts += 1
        self._stay(serial, 1)
        if self._puts <= self._first_max and self._staying_bytes <= self._stay_max:
            self._first.add(serial)
            return
        self._last[serial] = None
        while len(self._last) > self._last_max or self._staying_bytes > self._stay_max:
            if not self._last:
                return
            self._stay(self._last.popitem(last=False)[0], -1)

    def passes(self, serial: int) -> None:
        """A value that came up has been asked for: it has to show that it is worth its place."""
        new = serial in self._kept and serial not in self._passing
        if new and self.hot.by_count and serial not in self._first and serial not in self._last:
            self._pass(serial, 1)

    def remove(self, serial: int) -> None:
        """The value is worth nothing here any more, if it is here."""
        kept = self._kept.get(serial)
        if kept is None:
            return
        if serial in self._first or serial in self._last:
            self._first.discard(serial)
            self._last.pop(serial, None)
            self._stay(serial, -1)
        if serial in self._passing:
            self._pass(serial, -1)
        del self._kept[serial]
        self._ranking.remove(kept.block)
        self._blocks.append(kept.block)
        slab = self._slabs[kept.slab]
        del slab.serials[kept.slot]
        slab.free.append(kept.slot)
        nbytes = slab.memory.shape[1]
        self._with_room.setdefault(nbytes, {})[kept.slab] = None
        self.used_bytes -= nbytes

    def clear(self) -> None:
        """Give all memory back."""
        for serial in tuple(self._kept):
            self.remove(serial)
        self._slabs.clear()
        self._with_room.clear()
        self.taken_bytes = 0

    # ---- inside

    @property
    def _stay_max(self) -> int:
        return self.capacity_bytes // STAY_SHARE

    def _stay(self, serial: int, sign: int) -> None:
        kept = self._kept[serial]
        self._staying_bytes += sign * self._slabs[kept.slab].memory.shape[1]
        if sign > 0:
            self._ranking.hold(kept.block)
        else:
            self._ranking.release(kept.block)

    def _pass(self, serial: int, sign: int) -> None:
        """It begins or ends to pass through; what does is not the policy's."""
        kept = self._kept[serial]
        self._passing_bytes += sign * self._slabs[kept.slab].memory.shape[1]
        if sign > 0:
            self._passing[serial] = None
            self._ranking.hold(kept.block)
        else:
            del self._passing[serial]
            self._ranking.release(kept.block)

    def _new_slab(self, nbytes: int) -> bool:
        """A slab for values of a size: within the budget, or for empty ones of other sizes."""
        wanted = max(nbytes, min(SLAB_MAX, self.capacity_bytes // SLAB_SHARE) // nbytes * nbytes)
        if self.taken_bytes + nbytes > self.capacity_bytes:
            self._give_empty_back(nbytes)
        left = self.capacity_bytes - self.taken_bytes
        slots = min(wanted, left) // nbytes
        if not slots:
            return False
        number, self._next_slab = self._next_slab, self._next_slab + 1
        memory = new_bytes(slots, nbytes, device=self._device)
        self._slabs[number] = _Slab(memory, [*range(slots - 1, -1, -1)])
        self._with_room.setdefault(nbytes, {})[number] = None
        self.taken_bytes += slots * nbytes
        return True

    def _give_empty_back(self, nbytes: int) -> None:
        """Slabs of other sizes, until a value of this size fits."""
        empty = [n for n, s in self._slabs.items() if not s.serials and s.memory.shape[1] != nbytes]
        for number in empty:
            if self.taken_bytes + nbytes <= self.capacity_bytes:
                return
            memory = self._slabs.pop(number).memory
            of_size = self._with_room[memory.shape[1]]
            del of_size[number]
            if not of_size:
                del self._with_room[memory.shape[1]]
            self.taken_bytes -= memory.numel()

    def _one_goes(self) -> bool:
        """Of too many that pass through the oldest, or one that is worth less; else by the policy;
        where only first and last values are left, of the last the oldest."""
        block = self._ranking.coldest(_GROUP)
        rival = None if block is None else self._serials[block]
        pass_max = self.capacity_bytes // PASS_SHARE if self.hot.by_count else 0
        serial = rival
        if rival is None or self._passing_bytes > pass_max:
            oldest = next(iter(self._passing), None)
            if (
                oldest is not None
                and rival is not None
                and self.hot.counts.worth_more(oldest, rival)
            ):
                self._pass(oldest, -1)
            elif oldest is not None:
                serial = oldest
        if serial is None:
            serial = next(iter(self._last or self._first), None)
        if serial is None:
            return False
        self.remove(serial)
        return True
