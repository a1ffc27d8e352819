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
VALUES: Final = {
    "operator.replicas": "1",  # its restarts and counters are watched; one test has two
    "operator.statusIntervalSeconds": "2",
    "operator.heartbeatIntervalSeconds": "1",
    "operator.restartMissed": "true",
    "operator.resizeRequests": "true",  # for pools that ask for it
}
"""Sooner than by default (30 and 5): the tests ask the pool's status after nearly every step."""


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
    helm(
        kubectl, "upgrade", "--install", RELEASE, CHART,
        f"--namespace={NAMESPACE}", "--wait", f"--timeout={INSTALLED_S}s",
        *image_values(IMAGES["agent.image"]).split(),
        *(f"--set={key}={value}" for key, value in VALUES.items()),
        timeout_s=INSTALLED_S,
    )  # fmt: skip


def image_values(agent: str) -> str:
    """Arguments for the images of this tree, with another one of the agent's."""
    values = []
    for key, image in (IMAGES | {"agent.image": agent}).items():
        repository, _, tag = image.rpartition(":")
        values += [f"--set={key}.repository={repository}", f"--set-string={key}.tag={tag}"]
    return " ".join(values)


def uninstall(kubectl: Kubectl) -> None:
    helm(
        kubectl, "uninstall", RELEASE, f"--namespace={NAMESPACE}", "--ignore-not-found",
        "--wait", f"--timeout={INSTALLED_S}s", timeout_s=INSTALLED_S,
    )  # fmt: skip
