"""The webhook is away: pods start all the same, and the pool names those it missed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import install
from rig.kubectl import Kubectl, annotation, names_of, until
from rig.pool import Pool
from rig.workloads import sleeper
from waits import INSTALLED_S, POD_RUNNING_S


@pytest.fixture
def webhook_away(kubectl: Kubectl, pool: Pool) -> Iterator[None]:
    there = kubectl.elsewhere(install.NAMESPACE)
    before = there.get("deployment", "onggi-webhook")["spec"]["replicas"]
    there("scale", install.WEBHOOK, "--replicas=0")

    def ended() -> bool:
        pods = there.items("pods")
        return not any(pod["metadata"]["name"].startswith("onggi-webhook-") for pod in pods)

    until("end of the webhook", ended, POD_RUNNING_S)
    yield
    there("scale", install.WEBHOOK, f"--replicas={before}")
    there.rolled_out(install.WEBHOOK, INSTALLED_S)


def test_pods_start_and_the_pool_names_them(
    kubectl: Kubectl, pool: Pool, webhook_away: None
) -> None:
    kubectl.apply(sleeper("missed", {"onggi.dev/pool": "chat"}))

    def starts() -> bool:
        return bool(kubectl.get("pod", "missed")["status"]["phase"] == "Running")

    until("the missed pod's start", starts, POD_RUNNING_S)
    pod = kubectl.get("pod", "missed")
    assert names_of(pod["spec"].get("initContainers")) == []
    assert annotation(pod, "onggi.dev/status") is None
    status = pool.until("the missed pod", lambda s: bool(s.get("missed")))
    assert [entry["pod"] for entry in status["missed"]] == ["missed"]
    assert status["pods"]["missed"] == 1
    kubectl.delete("pod", "missed", POD_RUNNING_S)
    status = pool.until("no missed pod", lambda s: not s.get("missed"))
    assert status["pods"]["missed"] == 0
