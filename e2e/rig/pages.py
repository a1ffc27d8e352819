"""Commands that a page tells its reader to type, typed."""

from __future__ import annotations

import os
from typing import Final

from rig.kubectl import COMMAND_S, Kubectl, program, run
from rig.workloads import ROOT

PAGE: Final = ROOT / "docs/operator.md"
MARK: Final = "    "
CHART: Final = "charts/onggi"
"""As the page writes it: a reader stands in the repository's root."""


def commands(heading: str) -> list[str]:
    """The lines set as code under a heading of the page. KeyError if there are none."""
    sections = PAGE.read_text().split("\n## ")
    found = {one.splitlines()[0]: one.splitlines()[1:] for one in sections}
    lines = [line.removeprefix(MARK) for line in found[heading] if line.startswith(MARK)]
    if not lines:
        raise KeyError(heading)
    return lines


def typed(kubectl: Kubectl, line: str, more: str = "", timeout_s: float = COMMAND_S) -> str:
    """What a line says when a shell runs it. `more` is added to it: what this cluster's images
    need. Raises Refused."""
    path = ":".join({os.path.dirname(program(name)): None for name in ("kubectl", "helm")})
    script = f"export PATH={path}:$PATH KUBECONFIG={kubectl.kubeconfig}; cd {ROOT}; {line} {more}"
    return run("bash", "-euc", script, timeout_s=timeout_s + 10)
