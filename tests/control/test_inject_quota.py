"""A namespace's quota: whoever fits without an agent must not be refused because of it."""

from typing import Any

import pytest

from onggi_operator.inject.usage import usage_of


def quota(kit: Any, hard: dict[str, str], used: dict[str, str], **spec: Any) -> Any:
    body = {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }
    return kit.read_quota(body)


FIXED = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "1", "memory": "4Gi"}}


@pytest.mark.parametrize(
    ("hard", "used", "message"),
    [
        (
            {"limits.memory": "8Gi"},
            {"limits.memory": "3Gi"},
            "the pod with its agent needs 5.1Gi of limits.memory, and 5Gi are left"
            " (ResourceQuota team)",
        ),
        (
            {"memory": "8Gi"},
            {"memory": "4Gi"},
            "the pod with its agent needs 5.1Gi of memory, and 4Gi are left (ResourceQuota team)",
        ),
        (
            {"requests.cpu": "4"},
            {"requests.cpu": "3"},
            "the pod with its agent needs 2 of requests.cpu, and 1 are left (ResourceQuota team)",
        ),
    ],
)
def test_a_pod_that_fits_only_without_an_agent_goes_without_one(
    kit: Any, hard: dict[str, str], used: dict[str, str], message: str
) -> None:
    quotas = (quota(kit, hard, used),)
    assert kit.skipped(kit.pod(kit.engine(resources=FIXED)), quotas=quotas) == ("Quota", message)


@pytest.mark.parametrize(
    "used",
    [{"limits.memory": "0"}, {"limits.memory": "7Gi"}, {}],
    ids=["room for both", "room for neither", "not counted yet"],
)
def test_an_agent_that_makes_no_difference_is_injected(kit: Any, used: dict[str, str]) -> None:
    quotas = (quota(kit, {"limits.memory": "8Gi", "pods": "4"}, used),)
    kit.inject(kit.pod(kit.engine(resources=FIXED)), quotas=quotas)


def test_quotas_of_best_effort_pods_are_left_behind(kit: Any) -> None:
    """With an agent, which names its resources, the pod is no longer one of them."""
    quotas = (quota(kit, {"pods": "0"}, {"pods": "0"}, scopes=["BestEffort"]),)
    kit.inject(kit.pod(), quotas=quotas)


def test_a_pod_that_an_agent_brings_under_a_quota_must_name_what_that_wants(kit: Any) -> None:
    scoped = {"matchExpressions": [{"scopeName": "NotBestEffort", "operator": "Exists"}]}
    quotas = (quota(kit, {"limits.memory": "8Gi"}, {}, scopeSelector=scoped),)
    assert kit.skipped(kit.pod(), quotas=quotas) == (
        "Quota",
        "with an agent the pod is no longer BestEffort, and container engine would have to set"
        " limits.memory (ResourceQuota team)",
    )
    kit.inject(kit.pod(kit.engine(resources=FIXED)), quotas=quotas)


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        (("In", ["high"]), True),
        (("In", ["low"]), False),
        (("NotIn", ["low"]), True),
        (("Exists", None), True),
        (("DoesNotExist", None), False),
    ],
)
def test_a_quota_bears_on_the_pods_that_it_counts(kit: Any, scope: Any, counted: bool) -> None:
    if isinstance(scope, tuple):
        operator, values = scope
        one = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        scope = {"scopeSelector": {"matchExpressions": [one]}}
    quotas = (quota(kit, {"limits.memory": "5Gi"}, {}, **scope),)
    body = kit.pod(kit.engine(resources=FIXED), priorityClassName="high")
    if counted:
        assert kit.skipped(body, quotas=quotas)[0] == "Quota"
    else:
        kit.inject(body, quotas=quotas)


def test_a_quantity_beyond_all_sense_bounds_nothing_and_stops_nobody(kit: Any) -> None:
    """The webhook follows the quotas of every namespace: one that somebody wrote for fun must not
    end it for all."""
    found = quota(kit, {"limits.memory": "1e400", "memory": "8Gi"}, {"memory": "0"})
    assert set(found.hard) == {"memory"}
    kit.inject(kit.pod(), quotas=(found,))


def test_a_quota_that_nobody_counted_yet_is_not_kept(kit: Any) -> None:
    assert kit.read_quota({"metadata": {"name": "new"}, "spec": {"hard": {"pods": "1"}}}) is None


def test_a_pod_is_charged_for_what_runs_at_once() -> None:
    """As the API server counts: sidecars beside all that starts after them."""

    def needs(cpu: str, **fields: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    spec = {
        "initContainers": [
            needs("1"),
            needs("100m", restartPolicy="Always"),
            needs("5"),
        ],
        "containers": [needs("2"), needs("500m")],
        "overhead": {"cpu": "10m"},
    }
    usage = {name: float(quantity) for name, quantity in usage_of(spec).items()}
    assert usage == {"requests.cpu": pytest.approx(5.11), "cpu": pytest.approx(5.11)}
