"""Folders beside this agent's own that nobody has come back for.

With a shared disk path each agent takes the first free `slot-N`, so after fewer pods than before
the last ones lie there full, for as long as the node lives. Whoever runs on the node clears what
has lain untouched for longer than its pool keeps it. The folder's own lock guards it meanwhile: an
agent that starts takes the next one.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onggi_core.quantity import spell_bytes
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.folder import LOCK_NAME, SHARED_FOLDERS_MAX, Claim, slot
from onggi_sidecar.log import event, warn

LOOK_EVERY_S: Final = 3600.0
"""Retention is a matter of hours and days."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What one folder gave back."""

    path: Path
    size_bytes: int


def clear_leftovers(root: Path, *, kept_s: float, now_s: float) -> tuple[Cleared, ...]:
    """Empty every free folder whose files nobody has written to for `kept_s`. `now_s` is wall time,
    which is what files have. Raises OSError at the first folder that cannot be read or emptied."""
    cleared = []
    for number in range(SHARED_FOLDERS_MAX):
        folder = slot(root, number)
        if folder.is_dir() and (size_bytes := _clear(folder, kept_s, now_s)):
            cleared.append(Cleared(folder, size_bytes))
    return tuple(cleared)


def _clear(folder: Path, kept_s: float, now_s: float) -> int:
    """Bytes given back; 0 for a folder that is held, young or empty."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0  # never an agent's
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.scandir(folder) as entries:
            files = [(one.path, one.stat(follow_symlinks=False)) for one in entries if _ours(one)]
        newest_s = max((facts.st_mtime for _, facts in files), default=now_s)
        if now_s - max(newest_s, os.fstat(fd).st_mtime) <= kept_s:
            return 0
        for path, _ in files:
            os.unlink(path)
        return sum(facts.st_blocks * 512 for _, facts in files)
    except BlockingIOError:
        return 0
    finally:
        os.close(fd)


def _ours(entry: "os.DirEntry[str]") -> bool:
    return entry.name != LOCK_NAME and entry.is_file(follow_symlinks=False)


class Tending:
    """Looks at the neighbours' folders once in a while, in a thread of its own: clearing a large
    folder takes the filesystem a while."""

    def __init__(
        self, root: Path, *, kept_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._root = root
        self._kept_s = kept_s
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onggi-leftovers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait: a folder half cleared is cleared by the next one to look."""
        self._ended.set()

    def _run(self) -> None:
        while True:
            self._look()
            if self._ended.wait(LOOK_EVERY_S):
                return

    def _look(self) -> None:
        try:
            found = clear_leftovers(self._root, kept_s=self._kept_s, now_s=self._clock())
        except OSError as fault:
            warn(
                "leftovers_kept",
                f"cannot clear what dead pods left in {self._root}: {fault.strerror}",
            )
            return
        for one in found:
            event(
                "leftovers_cleared",
                f"{one.path} was left by a pod that is gone for more than"
                f" {self._kept_s:g} s; {spell_bytes(one.size_bytes)} are free again",
                path=str(one.path),
                size_bytes=one.size_bytes,
            )


def tend(config: AgentConfig) -> Callable[[], None]:
    """Begin to look, where folders are shared and kept for a time; answers how to end it."""
    if config.disk_path is None or config.disk_claim is not Claim.SHARED:
        return lambda: None
    tending = Tending(config.disk_path, kept_s=config.disk_retention_s)
    if config.disk_retention_s:
        tending.start()
    return tending.stop
