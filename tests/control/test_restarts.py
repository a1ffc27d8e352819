"""Which missed pods are made again."""

from typing import Any

import pytest

from onggi_operator.observe.pods import PodView
from onggi_operator.plan.restarts import AGAIN_S, plan_restarts
from onggi_operator.pool import read_pool

NOW_S = 1000.0
OWNER = ("ReplicaSet", "chat-1")
LATER = "2026-01-01T02:00:00Z"


@pytest.fixture
def restarts(status_kit: Any) -> Any:
    pools = {("team-a", "chat"): read_pool(status_kit.body())}

    def planned(*pods: PodView, tried_s: Any = None) -> list[str]:
        found = plan_restarts(pods, pools, tried_s or {}, now_s=NOW_S)
        return [one.pod for one in found]

    return planned


@pytest.fixture
def missed(status_kit: Any) -> Any:
    def made(name: str = "one", **changes: Any) -> PodView:
        found: PodView = status_kit.pod(name, None, **{"owner": OWNER, **changes})
        return found

    return made


@pytest.fixture
def injected(status_kit: Any) -> PodView:
    found: PodView = status_kit.pod("later", created=LATER)
    return found


def test_a_missed_pod_is_made_again_once_the_webhook_answers(
    restarts: Any, missed: Any, injected: PodView
) -> None:
    assert restarts(missed()) == [], "the next one might be missed as well"
    assert restarts(missed(), injected) == ["one"]


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": None},
        {"owner": ("Job", "train")},
        {"owner": ("DaemonSet", "each")},
        {"deleting": True},
        {"pool": "gone"},
    ],
)
def test_who_would_not_come_back_with_an_agent_is_left_alone(
    restarts: Any, missed: Any, injected: PodView, changes: Any
) -> None:
    assert restarts(missed(**changes), injected) == []


def test_one_at_a_time_and_each_controller_waits_for_its_last(
    restarts: Any, missed: Any, injected: PodView
) -> None:
    pods = (missed("one"), missed("two"), missed("three", owner=("StatefulSet", "x")), injected)
    assert len(restarts(*pods)) == 1
    tried = {("team-a", *OWNER): NOW_S - AGAIN_S + 1}
    assert restarts(*pods, tried_s=tried) == ["three"]
    assert restarts(missed(), injected, tried_s=tried) == []
