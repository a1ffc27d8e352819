"""Pools of a cluster whose schema is older than the program that reads them."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_operator.inject.outcome import Injected
from onggi_operator.later_fields import completed
from onggi_operator.pool import read_pool

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests/crd/stored"
OBJECTS = list(yaml.safe_load_all((STORED / "objects.yaml").read_text()))
NAMES = [body["metadata"]["name"] for body in OBJECTS]


def schema_of(path: Path) -> dict[str, Any]:
    version = yaml.safe_load(path.read_text())["spec"]["versions"][0]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


FIRST = schema_of(STORED / "kvcachepools.yaml")
TODAY = schema_of(ROOT / "crds/v1alpha1/kvcachepools.yaml")


def with_defaults(given: Any, schema: Mapping[str, Any]) -> Any:
    """What the API server makes of it."""
    if isinstance(given, list):
        return [with_defaults(one, schema["items"]) for one in given]
    if not isinstance(given, dict):
        return given
    filled = dict(given)
    for name, child in schema.get("properties", {}).items():
        if name not in filled and "default" in child:
            filled[name] = child["default"]
        if name in filled:
            filled[name] = with_defaults(filled[name], child)
    return filled


def stored(name: str) -> dict[str, Any]:
    body = copy.deepcopy(OBJECTS[NAMES.index(name)])
    body["metadata"] |= {"namespace": "team-a", "uid": "pool-1", "generation": 1}
    return body


@pytest.mark.parametrize("name", NAMES)
def test_an_object_of_the_oldest_schema_is_read_as_todays_schema_would_serve_it(name: str) -> None:
    """The list of later fields is the schema's, or the two would differ here."""
    body = stored(name)
    assert with_defaults(body["spec"], FIRST) == body["spec"], "as the first schema served it"
    served = with_defaults(body["spec"], TODAY)
    assert served != body["spec"]
    assert completed(body["spec"]) == served
    assert read_pool(body) == read_pool({**body, "spec": served})


@pytest.mark.parametrize("name", NAMES)
def test_what_a_schema_between_the_two_does_not_have_is_filled_in_alone(name: str) -> None:
    """Each leaf is taken away on its own, as a schema that lacks it would do."""
    served = with_defaults(stored(name)["spec"], TODAY)
    later = list(leaves_of(completed(stored(name)["spec"]), stored(name)["spec"]))
    assert ("placement", "scheduling") in later
    for path in later:
        spec = copy.deepcopy(served)
        holder = spec
        for part in path[:-1]:
            holder = holder[part]
        del holder[path[-1]]
        assert completed(spec) == served, path


def leaves_of(full: Any, first: Any) -> Iterator[tuple[str, ...]]:
    for name, value in full.items():
        before = first.get(name) if isinstance(first, dict) else None
        if isinstance(value, dict) and value:
            yield from ((name, *path) for path in leaves_of(value, before))
        elif before is None:
            yield (name,)


def test_what_was_set_is_kept() -> None:
    spec = with_defaults(stored("bare")["spec"], TODAY)
    spec["placement"] = {**spec["placement"], "threshold": 0, "rebalance": "Off"}
    spec["quota"] = {"memory": "8Gi"}
    spec["tiers"][0]["memory"]["hugepages"] = "Off"
    assert completed(spec) == spec


@pytest.mark.parametrize("name", NAMES)
def test_a_newer_webhook_under_the_oldest_schema_skips_nobody(kit: Any, name: str) -> None:
    body = stored(name)
    body["spec"]["injection"]["enabled"] = True
    assert isinstance(kit.plan(kit.pod(), read_pool(body)), Injected)
