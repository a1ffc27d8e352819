"""What is kept of a failure: enough to find its cause after the cluster is gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from rig.kubectl import Kubectl

BUILD: Final = Path(os.environ.get("E2E_OUT") or Path(__file__).resolve().parents[2] / "build/e2e")
LOG_LINES: Final = 2000
"""Of each container and each of its lives: an engine's start is 150."""
SHOWN_LINES: Final = 15
"""Of each container's log in the terminal."""


def collect(kubectl: Kubectl, namespaces: tuple[str, ...], name: str) -> str:
    """Write all there is below build/e2e/NAME; answers the part worth printing at once."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    shown = []
    nodes = _keep(folder / "nodes.txt", kubectl, "get", "nodes,pods,kvp", "-A", "-o", "wide")
    shown.append(nodes)
    for namespace in namespaces:
        here = kubectl.elsewhere(namespace)
        _keep(folder / f"{namespace}.pods.txt", here, "describe", "pods")
        _keep(folder / f"{namespace}.pods.yaml", here, "get", "pods", "-o", "yaml")
        _keep(folder / f"{namespace}.pools.yaml", here, "get", "kvp", "-o", "yaml")
        events = _keep(
            folder / f"{namespace}.events.txt", here, "get", "events", "--sort-by=.lastTimestamp"
        )
        shown.append(_tail(f"events in {namespace}", events))
        shown += _logs(here, folder)
    return "\n".join([*shown, f"evidence: {folder}"])


def _keep(file: Path, kubectl: Kubectl, *argv: str) -> str:
    """Output of a command into a file; a command that fails leaves its complaint there."""
    try:
        done = kubectl.attempt(*argv, timeout_s=30)
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        text = f"{late}\n"
    file.write_text(text)
    return text


def _logs(kubectl: Kubectl, folder: Path) -> list[str]:
    listed = kubectl.attempt(
        "get", "pods", "-o",
        r'jsonpath={range .items[*]}{.metadata.name}{" "}{.spec.initContainers[*].name}{" "}'
        r'{.spec.containers[*].name}{"\n"}{end}',
    )  # fmt: skip
    shown = []
    for line in listed.stdout.splitlines():
        pod, *containers = line.split()
        for container in containers:
            file = folder / f"{kubectl.namespace}.{pod}.{container}.log"
            argv = ("logs", pod, f"--container={container}", f"--tail={LOG_LINES}")
            text = _keep(file, kubectl, *argv)
            _keep(file.with_suffix(".previous.log"), kubectl, *argv, "--previous")
            shown.append(_tail(f"{pod}/{container}", text))
    return shown


def _tail(title: str, text: str) -> str:
    lines = [line for line in text.splitlines() if "/health" not in line][-SHOWN_LINES:]
    return "\n".join([f"--- {title}", *(line[:240] for line in lines)])
