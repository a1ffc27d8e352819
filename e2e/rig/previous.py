"""The version before, made from today's chart: older by number, by schema and by the agent's image.

Its programs are today's, under the names that an earlier version had: what is tried is what an
installation does to what runs and to what is kept, not what an old program would do.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import yaml

from rig.kubectl import Kubectl
from rig.pool import KIND
from rig.workloads import ROOT

VERSION: Final = "0.0.9"
AGENT: Final = "localhost/onggi-agent:previous"
"""The agent's image under another name: a revision of its own."""
NEWER: Final = "moves"
"""What the status of its pools lacks."""


def chart(folder: Path) -> Path:
    """Written below a folder."""
    made = folder / "onggi"
    shutil.copytree(ROOT / "charts/onggi", made)
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    about |= {"version": VERSION, "appVersion": VERSION}
    (made / "Chart.yaml").write_text(yaml.safe_dump(about))
    schema = made / "files/crds/kvcachepools.yaml"
    crd = yaml.safe_load(schema.read_text())
    del _status(crd)[NEWER]
    schema.write_text(yaml.safe_dump(crd))
    return made


def has_newer(kubectl: Kubectl) -> bool:
    """Whether the cluster's schema is today's."""
    return NEWER in _status(kubectl.get("customresourcedefinition", KIND))


def _status(crd: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    whole = version["schema"]["openAPIV3Schema"]["properties"]
    fields: dict[str, Any] = whole["status"]["properties"]
    return fields
