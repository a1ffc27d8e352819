"""Who holds a lock, written into its file for people: what guards is the flock, not this text."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Final

TEXT_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, in words."""

    pid: int
    pod: str
    since: str

    def __str__(self) -> str:
        where = f" of pod {self.pod}" if self.pod else ""
        return f"process {self.pid}{where} since {self.since}"


def write_holder(lock_fd: int, holder: Holder) -> None:
    """Raises OSError."""
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, json.dumps(asdict(holder)).encode(), 0)


def read_holder(lock_fd: int) -> str:
    """Who holds it, in words, whatever the file says."""
    try:
        text = json.loads(os.pread(lock_fd, TEXT_BYTES_MAX, 0))
        return str(Holder(int(text["pid"]), str(text["pod"]), str(text["since"])))
    except (OSError, ValueError, KeyError, TypeError):
        return "another process (its lock file does not say which)"
