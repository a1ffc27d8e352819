"""Figures that a process shows in the Prometheus text format."""

from __future__ import annotations

import urllib.request
from typing import Final

from rig.kubectl import Kubectl, Object
from rig.reach import address

AGENT_PORT: Final = 9464


def read_figures(text: str) -> dict[str, float]:
    """Each name's sum over all labels, and each line by its full name with labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        found[name] = float(value)
        bare = name.split("{")[0]
        if bare != name:
            found[bare] = found.get(bare, 0.0) + float(value)
    return found


def agent_figures(kubectl: Kubectl, pod: Object) -> dict[str, float]:
    return figures_of(kubectl, pod, AGENT_PORT)


def figures_of(kubectl: Kubectl, pod: Object, at: int) -> dict[str, float]:
    """Raises OSError while nothing answers there."""
    host, port = address(kubectl, pod, at)
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        return read_figures(answer.read().decode())
