"""docs/migration.md: what takes the place of others' settings is there, under that name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from onggi.connectors.sglang.options import Options as SGLangOptions
from onggi.connectors.vllm.options import Options
from onggi.connectors.vllm.tally import COUNTERS
from onggi_core.variables import OF_ENGINES
from onggi_sidecar.cli import COMMANDS
from onggi_sidecar.config import AgentConfig

ROOT: Final = Path(__file__).resolve().parents[2]
SIDECAR: Final = ROOT / "sidecar/onggi_sidecar"
OF_ENGINES_OWN: Final = {
    *("--block-size", "--kv-events-config", "kv_connector_extra_config", "recompute"),
    *("LLM.reset_prefix_cache(reset_connector=True)", "dynamic"),
    "/hicache/storage-backend/clear",
}
"""Of vLLM and SGLang, which test_vllm_page.py and test_sglang_engine.py give to them."""


def right_hand() -> Iterator[str]:
    for line in (ROOT / "docs/migration.md").read_text().splitlines():
        if line.startswith("| "):
            for cell in line.split(" | ")[1:]:
                yield from re.findall(r"`([^`]+)`", cell)


def of_the_pool() -> set[str]:
    """Fields by their path, each also by the ends of it; and values that a field may have."""
    crd = yaml.safe_load((ROOT / "crds/v1alpha1/kvcachepools.yaml").read_text())
    version = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: set[str] = set()

    def walk(schema: dict[str, Any], path: tuple[str, ...]) -> None:
        found.update(schema.get("enum", ()))
        found.update(".".join(path[at:]) for at in range(len(path)))
        for name, child in schema.get("properties", {}).items():
            listed = child.get("type") == "array"
            walk(child.get("items", child), (*path, f"{name}[]" if listed else name))

    walk(version["properties"]["spec"], ())
    return found | {f"kubectl get {name}" for name in crd["spec"]["names"]["shortNames"]}


@cache
def known() -> set[str]:
    source = "\n".join(file.read_text() for file in SIDECAR.glob("*.py"))
    vllm = {f"vllm:onggi_{name}_total" for name in COUNTERS}
    return {
        *of_the_pool(),
        *AgentConfig.model_fields,
        *(one.name for one in (*fields(Options), *fields(SGLangOptions))),
        *OF_ENGINES,
        *(f"onggi {command}" for command in COMMANDS),
        *re.findall(r'add_get\("(/\w+)"', source),
        *re.findall(r'(?:event|warn|error)\(\s*"(\w+)"', source),
        *re.findall(r"`(onggi_\w+)`", (ROOT / "docs/metrics.md").read_text()),
        *vllm,
        *("_" + name.rpartition("_tokens_")[2] for name in vllm if "_tokens_" in name),
        *OF_ENGINES_OWN,
    }


def test_the_page_names_many() -> None:
    assert len(set(right_hand())) > 40


@pytest.mark.parametrize("name", sorted(set(right_hand())))
def test_what_takes_a_settings_place_is_there(name: str) -> None:
    field, _, value = name.partition(": ")
    assert field in known()
    assert not value or re.fullmatch(r"\d+Gi|\d+GiB", value) or value in known() | {"worth"}
