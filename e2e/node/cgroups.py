"""A cgroup a node, in every mounted hierarchy, and their removal."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from node.places import CGROUP
from node.shell import wait_for

REMOVAL_S: Final = 20
"""A cgroup is busy until its last process is reaped, which for a killed engine may take seconds."""


def roots() -> list[Path]:
    """The folder of each mounted v1 controller, and of v2."""
    with open("/proc/self/mounts") as mounts:
        fields = [line.split() for line in mounts]
    return [Path(mount[1]) for mount in fields if mount[2] in ("cgroup", "cgroup2")]


def make(node_name: str) -> None:
    for root in roots():
        parent = root
        for part in (CGROUP, node_name):
            folder = parent / part
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(parent, folder)
            _delegate_controllers(parent)
            parent = folder


def _inherit_cpuset(parent: Path, folder: Path) -> None:
    """A new v1 cpuset has no cpu and no memory node: nothing could run in it."""
    for key in ("cpuset.cpus", "cpuset.mems"):
        if (folder / key).exists() and not (folder / key).read_text().strip():
            (folder / key).write_text((parent / key).read_text())


def _delegate_controllers(parent: Path) -> None:
    control = parent / "cgroup.subtree_control"  # v2 only
    if not control.exists():
        return
    for controller in (parent / "cgroup.controllers").read_text().split():
        with contextlib.suppress(
            OSError
        ):  # some may not be delegated; the kubelet names what it lacks
            control.write_text(f"+{controller}")


def remove(group: str) -> None:
    """Remove a group and all below it. Raises Failed if a process still lives in one."""

    def gone() -> bool:
        folders = [
            folder for root in roots() for folder, _, _ in os.walk(root / group, topdown=False)
        ]
        for folder in folders:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not any(os.path.exists(folder) for folder in folders)

    wait_for(f"removal of cgroup {group}", gone, REMOVAL_S)
