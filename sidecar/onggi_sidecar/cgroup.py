"""What the container may use, as its cgroup says.

Limits alone are read, never what is in use: page cache counts as used there and is given up when
somebody needs the memory. And never the node's memory: an agent that took its share of a whole node
unasked would be killed, or would take it from everybody else.
"""

from pathlib import Path
from typing import Final

from onggi_core.board.layout import Layout, slots_for

OVERHEAD_BYTES: Final = 64 * 1024 * 1024
"""The agent beyond its arena: interpreter and libraries, 45 MiB measured idle, and its index."""
_UNLIMITED_FROM_BYTES: Final = 1 << 60
"""cgroup v1 writes `no limit` as a huge number."""
_DEPTH_MAX: Final = 64
"""Groups above each other; a node has six or so."""


def own_bytes(arena_bytes: int) -> int:
    """What an agent needs beside its arena: itself, and the board of it."""
    return OVERHEAD_BYTES + Layout(slots_for(arena_bytes)).nbytes


def memory_limit_bytes(
    root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The tightest memory limit on this process, v2 before v1; None for none or unknown.

    Every group above counts too. In a container the path that /proc names may be the node's, which
    is not seen from inside; its own group is then the root of what is.
    """
    v2, v1 = _paths_of(groups)
    for tree, path, name in (
        (root, v2, "memory.max"),
        (root / "memory", v1, "memory.limit_in_bytes"),
    ):
        found = [_read(folder / name) for folder in _upwards(tree, path)]
        if any(text is not None for text in found):
            limits = [int(text) for text in found if text is not None and text.isdecimal()]
            return min((x for x in limits if x < _UNLIMITED_FROM_BYTES), default=None)
    return None


def _paths_of(groups: Path) -> tuple[str, str]:
    """This process's groups by version: v2's, and v1's of the memory controller."""
    v2 = v1 = "/"
    for line in (_read(groups) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            v2 = path
        elif "memory" in controllers.split(","):
            v1 = path
    return v2, v1


def _upwards(tree: Path, path: str) -> list[Path]:
    """The group's folder and those above it, up to the root of the tree."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")][:_DEPTH_MAX]
    return [tree.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
