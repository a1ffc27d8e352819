"""A node's first process: makes the namespaces, sets them up, then reaps orphans for ever.

It ends only by a kill from outside, and the kernel then ends everything in its namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from node import cgroups
from node.machine import BOOT_WORD, Node
from node.places import MADE
from node.shell import call, wait_for

NEW_NAMESPACES: Final = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET."""
BOOT_S: Final = 20

SYSCTLS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What a kubelet would write for the whole machine: each node sees files of its own instead,
which hold the values it wants."""


def start(node: Node) -> None:
    """Start the node's namespaces; it has no network yet (network.join)."""
    for folder in ("out", "pids", "sys", "containerd", *node.own.values()):
        (node.dir / folder).mkdir(parents=True, exist_ok=True)
    for path in node.own:
        _make_mount_point(Path(path))
    (node.dir / "ready").unlink(missing_ok=True)
    with open(node.dir / "out" / "boot.log", "ab") as log:  # a pipe would never close
        call(
            sys.executable, "-m", "node", BOOT_WORD, node.dir, node.number,
            output=log, detached=True,
        )  # fmt: skip
    hint = f"See {node.dir}/out/boot.log"
    wait_for(f"boot of {node.name}", (node.dir / "ready").exists, BOOT_S, hint)
    cgroups.make(node.name)


def _make_mount_point(path: Path) -> None:
    """A mount needs a folder to lie on; what is made here is noted first, so that it goes again."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if not missing:
        return
    with open(MADE, "a") as made:
        made.writelines(f"{folder}\n" for folder in missing)
    path.mkdir(parents=True, exist_ok=True)


def main(folder: Path, number: int) -> None:
    """Runs in the process that `start` began; returns in the parent, never in the child."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACES):
        raise OSError(ctypes.get_errno(), "unshare")
    child = os.fork()
    if child:
        (folder / "pid").write_text(str(child))
        return
    os.setsid()
    node = Node(number)
    socket.sethostname(node.name)
    _mount_everything(node)
    call("ip", "link", "set", "lo", "up")
    _set("net/ipv4/ip_forward", 1)
    _set("net/bridge/bridge-nf-call-iptables", 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (folder / "ready").touch()
    _reap_for_ever()


def _mount(*argv: str | Path) -> None:
    call("mount", *argv)


def _mount_everything(node: Node) -> None:
    aside = node.dir / "sys"
    _mount("--make-rprivate", "/")
    _mount("-t", "proc", "proc", "/proc")
    if os.path.ismount("/sys/fs/cgroup"):
        # A new sysfs shows this network namespace; the cgroup mounts move onto it.
        _mount("--move", "/sys/fs/cgroup", aside)
        _mount("-t", "sysfs", "sysfs", "/sys")
        _mount("--move", aside, "/sys/fs/cgroup")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    for path, name in node.own.items():
        _mount("--bind", node.dir / name, path)
    for key, value in SYSCTLS.items():
        if os.path.exists(f"/proc/sys/{key}"):
            file = aside / key.replace("/", ".")
            file.write_text(f"{value}\n")
            _mount("--bind", file, f"/proc/sys/{key}")
    _mount("--make-rshared", "/")  # mounts that the kubelet makes must reach containers


def _set(key: str, value: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # br_netfilter may not be loaded
        Path("/proc/sys", key).write_text(str(value))


def _reap_for_ever() -> None:
    """Orphaned shims would stay as zombies under a pid 1 that does not reap."""
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
