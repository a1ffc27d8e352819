"""AdmissionReviews in and out; and whatever pod comes, the answer adds and never takes away."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.inject.outcome import Injected, Outcome, Untouched
from onggi_operator.webhook.review import NotAReview, answer, read_review


def review(**request: Any) -> dict[str, Any]:
    pod = {"metadata": {"generateName": "chat-6d5f7c-"}, "spec": {"containers": []}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u1", "namespace": "team-a", "object": pod, **request},
    }


def test_namespace_comes_from_the_request_and_the_name_from_what_there_is() -> None:
    """The object's namespace is empty in the request (tumblr/k8s-sidecar-injector#53), and pods
    made by controllers have no name yet (istio/istio#8636)."""
    found = read_review(json.dumps(review()).encode())
    assert (found.namespace, found.name) == ("team-a", "chat-6d5f7c-")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nope",
        b"[" * 100_000,
        json.dumps({**review(), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(review(object=None)).encode(),
        json.dumps(review(object={"metadata": {}})).encode(),
        json.dumps({"apiVersion": "admission.k8s.io/v1"}).encode(),
    ],
)
def test_what_is_no_review_of_a_pod_is_refused(body: bytes) -> None:
    with pytest.raises(NotAReview):
        read_review(body)


def test_an_untouched_pod_is_allowed_without_a_word() -> None:
    found = read_review(json.dumps(review()).encode())
    assert answer(found, Untouched("opted out"))["response"] == {"uid": "u1", "allowed": True}


NAMES = st.sampled_from(["vllm", "proxy", "onggi-agent", "log-agent"])
VARIABLES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["PYTHONPATH", "ONGGI_SOCKET", "VLLM_PLUGINS", "A"])},
        optional={
            "value": st.sampled_from(["", "/app", "/opt/onggi:/app", "onggi", "$(A)"]),
            "valueFrom": st.just({"fieldRef": {"fieldPath": "metadata.name"}}),
        },
    ),
    max_size=3,
)
MOUNTS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["data", "onggi-run"]),
            "mountPath": st.sampled_from(["/data", "/run", "/run/onggi", "/opt/onggi/x", "/"]),
        }
    ),
    max_size=2,
)
CONTAINERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": NAMES, "image": st.sampled_from(["vllm/vllm-openai:1", "envoy", ""])},
    optional={
        "env": st.none() | VARIABLES,
        "volumeMounts": st.none() | MOUNTS,
        "command": st.none()
        | st.lists(st.sampled_from(["sh", "vllm serve", "--kv-transfer-config"])),
        "resources": st.sampled_from(
            [None, {}, {"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": 1}}]
        ),
    },
)
PODS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {
                "annotations": st.dictionaries(
                    st.sampled_from(["onggi.dev/container", "onggi.dev/disk", "onggi.dev/memory"]),
                    st.sampled_from(["vllm", "0", "512Mi", "lots"]),
                    max_size=1,
                ).map(lambda found: {"onggi.dev/pool": "main", **found})
            },
            optional={"labels": st.none() | st.just({"app": "x"})},
        ),
        "spec": st.fixed_dictionaries(
            {
                "containers": st.lists(
                    CONTAINERS, min_size=1, max_size=3, unique_by=lambda c: str(c["name"])
                )
            },
            optional={
                "initContainers": st.none() | st.lists(CONTAINERS, max_size=1),
                "volumes": st.none() | st.just([{"name": "data", "emptyDir": {}}]),
                "securityContext": st.sampled_from(
                    [None, {}, {"fsGroup": 1}, {"supplementalGroups": [1]}]
                ),
                "hostNetwork": st.booleans(),
            },
        ),
    }
)


@given(body=PODS)
def test_whatever_pod_comes_the_answer_only_adds(kit: Any, body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    outcome: Outcome = kit.plan(body, disk=kit.EMPTY_DIR)
    assert body == before
    if not isinstance(outcome, Injected):
        return
    after = kit.patched(body, outcome)
    old, new = before["spec"], after["spec"]
    assert new["initContainers"][2:] == (old.get("initContainers") or [])
    assert new["volumes"][: len(old.get("volumes") or ())] == (old.get("volumes") or [])
    wired = [
        i
        for i, pair in enumerate(zip(old["containers"], new["containers"], strict=True))
        if pair[0] != pair[1]
    ]
    assert len(wired) == 1
    _only_grew(old["containers"][wired[0]], new["containers"][wired[0]])
    assert isinstance(kit.plan(after, disk=kit.EMPTY_DIR), Untouched)


def _only_grew(old: dict[str, Any], new: dict[str, Any]) -> None:
    grown = {"env", "volumeMounts"}
    assert {k: v for k, v in old.items() if k not in grown} == {
        k: v for k, v in new.items() if k not in grown
    }
    mounts = old.get("volumeMounts") or []
    assert new["volumeMounts"][: len(mounts)] == mounts
    for mine, theirs in zip(old.get("env") or [], new["env"], strict=False):
        assert mine["name"] == theirs["name"]
        assert theirs.get("value", "").endswith(mine.get("value", ""))
    values = {entry["name"]: entry.get("value") for entry in new["env"]}
    assert "/opt/onggi" in values["PYTHONPATH"].split(":")
    assert values["ONGGI_SOCKET"] == "/run/onggi/agent.sock"
