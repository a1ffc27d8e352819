"""KVCacheNode against a real API server: what a bare one says, what it takes, what it refuses."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
NODES = "/apis/onggi.dev/v1alpha1/kvcachenodes"
MERGE = "application/merge-patch+json"
NUMBERS = itertools.count()


def created(server: Any, **spec: Any) -> Any:
    body = {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCacheNode",
        "metadata": {"name": f"node-{next(NUMBERS)}"},
        **({"spec": spec} if spec else {}),
    }
    return server.request("POST", NODES, body)


def grant(**changes: Any) -> dict[str, Any]:
    one = {
        "podUID": "u1",
        "namespace": "team-a",
        "pod": "chat-0",
        "pool": "chat",
        "memoryBytes": 2**30,
        "diskBytes": 0,
        "since": "2026-01-01T00:00:00Z",
    }
    return {**one, **changes}


def test_a_node_that_nobody_has_written_to_offers_nothing_and_says_so(server: Any) -> None:
    made = created(server)
    assert made["spec"] == {"offer": {}}
    table = server.table(f"{NODES}/{made['metadata']['name']}")
    assert table[:-1] == [
        ("Name", made["metadata"]["name"]), ("Agents", None), ("Host", "-"), ("Disk", "-"),
        ("Used", "-"), ("Moves", "-"),
    ]  # fmt: skip


@pytest.mark.parametrize("memory", [0, "64Gi", "1.5Gi", 2**36])
def test_an_offer_is_a_quantity(server: Any, memory: Any) -> None:
    assert created(server, offer={"memory": memory})["spec"]["offer"] == {"memory": memory}


@pytest.mark.parametrize("memory", ["64GB", "-1", -1, "most", ""])
def test_an_offer_that_is_none_is_told_in_words(
    server: Any, refused: type[Exception], memory: Any
) -> None:
    with pytest.raises(refused) as answer:
        created(server, offer={"memory": memory})
    assert "spec.offer.memory: " in str(answer.value)
    assert (
        "must be a Kubernetes quantity of 0 or more, such as 64Gi or 64G (not 64GB);"
        f' is "{memory}"' in str(answer.value)
    )


def test_the_status_keeps_everything_that_the_operator_writes(server: Any) -> None:
    status = {
        "observedGeneration": 1,
        "nodeUID": "n1",
        "capacity": {"memoryBytes": 2**36, "diskBytes": 2**40},
        "offered": {"memoryBytes": 2**34},
        "granted": {"memoryBytes": 2**30},
        "grants": [grant(), grant(podUID="u2", pod="b")],
        "measured": {
            "agents": 1, "heldMemoryBytes": 2**30, "heldDiskBytes": 0,
            "usedMemoryBytes": 2**29, "usedDiskBytes": 0,
        },
        "moves": [
            {
                "podUID": "u1", "namespace": "team-a", "pod": "chat-0", "fromBytes": 2**30,
                "toBytes": 2**29, "reason": "LeastValue", "message": "lose 3 hits a minute",
                "dryRun": True,
            },
        ],
        "display": {"host": "1Gi/16Gi", "disk": "512Gi", "used": "512Mi", "moves": "1"},
    }  # fmt: skip
    name = created(server)["metadata"]["name"]
    answer = server.request("PATCH", f"{NODES}/{name}/status", {"status": status}, kind=MERGE)
    assert answer["status"] == status
    table = server.table(f"{NODES}/{name}")
    assert table[1:-1] == [
        ("Agents", 1), ("Host", "1Gi/16Gi"), ("Disk", "512Gi"), ("Used", "512Mi"),
        ("Moves", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ([grant(), grant()], "Duplicate value"),
        ([grant(memoryBytes=-1)], "should be greater than or equal to 0"),
        ([{"podUID": "u1"}], "Required value"),
    ],
)
def test_a_grant_that_cannot_be_is_refused(
    server: Any, refused: type[Exception], grants: list[Any], message: str
) -> None:
    name = created(server)["metadata"]["name"]
    patch = {"status": {"grants": grants}}
    with pytest.raises(refused, match=message):
        server.request("PATCH", f"{NODES}/{name}/status", patch, kind=MERGE)


def test_every_field_of_a_status_is_one_that_the_operator_writes(node_crd: dict[str, Any]) -> None:
    """The API server drops what the schema does not have, and a field that nobody writes is a lie:
    the names in the schema are those in the code."""
    code = (ROOT / "operator/onggi_operator/plan/nodes.py").read_text()
    schema = node_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    named = set(_names(schema))
    written = set(re.findall(r'"([a-z]\w*)"(?::|\] = )', code))
    assert named == written


def _names(schema: dict[str, Any]) -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield name
        yield from _names(child)
    if "items" in schema:
        yield from _names(schema["items"])
