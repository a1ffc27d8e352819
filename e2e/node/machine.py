"""One node: its names and addresses, its first process, and a way in."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from node.places import LAN, NODES_MAX, PODS, RUN, SETTINGS
from node.shell import Failed, attempt, call, words

BOOT_WORD: Final = "onggi-node-boot"
"""Marks a node's first process among all of the machine's, with its folder as the next word."""


def settings() -> dict[str, Any]:
    """What the first `up` of this cluster was told; empty when there is none."""
    try:
        found: dict[str, Any] = json.loads(SETTINGS.read_text())
    except FileNotFoundError:
        return {}
    return found


def booted() -> dict[Path, list[int]]:
    """The first processes of all nodes on this machine, by the node's folder.

    Read from the process table and not from pid files: a run that was killed between a start and
    the writing of its pid file leaves a process that no file names.
    """
    found: dict[Path, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile
            parts = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            if BOOT_WORD.encode() in parts[:-2]:
                at = parts.index(BOOT_WORD.encode())
                found.setdefault(Path(parts[at + 1].decode()), []).append(int(entry))
    return found


class Node:
    """Node `number`, alive or not; equal numbers mean the same node."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"node{number}"
        self.dir = RUN / self.name
        self.ip = f"{LAN}.{number}"
        self.pods = f"{PODS}.{number}.0/24"
        self.link = "node0" if number == 1 else "eth0"
        # Fixed: neighbours go on using the address they learnt, for up to 30 s.
        self.mac = f"02:00:0a:63:00:{number:02x}"
        self.leads = number == 1

    @cached_property
    def own(self) -> dict[str, str]:
        """Folders of the host that each node has for itself: path -> name in the node's folder.

        A kubelet deletes logs of pods it does not know, registers devices on a fixed path and
        keeps pods by their id; the network plugin keeps its addresses: none may be shared.
        """
        kept = {"/var/log": "log", "/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni"}
        asked = {path: "own" + path.replace("/", "-") for path in settings().get("own", [])}
        return kept | asked

    def pid(self) -> int | None:
        """The host's pid of the node's first process, or None when the node is off."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.dir / "pid").read_text())
            parts = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if BOOT_WORD.encode() in parts and str(self.dir).encode() in parts:
                return pid
        return None

    def enter(self, *argv: object) -> list[str]:
        """The command line that runs `argv` inside the node's namespaces."""
        pid = self.pid()
        if pid is None:
            raise Failed(f"{self.name} is off")
        return [*f"nsenter -t {pid} -m -n -p -u -i --wd=/ --".split(), *words(argv)]

    def sh(self, script: str) -> str:
        return call(*self.enter("sh", "-ec", script)).stdout

    def try_sh(self, script: str) -> subprocess.CompletedProcess[str]:
        return attempt(*self.enter("sh", "-ec", script))


def known() -> list[Node]:
    """The nodes of this cluster, alive or not."""
    return [Node(n) for n in range(1, NODES_MAX + 1) if (RUN / f"node{n}").is_dir()]


def running() -> list[Node]:
    return [node for node in known() if node.pid()]


def named(name: str) -> Node:
    for node in known():
        if node.name == name:
            return node
    there = ", ".join(node.name for node in known()) or "none"
    raise Failed(f"no node {name!r}; there are: {there}")
