"""Monitors and rules against the kinds that the Prometheus operator brings, in a real API server:
a field that these do not have would be dropped without a word, and nothing would be scraped."""

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

pytestmark = pytest.mark.cluster

MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Its CustomResourceDefinitions lie in its sources."""

KINDS: Final = ("servicemonitors", "podmonitors", "prometheusrules")
PATH: Final = "/apis/monitoring.coreos.com/v1/namespaces/default"
STRICT: Final = "?dryRun=All&fieldValidation=Strict"
PARTS: Final = ("serviceMonitor", "podMonitor", "rules")


@pytest.fixture(scope="module")
def definitions() -> list[dict[str, Any]]:
    go = shutil.which("go") or next(
        (str(one) for one in [Path("/usr/local/go/bin/go")] if os.access(one, os.X_OK)), None
    )
    if go is None:
        pytest.skip("no go on this machine, by which the Prometheus operator's kinds are had")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        capture_output=True, text=True, timeout=120, cwd="/", check=False,
    )  # fmt: skip
    if done.returncode:
        told = json.loads(done.stdout or "{}").get("Error") or done.stderr
        pytest.skip(f"the Prometheus operator's sources cannot be had here: {told[:300]}")
    folder = Path(json.loads(done.stdout)["Dir"]) / "example/prometheus-operator-crd"
    files = [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]
    return [yaml.safe_load(file.read_text()) for file in files]


@pytest.fixture(scope="module")
def monitored(server: Any, apiserver: Any, definitions: list[dict[str, Any]]) -> Any:
    for body in definitions:
        server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        apiserver.wait_established(server, body["metadata"]["name"])
    return server


@pytest.fixture(scope="module")
def rendered(render: Any) -> dict[str, dict[str, Any]]:
    found = render(
        "monitoring.labels.release=prom", *(f"monitoring.{part}.enabled=true" for part in PARTS)
    )
    made = {
        f"{one['kind'].lower()}s": one
        for one in found
        if one["apiVersion"] == "monitoring.coreos.com/v1"
    }
    for one in made.values():
        one["metadata"]["namespace"] = "default"
    return made


def test_the_chart_makes_one_of_each_kind(rendered: dict[str, Any]) -> None:
    assert sorted(rendered) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_kinds_take_it_and_keep_every_field(
    monitored: Any, rendered: dict[str, Any], kind: str
) -> None:
    taken = monitored.request("POST", f"{PATH}/{kind}{STRICT}", rendered[kind])
    assert within(rendered[kind]["spec"], taken["spec"])


def within(asked: Any, taken: Any) -> bool:
    """Whether all that was asked for is there; defaults may have come in."""
    if isinstance(asked, dict):
        return all(key in taken and within(one, taken[key]) for key, one in asked.items())
    if isinstance(asked, list):
        return len(asked) == len(taken) and all(map(within, asked, taken))
    return bool(asked == taken)


@pytest.mark.parametrize(
    ("kind", "at", "wrong", "told"),
    [
        ("servicemonitors", ("endpoints", 0), {"honourLabels": True}, "honourLabels"),
        ("podmonitors", ("podMetricsEndpoints", 0), {"interval": "often"}, "interval"),
        ("prometheusrules", ("groups", 0, "rules", 0), {"expr": None}, "expr"),
    ],
)
def test_what_is_wrong_would_be_refused(
    monitored: Any,
    apiserver: Any,
    rendered: dict[str, Any],
    kind: str,
    at: tuple[Any, ...],
    wrong: dict[str, Any],
    told: str,
) -> None:
    """The check itself."""
    body = copy.deepcopy(rendered[kind])
    place = body["spec"]
    for part in at:
        place = place[part]
    place.update(wrong)
    with pytest.raises(apiserver.Refused, match=told):
        monitored.request("POST", f"{PATH}/{kind}{STRICT}", body)
