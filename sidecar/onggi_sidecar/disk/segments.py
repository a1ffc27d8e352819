"""The segment files of one tier: open, made when a page first goes there, removed when given up.

Making one reserves a gigabyte and may take a while, so the next is made ahead, beside the I/O.
"""

import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from onggi_sidecar.disk.budget import DiskPlan
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.segment import create_segment, segment_path
from onggi_sidecar.log import warn

NO_SPACE_REST_S: Final = 2.0
"""After the filesystem said no to a segment, how long nobody asks it again: a store costs at most
one attempt, and space that comes back is found well within ten seconds."""


class Segments:
    """`for_writing`, `make_ahead` and `release` are for I/O threads; the rest never blocks."""

    def __init__(
        self,
        folder: Path,
        *,
        plan: DiskPlan,
        tier_uuid: bytes,
        devices: dict[int, Device],
        unused: Iterable[int],
        clock: Callable[[], float],
    ) -> None:
        """devices: those found, by number; unused: which of them hold no page."""
        self._folder = folder
        self._plan = plan
        self._tier_uuid = tier_uuid
        self._devices = devices
        self._clock = clock
        self._making = threading.Lock()
        self._no_space_until_s = 0.0
        self._ahead_max = plan.segments
        self._unused = set(unused)

    @property
    def open_ones(self) -> int:
        return len(self._devices)

    @property
    def no_space(self) -> bool:
        """Whether the filesystem lately refused a new segment."""
        return self._clock() < self._no_space_until_s

    def make_ahead_within(self, segments: int) -> None:
        """The live budget: so many files at most are made before a page asks for one."""
        self._ahead_max = segments

    def at(self, number: int) -> Device | None:
        return self._devices.get(number)

    def for_writing(self, number: int) -> Device:
        """The segment, made if need be. Raises OSError ENOSPC when it cannot be made, whatever
        the cause: no fault of the place, and asked again after NO_SPACE_REST_S."""
        device = self._devices.get(number)
        if device is None:
            with self._making:
                device = self._devices.get(number) or self._make(number)
        self._unused.discard(number)
        return device

    @property
    def one_is_due(self) -> bool:
        """Whether the next segment should be made ahead."""
        return not self._unused and not self.no_space and self._next() is not None

    def make_ahead(self) -> None:
        """Make the next segment if none is ready. A refusal is told once, by `no_space`."""
        with self._making:
            number = self._next()
            if number is None or not self.one_is_due:
                return
            try:
                self._make(number)
            except OSError as refused:
                if refused.errno != errno.ENOSPC:
                    raise
            else:
                self._unused.add(number)

    def release(self, number: int) -> None:
        """Remove a segment's file, which no job uses; one that cannot be removed stays in use."""
        with self._making:
            device = self._devices.get(number)
            if device is None:
                return
            try:
                segment_path(self._folder, number).unlink(missing_ok=True)
            except OSError as fault:
                warn("segment_kept", f"cannot remove segment {number}: {fault.strerror}")
                return
            self._unused.discard(number)
            del self._devices[number]
            device.close()

    def close(self) -> None:
        """The files stay, and nobody here has them open any more."""
        with self._making:
            while self._devices:
                self._devices.popitem()[1].close()

    def _next(self) -> int | None:
        """The engine takes segments in order, so the lowest one missing is next."""
        if len(self._devices) >= self._ahead_max:
            return None
        missing = (number for number in range(self._plan.segments) if number not in self._devices)
        return next(missing, None)

    def _make(self, number: int) -> Device:
        if self.no_space:
            raise OSError(errno.ENOSPC, "the filesystem was full a moment ago")
        try:
            device = create_segment(
                self._folder,
                number,
                tier_uuid=self._tier_uuid,
                segment_bytes=self._plan.segment_bytes,
            )
        except OSError as fault:
            self._no_space_until_s = self._clock() + NO_SPACE_REST_S
            warn(
                "segment_refused",
                f"cannot make segment {number} in {self._folder}: {fault.strerror}; the tier "
                "goes on with those it has and asks again later",
                segment=number,
            )
            raise OSError(errno.ENOSPC, fault.strerror) from fault
        self._devices[number] = device
        return device
