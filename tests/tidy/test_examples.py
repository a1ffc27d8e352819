"""Every example is run, or applied, by some test, and says what the code says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from onggi.connectors.sglang import plugin

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def test_each_example_is_taken_up_by_a_test() -> None:
    here = Path(__file__)
    tests = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "e2e").rglob("*.py")]
    words = "\n".join(file.read_text() for file in tests if file != here)
    names = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "__"))}
    assert {name for name in names if name not in words} == set()


def sglang() -> tuple[Any, Any]:
    """Pool and Deployment."""
    pool, deployment = yaml.safe_load_all((EXAMPLES / "sglang.yaml").read_text())
    return pool, deployment


def test_the_sglang_example_has_the_flags_that_the_backend_needs() -> None:
    _, deployment = sglang()
    (engine,) = deployment["spec"]["template"]["spec"]["containers"]
    wanted = [flag.replace("=", " ", 1) for flag in engine["args"]]
    for flag in plugin.FLAGS:
        assert " ".join(shlex.split(flag)) in wanted


def test_the_sglang_example_asks_for_its_own_pool() -> None:
    pool, deployment = sglang()
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {"onggi.dev/pool": pool["metadata"]["name"]}
    assert pool["spec"]["engine"] == {"kind": "SGLang", "configure": "Manual"}


def test_the_complete_pool_has_every_field_of_the_schema() -> None:
    """A field that goes with another choice alone stands there as a comment, `# field: value`."""
    text = (EXAMPLES / "pool-complete.yaml").read_text()
    pool = yaml.safe_load(re.sub(r"(?m)^( +)# (\w+: )", r"\1\2", text))
    crd = yaml.safe_load((ROOT / "crds/v1alpha1/kvcachepools.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    wanted = set(leaves(schema))
    assert len(wanted) > 30
    assert set(written(pool["spec"])) == wanted


def leaves(schema: Any, path: str = "") -> Iterator[str]:
    """Each field of a schema that has none below it."""
    children = schema.get("properties") or schema.get("items", {}).get("properties")
    if not children:
        yield path
    for name, child in (children or {}).items():
        yield from leaves(child, f"{path}.{name}")


def written(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield from written(child, f"{path}.{name}")
    elif isinstance(value, list):
        for child in value:
            yield from written(child, path)
    else:
        yield path
