"""Whether the filesystem has room for what the tier may take: told at the start, and whenever that
changes under a running agent, since filesystems are shared.

Looking is cheap, but a filesystem that hangs holds whoever asks it: a thread of its own asks.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onggi_core.quantity import spell_bytes
from onggi_sidecar.log import event, warn
from onggi_sidecar.tally import Tally

LOOK_EVERY_S: Final = 30.0
"""A neighbour that fills a disk takes minutes; whoever reads the log is told in the first one."""
SLACK_SHARE: Final = 16
"""Room is there again when there is so large a part of the budget more of it than needed: what
others write and remove does not make it come and go with each look."""
BLOCK_BYTES: Final = 512
"""What st_blocks counts in."""


@dataclass(frozen=True, slots=True)
class Room:
    """room_bytes: what the tier has taken and what is free. whole_bytes: the filesystem."""

    room_bytes: int
    whole_bytes: int


def room_of(folder: Path) -> Room:
    """Raises OSError."""
    ours_bytes = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # a segment given up meanwhile
            ours_bytes += path.lstat().st_blocks * BLOCK_BYTES
    volume = os.statvfs(folder)
    return Room(
        room_bytes=volume.f_bavail * volume.f_frsize + ours_bytes,
        whole_bytes=volume.f_blocks * volume.f_frsize,
    )


class RoomWatch:
    """What was told of one tier's room. For one thread at a time: whoever starts the tier, then the
    watch's own."""

    def __init__(
        self, folder: Path, *, most_bytes: int, ask: Callable[[Path], Room] = room_of
    ) -> None:
        """most_bytes: what the budget may become."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._ask = ask
        self._lacks = False
        self._ended = threading.Event()

    def first_look(self, asked_bytes: int) -> None:
        """A budget that its filesystem cannot hold is no reason to refuse: the volume may grow,
        others may leave it, and a smaller cache is better than none. Raises OSError."""
        room = self._ask(self._folder)
        if self._look(room, asked_bytes):
            return
        if self._most_bytes > room.whole_bytes:
            self._tell("disk_max", self._most_bytes, room)

    def watch(self, asked_bytes: Callable[[], int], tally: Tally) -> Callable[[], None]:
        """Go on looking, and count how often a budget no longer fits; answers how to end it.
        asked_bytes: the budget of the moment, asked on the watch's thread."""
        threading.Thread(
            target=self._run, args=(asked_bytes, tally), name="onggi-room", daemon=True
        ).start()
        return self._ended.set  # waits for nothing: a filesystem may hang

    def look(self, asked_bytes: int) -> bool:
        """Tell what has changed since the last look; True if the budget fitted and now does not.
        Raises OSError."""
        lacked = self._lacks
        return self._look(self._ask(self._folder), asked_bytes) and not lacked

    def _run(self, asked_bytes: Callable[[], int], tally: Tally) -> None:
        unknown = False
        while not self._ended.wait(LOOK_EVERY_S):
            try:
                if self.look(asked_bytes()):
                    tally.fault("disk_lacks_room")
            except OSError as fault:
                if not unknown:
                    warn("disk_room_unknown", f"cannot look at {self._folder}: {fault.strerror}")
                unknown = True
            else:
                unknown = False

    def _look(self, room: Room, asked_bytes: int) -> bool:
        """Whether the budget lacks room, told if that is new."""
        if not self._lacks and asked_bytes > room.room_bytes:
            self._lacks = True
            self._tell("disk", asked_bytes, room)
        elif self._lacks and asked_bytes + asked_bytes // SLACK_SHARE <= room.room_bytes:
            self._lacks = False
            event(
                "disk_fits_its_room",
                f"the filesystem of {self._folder} has room for {spell_bytes(room.room_bytes)} of "
                f"the disk tier again, and {spell_bytes(asked_bytes)} are asked for",
                asked_bytes=asked_bytes,
                room_bytes=room.room_bytes,
            )
        return self._lacks

    def _tell(self, name: str, asked_bytes: int, room: Room) -> None:
        warn(
            "disk_larger_than_its_room",
            f"{name} is {spell_bytes(asked_bytes)}, but the filesystem of {self._folder} has room "
            f"for {spell_bytes(room.room_bytes)} of it ({spell_bytes(room.whole_bytes)} in all); "
            "the tier keeps what fits and goes on in that; make the volume larger, or lower "
            f"{name}",
            asked_bytes=asked_bytes,
            room_bytes=room.room_bytes,
            filesystem_bytes=room.whole_bytes,
        )
