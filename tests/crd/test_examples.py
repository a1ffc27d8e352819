"""Pools that people are given to copy are accepted as they stand, and mean what they say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_operator.pool import read_pool

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
POOLS = "/apis/onggi.dev/v1alpha1/namespaces/team-a/kvcachepools"
FENCED = re.compile(r"```ya?ml\n(.*?)```", re.DOTALL)


def texts() -> Iterator[Any]:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        yield pytest.param(path.read_text(), id=path.name)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for number, text in enumerate(FENCED.findall(path.read_text())):
            yield pytest.param(text, id=f"{path.name}-{number}")
    notes = (ROOT / "charts/onggi/templates/NOTES.txt").read_text()
    (text,) = re.findall(r"<<END\n(.*?)\nEND\n", notes, re.DOTALL)  # a shell ends it there alone
    yield pytest.param(text, id="NOTES.txt")


@pytest.mark.parametrize("text", list(texts()))
def test_an_example_is_accepted_and_read(server: Any, text: str) -> None:
    for body in yaml.safe_load_all(text):
        if not body or body.get("kind") != "KVCachePool":
            continue
        body["metadata"].pop("namespace", None)
        made = server.request("POST", f"{POOLS}?dryRun=All", body)
        pool = read_pool(made)
        assert pool.memory.min_bytes <= pool.memory.max_bytes
        assert (pool.disk is not None) == (len(body["spec"]["tiers"]) == 2)


def test_the_complete_example_has_every_field_at_its_default(server: Any) -> None:
    """It shows no default that is not one; that no field is missing is looked at in tests/tidy."""
    body = yaml.safe_load((ROOT / "examples/pool-complete.yaml").read_text())
    body["metadata"].pop("namespace", None)
    bare = server.request("POST", f"{POOLS}?dryRun=All", {**body, "spec": {}})["spec"]
    mine = said(body["spec"])
    assert {path: mine[path] for path in said(bare)} == said(bare)


def said(value: Any, path: str = "") -> dict[str, Any]:
    """Each scalar of an object, by where it is; a list's items lie over one another."""
    if isinstance(value, dict):
        parts = [said(child, f"{path}.{name}") for name, child in value.items()]
    elif isinstance(value, list):
        parts = [said(child, path) for child in reversed(value)]
    else:
        return {path: value}
    return {where: one for part in parts for where, one in part.items()}
