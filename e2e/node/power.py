"""Ends nodes, and everything an earlier run left, however it ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

from node import cgroups, network
from node.machine import Node, booted, known
from node.places import CGROUP, HOST_LINK, MADE, RUN
from node.shell import Failed, wait_for

END_S = 20
"""Killing a pid namespace waits for each of its processes; an engine frees its pages slowly."""


def end(node: Node, *, cut: bool) -> None:
    """End all of the node: with its first process every other goes, and with them mounts, links
    and namespaces. Cut first, its peers see silence instead of closed connections."""
    pid = node.pid()
    if pid is None:
        return
    # A connection that cannot be closed in order holds a dead network namespace for about 100 s.
    script = "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries"
    if cut:
        network.cut(node)
    else:
        script += "; grep -q onggi-node-boot /proc/1/cmdline && kill -KILL -1; sleep 0.3"
    node.try_sh(script)
    _kill(pid)
    wait_for(f"end of {node.name}", lambda: node.pid() is None, END_S)
    cgroups.remove(f"{CGROUP}/{node.name}")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def refuse_foreign() -> None:
    """Raise Failed if nodes of another state folder live on this machine."""
    others = {folder: pids for folder, pids in booted().items() if folder.parent != RUN}
    if others:
        named = ", ".join(f"{folder} (pid {pids[0]})" for folder, pids in others.items())
        raise Failed(f"another cluster is up, and there can be one at a time: {named}")


def wipe() -> None:
    """End every node and remove all that a run left: processes, links, mounts, cgroups, folders.

    Trusts no file of the run: it may have been killed at any point, or its folder deleted while
    its nodes lived on.
    """
    refuse_foreign()
    for node in reversed(known()):
        end(node, cut=False)
    _end_unnamed()
    if Path("/sys/class/net", HOST_LINK).exists():
        network.delete_host_link()  # else it goes a moment later, with node1's namespace
    cgroups.remove(CGROUP)
    _refuse_mounts()
    _remove_mount_points()
    shutil.rmtree(RUN, ignore_errors=True)
    if RUN.exists():
        shutil.rmtree(RUN)  # a file came while we removed: once more, and say why if it fails


def _end_unnamed() -> None:
    """First processes that no pid file names."""

    def none_left() -> bool:
        pids = [pid for pids in booted().values() for pid in pids]
        for pid in pids:
            _kill(pid)
        return not pids

    wait_for("end of nodes without a pid file", none_left, END_S)


def _refuse_mounts() -> None:
    with open("/proc/self/mounts") as mounts:
        below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{RUN}/")]
    if below:
        raise Failed(f"still mounted, so nothing was deleted: {', '.join(below)}")


def _remove_mount_points() -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(MADE.read_text().split(), key=len, reverse=True):
            with contextlib.suppress(OSError):  # somebody else put something there: theirs now
                os.rmdir(path)
        MADE.unlink()
