"""Reaching a port of a pod, and killing a container as a crash would."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from typing import Final

from node.machine import named, running
from node.places import SOCKET

from rig.kubectl import EXISTING, Kubectl, Object, program, run

FORWARD_S: Final = 10
_forwards: dict[tuple[str, str, int], tuple[subprocess.Popen[bytes], int]] = {}
"""Port-forwards by namespace, pod and port; ended by `close`."""


def address(kubectl: Kubectl, pod: Object, port: int) -> tuple[str, int]:
    """Host and port at which the pod's port answers from this machine.

    The harness's own cluster has a route to its pods; for any other kubectl carries the bytes.
    """
    if not EXISTING:
        return pod["status"]["podIP"], port
    key = (kubectl.namespace, pod["metadata"]["name"], port)
    process, local = _forwards.get(key, (None, 0))
    if process is None or process.poll() is not None:
        _forwards[key] = process, local = _forward(kubectl, pod["metadata"]["name"], port)
    return "127.0.0.1", local


def _forward(kubectl: Kubectl, pod: str, port: int) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        local: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            program("kubectl"), f"--kubeconfig={kubectl.kubeconfig}",
            f"--namespace={kubectl.namespace}", "port-forward", f"pod/{pod}", f"{local}:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + FORWARD_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", local), 1):
            return process, local
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"no port-forward to {pod}:{port} within {FORWARD_S} s")


def close() -> None:
    for process, _ in _forwards.values():
        process.kill()
        process.wait()
    _forwards.clear()


def kill_container(kubectl: Kubectl, pod: Object, container: str) -> None:
    """SIGKILL to all of a container, as an OOM kill does: no handler runs, nothing is tidied up.

    From inside a container its first process cannot be killed so; on a cluster that is not ours
    the nearest thing is SIGKILL to every other process of it and SIGTERM to that one.
    """
    if EXISTING:
        script = "import os; os.kill(1, 15); os.kill(-1, 9)"
        kubectl.attempt("exec", pod["metadata"]["name"], f"--container={container}", "--",
                        "python3", "-c", script)  # fmt: skip
        return
    states = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    state = next(state for state in states if state["name"] == container)
    task = state["containerID"].removeprefix("containerd://")
    node = named(pod["spec"]["nodeName"])
    run(*node.enter("ctr", "-a", SOCKET, "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", task))


def tag_image(image: str, name: str) -> None:
    """Another name for an image, on every node of the harness's own cluster."""
    ctr = ("ctr", "-a", SOCKET, "-n", "k8s.io", "images", "tag", "--force", image, name)
    for node in running():
        run(*node.enter(*ctr))


def restarts(pod: Object, container: str) -> int:
    states = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    count: int = next(s["restartCount"] for s in states if s["name"] == container)
    return count
