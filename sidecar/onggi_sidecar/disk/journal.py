"""The append-only index of a disk tier.

Data first, then its record: a record never speaks of bytes that were not written before it. No
fsync: after a power cut a record may name a page that never reached the disk, and its checksum
turns that into a miss. Appends and compaction share one lock; only I/O threads ever take it, so a
slow disk holds up other writers of the same disk and never the agent's loop.
"""

import ctypes
import errno
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.budget import DiskPlan
from onggi_sidecar.disk.record import (
    DROP_BODY,
    PUT_BODY,
    RECORD_BYTES,
    SEAL_BODY,
    Kind,
    header_record,
    pack_record,
    space_record,
)
from onggi_sidecar.disk.replay import Replayed, replay

JOURNAL_NAME: Final = "journal"
SLACK_RECORDS: Final = 1024
"""Records beyond twice the live ones before a compaction: small tiers would else compact at every
few writes."""
DROPS_WAITING_MAX: Final = 4096
"""Drop records not yet written. Beyond it the oldest is forgotten, which is safe: the place either
still holds its block, which may well be found again, or is written over and fails its checksum."""

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC

_KEEP_SIZE: Final = 0x01
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Journal:
    """Writes one journal file. Every method but drop() is for I/O threads."""

    def __init__(self, path: Path, fd: int, found: Replayed) -> None:
        self.tier_uuid = found.tier_uuid
        self.segment_bytes = found.segment_bytes
        self.compactions = 0
        self._path = path
        self._fd = fd
        self._lock = threading.Lock()
        self._records = found.records
        self._records_max = found.records + SLACK_RECORDS
        self._tier_bytes = 0
        self._live = len(found.live)
        self._numbers = {spec: number for number, spec in found.spaces.items()}
        self._next_number = max(found.spaces, default=0) + 1
        self._drops: deque[bytes] = deque(maxlen=DROPS_WAITING_MAX)

    @classmethod
    def create(cls, path: Path, tier_uuid: bytes, segment_bytes: int) -> "Journal":
        """A new, empty journal in place of whatever is there. Raises OSError."""
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o660)
        journal = cls(path, fd, Replayed(tier_uuid, segment_bytes))
        journal._append(header_record(tier_uuid, segment_bytes))
        return journal

    @classmethod
    def reopen(cls, path: Path, found: Replayed) -> "Journal":
        """Go on behind the last whole record; a torn tail is cut off. Raises OSError."""
        fd = os.open(path, _FLAGS)
        os.ftruncate(fd, found.records * RECORD_BYTES)
        return cls(path, fd, found)

    @property
    def records(self) -> int:
        return self._records

    @property
    def file_bytes(self) -> int:
        return self._records * RECORD_BYTES

    def bound(self, plan: DiskPlan) -> None:
        """Set what the budget allows; places behind the tier's end are left out by compactions."""
        self._records_max = plan.records_max
        self._reserve(self._fd)
        self._tier_bytes = plan.segments * plan.segment_bytes

    def drop(self, place: int, key: bytes) -> None:
        """Note that a place was given up. Never blocks; written before the next PUT, so a drop
        and a later put of one place cannot change order."""
        self._drops.append(pack_record(Kind.DROP, DROP_BODY.pack(0, place, key)))

    def put(
        self,
        spec: SpaceSpec,
        place: int,
        *,
        key: bytes,
        parent: bytes,
        checksum: bytes,
        now_s: float,
    ) -> None:
        """Record a block whose page is on disk; compacts first when it is time.

        Raises OSError (also ENOSPC when the journal's own bound is reached); the file then ends
        with a whole record, as before.
        """
        with self._lock:
            if self._records + len(self._drops) + 2 > self._compact_at():
                self._compact_if_room()
            number = self._numbers.get(spec, self._next_number)
            fields = (number, 0, place, key, parent, checksum, spec.page_bytes, now_s)
            raw = self._waiting_drops() + pack_record(Kind.PUT, PUT_BODY.pack(*fields))
            if number == self._next_number:
                raw = space_record(number, spec) + raw
            self._append(raw)
            if number == self._next_number:
                self._numbers[spec] = number
                self._next_number += 1

    def seal(self, now_s: float, *, wait_s: float) -> bool:
        """Mark a clean end, on stable storage. False if a writer hangs for longer than wait_s.

        Raises OSError.
        """
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            self._append(self._waiting_drops() + pack_record(Kind.SEAL, SEAL_BODY.pack(now_s)))
            os.fdatasync(self._fd)
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        os.close(self._fd)

    def _compact_at(self) -> int:
        return min(2 * self._live + SLACK_RECORDS, self._records_max)

    def _reserve(self, fd: int) -> None:
        """Take the room that the journal may grow to, so that a filesystem which others fill never
        refuses the record of a page that is written. Where there is no room, or no such call, it
        grows as it goes."""
        _libc.fallocate(fd, _KEEP_SIZE, 0, self._records_max * RECORD_BYTES)

    def _compact_if_room(self) -> None:
        """A full filesystem puts a compaction off while the old file has room for records."""
        try:
            self._compact()
        except OSError as fault:
            full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
            if not full or self._records + len(self._drops) + 2 > self._records_max:
                raise

    def _compact(self) -> None:
        """Write the live records beside the old file and put them in its place at once.

        A crash on the way leaves the old journal. Raises OSError with the old one still in use.
        The sealing record goes, as does every record of a space without a block.
        """
        found = replay(os.pread(self._fd, self.file_bytes, 0), tier_bytes=self._tier_bytes)
        used = {put.space for put in found.live}
        parts = [header_record(self.tier_uuid, self.segment_bytes)]
        parts += [space_record(n, spec) for n, spec in found.spaces.items() if n in used]
        parts += [pack_record(Kind.PUT, PUT_BODY.pack(*put)) for put in found.live]
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o660)
        try:
            self._reserve(fd)
            _write_whole(fd, b"".join(parts))
            os.fdatasync(fd)
        except OSError:
            os.close(fd)
            fresh.unlink()
            raise
        fresh.rename(self._path)
        os.close(self._fd)
        self._fd, self._records, self._live = fd, len(parts), len(found.live)
        self._numbers = {spec: n for n, spec in found.spaces.items() if n in used}
        self.compactions += 1

    def _waiting_drops(self) -> bytes:
        waiting = []
        while self._drops:
            waiting.append(self._drops.popleft())
        return b"".join(waiting)

    def _append(self, raw: bytes) -> None:
        added = len(raw) // RECORD_BYTES
        if self._records + added > self._records_max:
            raise OSError(errno.ENOSPC, "the journal is at its bound with live records")
        try:
            _write_whole(self._fd, raw)
        except OSError:
            os.ftruncate(self._fd, self._records * RECORD_BYTES)
            raise
        self._records += added


def _write_whole(fd: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(fd, view) :]
