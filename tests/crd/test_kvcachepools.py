# ruff: noqa: E501 - a case a line, so that the table reads as one
"""KVCachePool against a real API server: every default, and every rule by the message it gives.

A valid object, one thing changed, and the sentence that whoever typed it reads.
"""

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest

from onggi_operator.plan.conditions import Type
from onggi_operator.pool import POLICIES, read_pool

pytestmark = pytest.mark.cluster

POOLS = "/apis/onggi.dev/v1alpha1/namespaces/team-a/kvcachepools"
NUMBERS = itertools.count()


def pool(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": f"pool-{next(NUMBERS)}"},
        "spec": spec,
    }


def memory(**settings: Any) -> dict[str, Any]:
    return {"type": "Memory", "memory": settings}


def disk(**settings: Any) -> dict[str, Any]:
    return {"type": "LocalDisk", "localDisk": settings}


def created(server: Any, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = server.request("POST", POOLS, body)
    return answer


def test_an_empty_spec_becomes_a_working_pool(server: Any) -> None:
    assert created(server, pool())["spec"] == {
        "mode": "Active",
        "engine": {"kind": "vLLM", "configure": "Auto"},
        "identity": {},
        "tiers": [{"type": "Memory", "memory": {"max": "1Gi", "hugepages": "Auto"}}],
        "eviction": {"policy": "Adaptive"},
        "placement": {
            "rebalance": "Auto",
            "interval": "1m",
            "step": "512Mi",
            "threshold": 5,
            "scheduling": "Prefer",
            "resize": "Off",
        },
        "quota": {},
        "lifecycle": {
            "rampUp": "1m",
            "drain": {"deadline": "10s"},
            "warmGate": {"until": "Off", "timeout": "5m"},
        },
        "failure": {"diskDeadline": "2s"},
        "security": {"runAsUser": 64646, "group": 64646},
        "injection": {
            "enabled": True,
            "updatePolicy": "Latest",
            "resources": {"cpuRequest": "100m", "cpuLimit": "1", "memoryOverhead": "192Mi"},
        },
    }


def test_a_pool_nobody_has_looked_at_says_so(server: Any) -> None:
    made = created(server, pool())
    assert {c["type"]: (c["status"], c["reason"]) for c in made["status"]["conditions"]} == (
        dict.fromkeys((kind.value for kind in Type), ("Unknown", "Pending"))
    )
    table = server.table(f"{POOLS}/{made['metadata']['name']}")
    assert table[1:-1] == [
        ("Mode", "Active"), ("Ready", "-"), ("Injected", "-"), ("Host", "-"), ("Disk", "-"),
        ("Hit", "-"), ("Saved", "-"), ("Reason", "Pending"),
    ]  # fmt: skip


def test_a_disk_is_in_the_pod_unless_said_otherwise(server: Any) -> None:
    tiers = created(server, pool(tiers=[memory(), disk(max="4Gi")]))["spec"]["tiers"]
    assert tiers[1] == {"type": "LocalDisk", "localDisk": {"max": "4Gi", "medium": "EmptyDir"}}


@pytest.mark.parametrize(
    "tiers",
    [
        [memory(max=17179869184)],
        [memory(max="16Gi")],
        [memory(max="1.5Gi")],
        [memory(min="64Mi", max="64Mi")],
        [memory(max="16G"), disk(max=2**40, medium="HostPath", path="/var/lib/onggi")],
    ],
)
def test_sizes_may_be_quantities_or_plain_numbers(server: Any, tiers: list[Any]) -> None:
    created(server, pool(tiers=tiers))


@pytest.mark.parametrize(
    "spec",
    [
        {"quota": {"memory": "1Gi"}},
        {"quota": {"memory": "512Mi"}, "tiers": [memory(min="512Mi", max="4Gi")]},
        {"quota": {"memory": 2**40, "disk": "2Gi"}, "tiers": [memory(), disk(max="2Gi")]},
    ],
)
def test_a_quota_has_room_for_one_pod(server: Any, spec: dict[str, Any]) -> None:
    pool_made = read_pool(created(server, pool(**spec)))
    assert pool_made.quota.memory_bytes


TIER = "spec.tiers[0]"
MEMORY_MAX = "spec.tiers[0].memory.max"
DISK = "spec.tiers[1].localDisk"
SECOND = "spec.tiers[1]"
QUANTITY = "must be a Kubernetes quantity such as 512Mi, 4Gi or 4G (not 4GB)"
CLAIM = "claimTemplate belongs to medium ClaimTemplate, and that needs it; {} takes the default StorageClass"
TIME = "must be a time such as 30s, 5m or 1h30m"
ABSOLUTE = "must be an absolute path without a trailing slash, such as /var/lib/onggi"


def on_host(path: str) -> list[dict[str, Any]]:
    return [memory(), disk(max="1Gi", medium="HostPath", path=path)]


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"mode": "active"}, "spec.mode", 'supported values: "Active", "Observe", "Paused"'),
        ({"engine": {"kind": "tgi"}}, "spec.engine.kind", 'supported values: "vLLM", "SGLang", "vllm"'),
        ({"engine": {"container": "A_b"}}, "spec.engine.container", "should match"),
        ({"tiers": []}, "spec.tiers", "at least 1 items"),
        ({"tiers": [disk(max="1Gi")]}, "spec.tiers", "the first tier must be of type Memory: blocks of every other tier are read back through it; is LocalDisk"),
        ({"tiers": [memory(), memory()]}, SECOND, "Duplicate value"),
        ({"tiers": [{"type": "Memory"}]}, TIER, "a tier of type Memory has its settings in memory ({} takes the defaults), and no other tier has that field; type is Memory"),
        ({"tiers": [memory(), {"type": "LocalDisk", "memory": {}, "localDisk": {"max": "1Gi"}}]}, SECOND, "a tier of type Memory has its settings in memory"),
        ({"tiers": [memory(), {"type": "LocalDisk"}]}, SECOND, "a tier of type LocalDisk has its settings in localDisk (at least max), and no other tier has that field; type is LocalDisk"),
        *(({"tiers": [memory(max=size)]}, MEMORY_MAX, f'{QUANTITY}; is "{size}"') for size in ("16GB", "16gb", "lots", "", "1 Gi")),
        *(({"tiers": [memory(max=size)]}, MEMORY_MAX, f'must be at least 64Mi, the unit in which the arena is given out; is "{size}"') for size in (-1, "-1", 0, "0", "63Mi")),
        ({"tiers": [memory(max=1.5)]}, MEMORY_MAX, "must be of type integer"),
        ({"tiers": [memory(min="2Gi", max="1Gi")]}, "spec.tiers[0].memory", "min must not be more than max; min is 2Gi, max is 1Gi"),
        ({"tiers": [memory(min="2Gi")]}, "spec.tiers[0].memory", "min must not be more than max; min is 2Gi, max is 1Gi"),
        ({"tiers": [memory(hugepages="On")]}, "spec.tiers[0].memory.hugepages", 'supported values: "Auto", "Off"'),
        ({"tiers": [memory(min="1GB")]}, "spec.tiers[0].memory.min", QUANTITY),
        ({"tiers": [memory(min="1Mi")]}, "spec.tiers[0].memory.min", "must be at least 64Mi"),
        ({"tiers": [memory(), disk()]}, f"{DISK}.max", "Required value"),
        ({"tiers": [memory(), disk(max="20GB")]}, f"{DISK}.max", 'must be a Kubernetes quantity such as 20Gi or 20G (not 20GB); is "20GB"'),
        ({"tiers": [memory(), disk(max=0)]}, f"{DISK}.max", 'must be at least 64Mi; for no disk leave the tier out; is "0"'),
        ({"tiers": [memory(), disk(max="1Gi", medium="hostPath")]}, f"{DISK}.medium", 'supported values: "EmptyDir", "HostPath", "ClaimTemplate"'),
        ({"tiers": [memory(), disk(max="1Gi", medium="HostPath")]}, DISK, "medium HostPath needs path, the folder on the node, such as /var/lib/onggi"),
        ({"tiers": [memory(), disk(max="1Gi", path="/var/lib/onggi")]}, DISK, "path is only used with medium HostPath; leave it out or set medium to HostPath; path is /var/lib/onggi, medium is EmptyDir"),
        *(({"tiers": on_host(path)}, f"{DISK}.path", f'{ABSOLUTE}; is "{path}"') for path in ("var/lib", "/var/lib/", "/var//lib")),
        *(({"tiers": on_host(path)}, f"{DISK}.path", f'must not contain . or .. parts; is "{path}"') for path in ("/var/../etc", "/var/./x")),
        *(({"tiers": on_host(path)}, f"{DISK}.path", f"must not be in a folder of the node's system; use one of its own, such as /var/lib/onggi; is \"{path}\"") for path in ("/etc", "/var/lib/kubelet/pods")),
        ({"tiers": [memory(), disk(max="1Gi", medium="ClaimTemplate")]}, DISK, f"{CLAIM}; medium is ClaimTemplate"),
        ({"tiers": [memory(), disk(max="1Gi", claimTemplate={})]}, DISK, f"{CLAIM}; medium is EmptyDir"),
        ({"eviction": {"policy": "lru"}}, "spec.eviction.policy", 'supported values: "Adaptive", "LRU", "ARC"'),
        ({"engine": {"configure": "Off"}}, "spec.engine.configure", 'supported values: "Auto", "Manual"'),
        *(({"placement": {"interval": text}}, "spec.placement.interval", f'{TIME}; is "{text}"') for text in ("", "5", "5 m", "1d", "1.5h", "-5s")),
        *(({"placement": {"interval": text}}, "spec.placement.interval", f'must be from 10s to 1h; is "{text}"') for text in ("9s", "61m")),
        ({"lifecycle": {"warmGate": {"until": "Warm"}}}, "spec.lifecycle.warmGate.until", 'supported values: "Off", "DiskAdopted", "RampedUp"'),
        ({"lifecycle": {"warmGate": {"timeout": "soon"}}}, "spec.lifecycle.warmGate.timeout", f'{TIME}; is "soon"'),
        *(({"lifecycle": {"warmGate": {"timeout": text}}}, "spec.lifecycle.warmGate.timeout", f'must be from 10s to 1h; is "{text}"') for text in ("9s", "61m")),
        ({"quota": {"memory": "1GB"}}, "spec.quota.memory", QUANTITY),
        ({"quota": {"disk": "1GB"}, "tiers": [memory(), disk(max="1Gi")]}, "spec.quota.disk", 'must be a Kubernetes quantity such as 20Gi or 20G (not 20GB); is "1GB"'),
        ({"quota": {"memory": "512Mi"}}, "spec", "quota.memory must have room for one pod: at least memory.min, or memory.max where there is no min; is 512Mi"),
        ({"quota": {"memory": "1Gi"}, "tiers": [memory(min="2Gi", max="4Gi")]}, "spec", "quota.memory must have room for one pod"),
        ({"quota": {"memory": -1}}, "spec", "quota.memory must have room for one pod"),
        ({"quota": {"disk": "1Gi"}, "tiers": [memory(), disk(max="2Gi")]}, "spec", "quota.disk must have room for one pod: at least localDisk.max; is 1Gi"),
        ({"quota": {"disk": "1Gi"}}, "spec", "quota.disk is only used with a tier of type LocalDisk; leave it out or add the tier; is 1Gi"),
        ({"placement": {"step": "1GB"}}, "spec.placement.step", QUANTITY),
        ({"placement": {"step": "1Mi"}}, "spec.placement.step", "must be at least 64Mi, the unit in which the arena is given out"),
        *(({"tiers": [memory(max=text)]}, MEMORY_MAX, f'must be at most 1Pi; is "{text}"') for text in ("8Ei", "1e19", "9223372036854775808", "2Pi")),
        ({"tiers": [memory(), disk(max="8Ei")]}, f"{DISK}.max", 'must be at most 1Pi; is "8Ei"'),
        ({"quota": {"memory": "8Ei"}}, "spec.quota.memory", 'must be at most 1Pi; is "8Ei"'),
        ({"quota": {"disk": "8Ei"}, "tiers": [memory(), disk(max="1Gi")]}, "spec.quota.disk", 'must be at most 1Pi; is "8Ei"'),
        ({"placement": {"step": "8Ei"}}, "spec.placement.step", 'must be at most 1Pi; is "8Ei"'),
        ({"injection": {"resources": {"memoryOverhead": "8Ei"}}}, "spec.injection.resources.memoryOverhead", 'must be at most 1Pi; is "8Ei"'),
        ({"placement": {"threshold": 101}}, "spec.placement.threshold", "should be less than or equal to 100"),
        ({"lifecycle": {"rampUp": "soon"}}, "spec.lifecycle.rampUp", f'{TIME}; is "soon"'),
        ({"lifecycle": {"rampUp": "2h"}}, "spec.lifecycle.rampUp", 'must be at most 1h; is "2h"'),
        ({"lifecycle": {"diskRetention": "59m"}, "tiers": on_host("/data")}, "spec.lifecycle.diskRetention", 'must be from 1h to 8760h; is "59m"'),
        ({"lifecycle": {"diskRetention": "7d"}, "tiers": on_host("/data")}, "spec.lifecycle.diskRetention", f'{TIME}; is "7d"'),
        *(({"lifecycle": {"diskRetention": "24h"}, **tiers}, "spec", "lifecycle.diskRetention is only used with a disk of medium HostPath: others go with their pod; is 24h") for tiers in ({}, {"tiers": [memory(), disk(max="1Gi")]})),
        ({"lifecycle": {"drain": {"deadline": "0s"}}}, "spec.lifecycle.drain.deadline", 'must be from 1s to 10m; is "0s"'),
        ({"failure": {"diskDeadline": "11m"}}, "spec.failure.diskDeadline", 'must be from 1s to 10m; is "11m"'),
        ({"security": {"runAsUser": 0}}, "spec.security.runAsUser", "should be greater than or equal to 1"),
        ({"security": {"group": 2**31}}, "spec.security.group", "should be less than or equal to 2147483647"),
        ({"injection": {"updatePolicy": "Pinned"}}, "spec.injection", "updatePolicy Pinned needs revision, the one that the onggi.dev/status of a running pod names"),
        ({"injection": {"revision": "abc"}}, "spec.injection", "revision is only used with updatePolicy Pinned; leave it out or set updatePolicy to Pinned; revision is abc"),
        ({"injection": {"enabled": "yes"}}, "spec.injection.enabled", "must be of type boolean"),
        ({"injection": {"resources": {"cpuRequest": "0"}}}, "spec.injection.resources.cpuRequest", 'must be a number of cores above 0, such as 100m or 1; is "0"'),
        ({"injection": {"resources": {"cpuLimit": "two"}}}, "spec.injection.resources.cpuLimit", 'must be a number of cores above 0, such as 500m or 2; is "two"'),
        ({"injection": {"resources": {"cpuRequest": 2}}}, "spec.injection.resources", "cpuRequest must not be more than cpuLimit; cpuRequest is 2, cpuLimit is 1"),
        ({"injection": {"resources": {"memoryOverhead": "64Mi"}}}, "spec.injection.resources.memoryOverhead", 'must be a Kubernetes quantity of at least 128Mi, what an agent needs beside its arena; is "64Mi"'),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_path_and_in_words(
    server: Any, refused: type[Exception], spec: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(refused) as answer:
        created(server, pool(**copy.deepcopy(spec)))
    text = str(answer.value)
    assert f"{path}: " in text
    assert message in text


def test_every_rule_of_the_schema_has_a_case_here(crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    messages = {rule["message"] for rule in _rules(schema)}
    text = Path(__file__).read_text()
    assert messages
    assert [message for message in sorted(messages) if message not in text] == []


@pytest.mark.parametrize(
    "spec",
    [
        *({"mode": mode} for mode in ("Active", "Observe", "Paused")),
        *({"engine": {"kind": kind}} for kind in ("vLLM", "vllm", "SGLang")),
        *({"engine": {"container": name}} for name in ("a", "a-1", "0" * 63)),
        {"engine": {"configure": "Manual"}},
        {"identity": {"modelRevision": "x" * 128, "tenant": "red team"}},
        {"tiers": [memory(min="64Mi", max="64Mi", hugepages="Off")]},
        {"tiers": [memory(min=67108864, max="0.0625Gi")]},
        {"tiers": [memory(), disk(max="64Mi")]},
        {"tiers": [memory(), disk(max="1Gi", medium="ClaimTemplate", claimTemplate={})]},
        *({"tiers": on_host(path)} for path in ("/a", "/data/..onggi", "/var/lib/onggi/x.y", "/etcetera", "/usrlocal")),
        *({"eviction": {"policy": word}} for word in POLICIES),
        *({"placement": {"interval": text}} for text in ("10s", "1h", "60m", "3600s", "0h0m10s")),
        *({"placement": {"rebalance": word}} for word in ("Auto", "DryRun", "Off")),
        {"placement": {"step": "64Mi", "threshold": 0, "scheduling": "Off"}},
        {"placement": {"step": 2**40, "threshold": 100}},
        *({"lifecycle": {"rampUp": text}} for text in ("0s", "1h")),
        *({"lifecycle": {"drain": {"deadline": text}}} for text in ("1s", "10m")),
        *({"lifecycle": {"diskRetention": text}, "tiers": on_host("/data")} for text in ("1h", "168h", "8760h")),
        *({"failure": {"diskDeadline": text}} for text in ("1s", "10m")),
        *({"security": {"runAsUser": number, "group": number}} for number in (1, 2**31 - 1)),
        {"injection": {"updatePolicy": "Pinned", "revision": "0a1b2c3d4e"}},
        {"injection": {"enabled": False, "agentImage": "a:1"}},
        {"injection": {"resources": {"cpuRequest": 1, "cpuLimit": "1000m", "memoryOverhead": "128Mi"}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_just_right_is_accepted_and_read(server: Any, spec: dict[str, Any]) -> None:
    """The other side of each rule below."""
    made = server.request("POST", f"{POOLS}?dryRun=All", pool(**copy.deepcopy(spec)))
    read_pool(made)


def test_a_field_that_does_not_exist_is_told_to_who_asks_to_be_told(
    server: Any, refused: type[Exception]
) -> None:
    """kubectl does: without, the API server drops what it does not know."""
    body = pool(placement={"rebalanse": "Off"})
    with pytest.raises(refused, match=r"unknown field .spec[.]placement[.]rebalanse"):
        server.request("POST", f"{POOLS}?fieldValidation=Strict", body)


def test_a_message_that_repeats_values_begins_with_what_docs_tell(crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = [rule for rule in _rules(schema) if "messageExpression" in rule]
    assert rules
    for rule in rules:
        told = rule["message"].replace("'", r"\'")
        assert rule["messageExpression"].startswith(f"'{told}; ")


def test_a_rule_of_a_value_shows_it(crd: dict[str, Any]) -> None:
    """What the API server says of it is its type alone."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = list(_rules_of_values(schema))
    assert rules
    assert [rule for rule in rules if "messageExpression" not in rule] == []


def _rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        yield from (r for r in schema.get("x-kubernetes-validations", []) if isinstance(r, dict))
        for value in schema.values():
            yield from _rules(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _rules(value)


def _rules_of_values(schema: Any) -> Any:
    """Of fields that hold one text or number."""
    for child in (*schema.get("properties", {}).values(), schema.get("items")):
        if not isinstance(child, dict):
            continue
        if child.get("type") not in ("object", "array"):
            yield from child.get("x-kubernetes-validations", ())
        yield from _rules_of_values(child)


def test_status_is_written_apart_from_spec_and_the_table_shows_it(server: Any) -> None:
    name = created(server, pool())["metadata"]["name"]
    display = {
        "ready": "1/2", "injected": "2/3", "host": "1Gi/2Gi", "disk": "-",
        "hit": "50%", "saved": "1.2k", "reason": "PodsSkipped",
    }  # fmt: skip
    patch = {"status": {"display": display, "tokensSaved": 1200}, "spec": {"mode": "Paused"}}
    kind = "application/merge-patch+json"
    answer = server.request("PATCH", f"{POOLS}/{name}/status", patch, kind=kind)
    assert answer["spec"]["mode"] == "Active"
    assert answer["status"]["tokensSaved"] == 1200
    table = server.table(f"{POOLS}/{name}")
    assert table[:-1] == [
        ("Name", name), ("Mode", "Active"), ("Ready", "1/2"), ("Injected", "2/3"),
        ("Host", "1Gi/2Gi"), ("Disk", "-"), ("Hit", "50%"), ("Saved", "1.2k"),
        ("Reason", "PodsSkipped"),
    ]  # fmt: skip
