"""`kubectl explain` reads like documentation: every field says what it is, in a sentence."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BIN = Path.home() / ".cache/onggi-node/bin"


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, child
        yield from fields(child, here)
    if "items" in schema:
        yield from fields(schema["items"], path)


@pytest.fixture(params=["crd", "node_crd"])
def schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    return schema_of(request.getfixturevalue(request.param))


def test_every_field_is_described_in_sentences(schema: dict[str, Any]) -> None:
    assert schema["description"].endswith(".")
    told = {path: str(field.get("description", "")).strip() for path, field in fields(schema, "")}
    del told[".metadata"]  # the API server describes it itself, and refuses another's word
    assert [path for path, text in told.items() if not text.endswith((".", ")."))] == []
    assert [path for path, text in told.items() if text and not _begins(text)] == []


def _begins(text: str) -> bool:
    return text[0].isupper() or text.startswith("`")


def test_every_size_and_time_says_its_unit(schema: dict[str, Any]) -> None:
    """A quantity is bytes or cores; a number in a status ends in its unit or counts something."""
    units = ("byte", "core", "percent", "time ", "user id", "group id")
    for path, field in fields(schema["properties"]["spec"], "spec"):
        told = field["description"].lower()
        if field.get("x-kubernetes-int-or-string") or field.get("type") == "integer":
            assert any(unit in told for unit in units), path


def kubectl() -> str | None:
    own = BIN / "kubectl"
    return str(own) if own.is_file() else shutil.which("kubectl")


def explained(server: Any, path: str) -> str:
    tool = kubectl()
    if tool is None:
        pytest.skip("no kubectl on this machine")
    answer = subprocess.run(
        [
            tool, "explain", path, f"--server={server.url}", "--token=admin-token",
            f"--certificate-authority={server.ca_file}", f"--cache-dir={server.folder}/kubectl",
        ],
        capture_output=True, text=True, timeout=60, check=False,
        env={"HOME": str(server.folder), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return " ".join(answer.stdout.split())


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("kvp", ["KIND: KVCachePool", "A cache that the pods of one namespace ask for"]),
        ("kvp.spec.mode", ["ENUM: Active Observe Paused", "Running agents follow a change"]),
        ("kvp.spec.placement", ["interval <string>", "Time between two moves on one node"]),
        ("kvp.spec.tiers.memory.min", ["Bytes of arena that each pod asks of its node"]),
        ("kvp.spec.security.runAsUser", ["<integer>", "User id of Onggi's containers"]),
        ("kvp.status.conditions", ["reason <string> -required-", "One word for programs"]),
        ("kvn.spec.offer.memory", ["Bytes of host memory that agents on this node may be granted"]),
        ("kvn.status.grants", ["What each agent on this node may hold", "memoryBytes <integer>"]),
    ],
)
def test_kubectl_explains(server: Any, path: str, parts: list[str]) -> None:
    text = explained(server, path)
    for part in parts:
        assert part in text, text


@pytest.mark.cluster
def test_short_names_and_the_category_find_both_kinds(server: Any) -> None:
    found = server.request("GET", "/apis/onggi.dev/v1alpha1")["resources"]
    names = {one["kind"]: one for one in found if "/" not in one["name"]}
    assert {kind: one["shortNames"] for kind, one in names.items()} == {
        "KVCachePool": ["kvp"],
        "KVCacheNode": ["kvn"],
    }, json.dumps(found)
    assert all(one["categories"] == ["onggi"] for one in names.values())
    assert {kind: one["namespaced"] for kind, one in names.items()} == {
        "KVCachePool": True,
        "KVCacheNode": False,
    }
