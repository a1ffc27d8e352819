"""What the container may use, as its cgroup says."""

from pathlib import Path
from typing import Final

OVERHEAD_BYTES: Final = 64 * 1024 * 1024
"""The agent beyond its arena: interpreter and libraries, 45 MiB measured idle, and its index."""
_UNLIMITED_FROM_BYTES: Final = 1 << 60
"""cgroup v1 writes `no limit` as a huge number."""


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """This container's memory limit, v2 before v1; None for none or unknown."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (root / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) < _UNLIMITED_FROM_BYTES:
            return int(text)
        return None
    return None
