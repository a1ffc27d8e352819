"""The webhook's certificate expires, since nobody could renew it: pods start all the same, the pool
names them, and once it is renewed the watchdog has them made again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from rig import install
from rig.certificates import SECRET, served_until, short_lived
from rig.kubectl import Kubectl, Object, annotation, names_of, until
from rig.pool import Pool
from rig.reach import kill_container
from rig.workloads import sleeper, sleepers
from waits import CONTAINER_BACK_S, INJECTING_S, POD_RUNNING_S, RENEWED_S, RESTARTED_S

LIFE = timedelta(seconds=12)
"""Long enough for a webhook that starts anew to serve with it, and over when all of them do."""
STATUS = "onggi.dev/status"


def may(there: Kubectl, *verbs: str) -> None:
    """What webhook and operator may do with the Secret."""
    change = [{"op": "replace", "path": "/rules/0/verbs", "value": list(verbs)}]
    there("patch", "role", SECRET, "--type=json", "--patch", json.dumps(change))


def webhooks(there: Kubectl) -> list[Object]:
    return there.items("pods", "app.kubernetes.io/component=webhook")


@pytest.fixture
def expired(kubectl: Kubectl, pool: Pool) -> Iterator[None]:
    there = kubectl.elsewhere(install.NAMESPACE)
    may(there, "get")
    end = short_lived(there, LIFE)
    for pod in webhooks(there):
        kill_container(there, pod, "webhook")  # its next life serves what it finds

    def served() -> bool:
        ends = {served_until(there, pod) for pod in webhooks(there)}
        return datetime.now(UTC) > end and ends <= {end, None}

    until("an expired certificate", served, CONTAINER_BACK_S)
    yield
    may(there, "get", "patch")


def test_pods_start_and_are_made_again_when_it_is_renewed(
    kubectl: Kubectl, pool: Pool, expired: None
) -> None:
    there = kubectl.elsewhere(install.NAMESPACE)
    asks = {"onggi.dev/pool": pool.name}
    kubectl.apply(sleeper("late", asks), sleepers("later", asks))

    def started() -> list[Object] | None:
        pods = [*kubectl.items("pods", "app=late"), *kubectl.items("pods", "app=later")]
        ready = len(pods) == 2 and all(pod["status"]["phase"] == "Running" for pod in pods)
        return pods if ready else None

    late, later = until("pods without an agent", started, POD_RUNNING_S)
    for pod in (late, later):
        assert names_of(pod["spec"].get("initContainers")) == []
        assert annotation(pod, STATUS) is None
    names = {pod["metadata"]["name"] for pod in (late, later)}
    status = pool.until("both pods", lambda s: s.get("pods", {}).get("missed") == 2)
    assert {entry["pod"] for entry in status["missed"]} == names

    may(there, "get", "patch")

    def renewed() -> bool:
        ends = [served_until(there, pod) for pod in webhooks(there)]
        return all(end and end > datetime.now(UTC) + timedelta(days=80) for end in ends)

    until("another certificate", renewed, RENEWED_S)
    asked = sleeper("sooner", asks)
    until("injection", lambda: _injected(kubectl.dry_run(asked)), INJECTING_S)
    kubectl.apply(asked)

    def made_again() -> bool:
        pods = kubectl.items("pods", "app=later")
        return [_injected(pod) for pod in pods] == [True]

    until("a pod with an agent", made_again, RESTARTED_S)
    assert kubectl.get("pod", "late")["metadata"]["uid"] == late["metadata"]["uid"]
    status = pool.until("the bare pod alone", lambda s: s["pods"]["missed"] == 1)
    assert [entry["pod"] for entry in status["missed"]] == ["late"]
    for kind, name in (("pod", "late"), ("pod", "sooner"), ("deployment", "later")):
        kubectl.delete(kind, name, POD_RUNNING_S)


def _injected(pod: Object) -> bool:
    return (annotation(pod, STATUS) or "").startswith("injected: ")
