"""Onggi in the cluster: installed by its chart, as the README's quick start does it."""

from __future__ import annotations

import os
from typing import Final

from waits import INSTALLED_S

from rig.kubectl import Kubectl, helm
from rig.workloads import ROOT

NAMESPACE: Final = "onggi-system"
RELEASE: Final = "onggi"
WEBHOOK: Final = "deployment/onggi-webhook"
CHART: Final = os.environ.get("E2E_CHART", str(ROOT / "charts" / "onggi"))
IMAGES: Final = {
    "image": os.environ.get("E2E_OPERATOR_IMAGE", "localhost/onggi-operator:dev"),
    "agent.image": os.environ.get("E2E_AGENT_IMAGE", "localhost/onggi-agent:dev"),
}
STATUS_INTERVAL_S: Final = 2
"""Instead of 30: the tests ask the pool's status after nearly every step."""


def install(kubectl: Kubectl) -> None:
    """Into a namespace that enforces Pod Security `restricted`; replaces an earlier one."""
    here = kubectl.elsewhere(NAMESPACE)
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    here.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": enforce},
        }
    )
    values = [f"operator.statusIntervalSeconds={STATUS_INTERVAL_S}"]
    for key, image in IMAGES.items():
        repository, _, tag = image.rpartition(":")
        values += [f"{key}.repository={repository}", f"{key}.tag={tag}"]
    helm(
        kubectl, "upgrade", "--install", RELEASE, CHART,
        f"--namespace={NAMESPACE}", "--wait", f"--timeout={INSTALLED_S}s",
        *(f"--set-string={value}" for value in values if ".tag=" in value),
        *(f"--set={value}" for value in values if ".tag=" not in value),
        timeout_s=INSTALLED_S,
    )  # fmt: skip


def uninstall(kubectl: Kubectl) -> None:
    helm(
        kubectl, "uninstall", RELEASE, f"--namespace={NAMESPACE}", "--ignore-not-found",
        "--wait", f"--timeout={INSTALLED_S}s", timeout_s=INSTALLED_S,
    )  # fmt: skip
