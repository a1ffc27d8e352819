"""Image archives into nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from node.machine import Node
from node.places import NODES_MAX, SOCKET
from node.shell import Failed, call


def load(node: Node, archive: Path) -> str:
    """Import an archive (docker-archive or OCI); one that has not changed is left alone."""
    archive = archive.resolve()
    if not archive.is_file():
        raise Failed(f"no image archive {archive}")
    stat = archive.stat()
    mark = node.dir / "loaded" / archive.name
    stamp = f"{archive} {stat.st_size} {stat.st_mtime_ns}"
    if mark.exists() and mark.read_text() == stamp:
        return ""
    mark.parent.mkdir(exist_ok=True)
    run = node.enter("ctr", "-a", SOCKET, "-n", "k8s.io", "images", "import", archive)
    out = call(*run).stdout
    mark.write_text(stamp)
    return out


def load_all(nodes: Sequence[Node], archives: Iterable[Path]) -> None:
    ordered = list(archives)

    def fill(node: Node) -> None:
        for archive in ordered:
            load(node, archive)

    with ThreadPoolExecutor(NODES_MAX) as pool:
        list(pool.map(fill, nodes))
