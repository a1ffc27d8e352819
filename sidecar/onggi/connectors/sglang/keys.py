"""Keys of pages: SGLang's own hashes, made ours.

SGLang hashes a page's tokens and all pages before it by SHA-256, seeded by the request's namespace
(salt, adapter), the same in every process. What shapes a page's bytes beside that is the
fingerprint's, which is part of every key in the agent.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from typing import Final

from onggi_core.identity import DIGEST_BYTES

_START_TIME: Final = 19
"""Of a process, in the fields of /proc/PID/stat behind its name, which may have blanks in it."""


class PageKeys:
    """Hashes to keys, and how often those before were given up. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clears = 0
        self._life = b""

    def of(self, hashes: Sequence[str]) -> list[bytes]:
        life = self._life
        return [hashlib.sha256(life + one.encode()).digest()[:DIGEST_BYTES] for one in hashes]

    def renew(self) -> None:
        """From here on nothing that was kept before is found: other keys. Ranks of one engine
        agree on them, since one may read what another has written; another engine's are others."""
        with self._lock:
            self._clears += 1
            self._life = f"{self._clears} {_engine()} ".encode()


OF_THIS_PROCESS: Final = PageKeys()
"""A process is one rank; a backend that is attached to it anew goes on with its keys, so as not to
find what was cleared before it."""


def _engine() -> str:
    """What the ranks of one engine on one node have in common and no other engine has: the process
    that started them, and when it began."""
    parent = os.getppid()
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
            began = file.read().rpartition(")")[2].split()[_START_TIME]
    except (OSError, IndexError):
        return os.urandom(16).hex()  # ranks then do not find each other's: a miss, never wrong
    return f"{boot}/{parent}/{began}"
