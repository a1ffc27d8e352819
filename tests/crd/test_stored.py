"""What a cluster has stored stays valid under today's schema, and means what it meant.

The server of this suite begins with the schema of the first chart, takes the objects in
`stored/objects.yaml`, and is then upgraded (conftest.py).
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_core.heartbeat import Mode
from onggi_operator.lifecycle import WarmUntil
from onggi_operator.placement import Rebalance
from onggi_operator.pool import Configure, EngineKind, Medium, UpdatePolicy, read_pool

STORED = Path(__file__).parent / "stored"
OBJECTS = list(yaml.safe_load_all((STORED / "objects.yaml").read_text()))
POOLS = "/apis/onggi.dev/v1alpha1/namespaces/of-before/kvcachepools"
MERGE = "application/merge-patch+json"
NAMES = [body["metadata"]["name"] for body in OBJECTS]


@pytest.mark.cluster
@pytest.mark.parametrize("name", NAMES)
def test_an_object_of_before_is_read_with_the_defaults_of_today(server: Any, name: str) -> None:
    pool = read_pool(server.request("GET", f"{POOLS}/{name}"))
    assert pool.engine.kind is EngineKind.VLLM
    assert pool.engine.configure is Configure.AUTO
    assert pool.placement.rebalance is Rebalance.AUTO
    assert pool.injection.update_policy is UpdatePolicy.LATEST
    assert (pool.security.run_as_user, pool.security.group) == (64646, 64646)
    assert not pool.quota.bounds
    assert pool.lifecycle.warm_gate.until is WarmUntil.OFF
    assert (pool.identity.model_revision, pool.identity.tenant) == (None, None)


@pytest.mark.cluster
def test_what_was_set_before_means_the_same(server: Any) -> None:
    pools = {name: read_pool(server.request("GET", f"{POOLS}/{name}")) for name in NAMES}
    assert {name: pool.mode for name, pool in pools.items()} == {
        "bare": Mode.ACTIVE,
        "on-node": Mode.OBSERVE,
        "in-pod": Mode.PAUSED,
    }
    assert pools["bare"].memory.min_bytes == pools["bare"].memory.max_bytes == 2**30
    on_node, in_pod = pools["on-node"], pools["in-pod"]
    assert (on_node.memory.min_bytes, on_node.memory.max_bytes) == (2**29, 17179869184)
    assert on_node.disk
    assert (on_node.disk.max_bytes, on_node.disk.medium) == (20 * 10**9, Medium.HOST_PATH)
    assert on_node.disk.path == "/var/lib/onggi"
    assert not on_node.injection.enabled
    assert (on_node.injection.cpu_request, on_node.injection.cpu_limit) == ("1", "2")
    assert in_pod.disk
    assert in_pod.disk.medium is Medium.EMPTY_DIR
    assert in_pod.memory.max_bytes == 3 * 2**29


@pytest.mark.cluster
@pytest.mark.parametrize("name", NAMES)
def test_an_object_of_before_can_be_written_back_and_changed(server: Any, name: str) -> None:
    body = server.request("GET", f"{POOLS}/{name}")
    again = server.request("PUT", f"{POOLS}/{name}?dryRun=All", body)
    assert again["spec"] == body["spec"]
    changed = server.request(
        "PATCH", f"{POOLS}/{name}?dryRun=All", {"spec": {"mode": "Paused"}}, kind=MERGE
    )
    assert changed["spec"] == {**body["spec"], "mode": "Paused"}


@pytest.mark.cluster
@pytest.mark.parametrize("body", OBJECTS, ids=NAMES)
def test_a_manifest_of_before_can_be_applied_anew(server: Any, body: dict[str, Any]) -> None:
    """What people keep in their repositories is older than any cluster."""
    fresh = copy.deepcopy(body)
    fresh["metadata"]["name"] += "-again"
    read_pool(server.request("POST", f"{POOLS}?dryRun=All", fresh))


@pytest.mark.cluster
def test_a_status_of_before_is_kept_until_the_operator_writes_anew(server: Any) -> None:
    """The conditions of the first version are other ones than today's."""
    status = server.request("GET", f"{POOLS}/bare")["status"]
    assert [one["type"] for one in status["conditions"]] == [
        "Accepted", "Injected", "Ready", "Uniform",
    ]  # fmt: skip
    assert status["tokensSaved"] == 1200


def test_nothing_that_the_first_schema_let_in_is_refused_by_its_shape(crd: dict[str, Any]) -> None:
    before = yaml.safe_load((STORED / "kvcachepools.yaml").read_text())
    old, new = (one["spec"]["versions"][0] for one in (before, crd))
    assert (old["name"], new["name"], new["served"], new["storage"]) == (
        "v1alpha1", "v1alpha1", True, True,
    )  # fmt: skip
    schemas = (one["schema"]["openAPIV3Schema"] for one in (old, new))
    assert list(breaks(*schemas, "")) == []


def breaks(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[str]:
    """Where the new schema is narrower than the old one."""
    for key in ("type", "format", "pattern", "x-kubernetes-int-or-string", "anyOf"):
        if old.get(key) != new.get(key):
            yield f"{path}: {key} was {old.get(key)}, is {new.get(key)}"
    for key, narrower in (("maxLength", -1), ("maxItems", -1), ("maximum", -1), ("minimum", 1)):
        if key in new and (key not in old or (new[key] - old[key]) * narrower > 0):
            yield f"{path}: {key} was {old.get(key)}, is {new[key]}"
    if missing := set(old.get("enum", ())) - set(new.get("enum", old.get("enum", ()))):
        yield f"{path}: {missing} may not be said any more"
    children = new.get("properties", {})
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        yield f"{path}: {name} must be said now"
    for name, child in old.get("properties", {}).items():
        if name in children:
            yield from breaks(child, children[name], f"{path}.{name}")
        else:
            yield f"{path}.{name} is gone, and would be dropped without a word"
    if "items" in old:
        yield from breaks(old["items"], new["items"], f"{path}[]")


def test_a_narrower_schema_is_found() -> None:
    """The check itself: each kind of break."""
    text = {"type": "string", "maxLength": 8}
    old = {"properties": {"a": text, "b": {"enum": ["x", "y"]}, "c": {}}}
    new = {"required": ["a"], "properties": {"a": {**text, "maxLength": 4}, "b": {"enum": ["x"]}}}
    assert sorted(breaks(old, new, "spec")) == [
        "spec.a: maxLength was 8, is 4",
        "spec.b: {'y'} may not be said any more",
        "spec.c is gone, and would be dropped without a word",
        "spec: a must be said now",
    ]
