"""How many sequences to take at a time, so that they stay within a target of memory.

Pure: what was measured goes in, a number comes out. What a sequence costs is never asked for, since
nobody knows: it is measured, of each batch. One more at a time while there is clearly room, and at
once as many fewer as it takes; between the two lies a margin in which nothing changes, so costs
that vary by less than it never make the number swing.
"""

from __future__ import annotations

from typing import Final

from onggi.arguments import named
from onggi_core.quantity import spell_bytes
from onggi_library.manager.errors import DoesNotFit
from onggi_library.manager.sizes import size

MARGIN_SHARE: Final = 8
"""There is room for one more if all of them fit though each costs one part in so many more than the
dearest did."""
FORGET_SHARE: Final = 64
"""What the dearest cost falls by one part in so many of its distance to a cheaper batch's: one that
is dear now and then keeps the number where it still fits."""
MOST: Final = 4096


class BatchSizer:
    """`size` sequences are worth taking now. Not thread-safe."""

    @named
    def __init__(self, target: float | str, *, most: int = MOST) -> None:
        """target: of memory, a number of GiB or text such as "512MiB". most: sequences. Raises
        ValueError and TypeError."""
        self.target_bytes = size("target", target)
        if not self.target_bytes:
            raise ValueError(f'target is {target!r}; use a number of GiB, such as 0.5, or "512MiB"')
        self._most = _whole("most", most, 1)
        self._fixed_bytes = 0
        self._dearest_bytes: int | None = None
        self.size = 1

    @property
    def sequence_bytes(self) -> int | None:
        """What a sequence is counted with: the dearest lately. None: none was measured."""
        return self._dearest_bytes

    def observe(self, sequences: int, used_bytes: int) -> int:
        """A batch of so many took so much at its peak; answers how many to take next. With 0
        sequences it is what is there without any (weights, say), and not theirs.

        As long as no sequence costs an eighth more than the dearest before it, no batch of `size`
        goes past the target. Raises DoesNotFit where not even one sequence would fit.
        """
        used = _whole("used_bytes", used_bytes, 0)
        if not _whole("sequences", sequences, 0):
            self._fixed_bytes = used
        else:
            self._measured(max(1, -(-(used - self._fixed_bytes) // sequences)))
        room = self.target_bytes - self._fixed_bytes
        each = self._dearest_bytes or 0
        if room < max(1, each):
            raise DoesNotFit(
                f"a sequence of {spell_bytes(each)} does not fit: target is "
                f"{spell_bytes(self.target_bytes)}, of which {spell_bytes(self._fixed_bytes)} are "
                "taken without any; use a larger target, or shorter sequences",
                value_bytes=each,
                room_bytes=max(0, room),
            )
        if each:
            self._adjust(sequences, room, each)
        return self.size

    def _measured(self, cost: int) -> None:
        before = self._dearest_bytes or 0
        self._dearest_bytes = max(cost, before - (before - cost) // FORGET_SHARE)

    def _adjust(self, sequences: int, room: int, each: int) -> None:
        with_margin = room * MARGIN_SHARE // (each * (MARGIN_SHARE + 1))
        if self.size * each > room:
            self.size = max(1, with_margin)
        elif sequences >= self.size < min(self._most, with_margin):
            self.size += 1


def _whole(name: str, given: int, least: int) -> int:
    if type(given) is not int or given < least:
        raise ValueError(f"{name} is {given!r}; use a whole number from {least} on")
    return given
