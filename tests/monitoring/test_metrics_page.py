"""docs/metrics.md is the code: every metric with its type and labels, each label with its bound."""

import ast
import re
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scene import CHART

from onggi_core.engine.engine import Engine
from onggi_core.engine.state import Facts
from onggi_core.wire.frame import Op
from onggi_operator.heartbeat.endpoint import STATUSES, HeartbeatServer
from onggi_operator.inject.outcome import SkipReason
from onggi_operator.metrics import PoolMetrics, tell_leading
from onggi_operator.observe.world import POOLS_MAX
from onggi_operator.plan.allocation import Allocation
from onggi_operator.plan.conditions import Type
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.plan.status import plan_status
from onggi_operator.round_times import RoundTimes
from onggi_operator.tenancy import PoolQuota, PoolUse
from onggi_operator.webhook.server import AdmissionServer
from onggi_sidecar.figures import gather_figures
from onggi_sidecar.metrics import ERROR_KINDS, Metrics
from onggi_sidecar.tally import OPS_COUNTED, SAMPLE_EVERY, Tally

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `(onggi_\w+)` \| (\w+) \| ([\w, ]*?) ?\| ", re.MULTILINE)
STRANGE = "no key, pod or text of an error"

Series = dict[str, set[str]]
"""Values by label."""


def exported(text: str) -> dict[str, tuple[str, Series]]:
    """Name (as Prometheus stores it) -> type, and the values of each label."""
    found: dict[str, tuple[str, Series]] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: Series = {}
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            for label, value in sample.labels.items():
                if label != "le":
                    labels.setdefault(label, set()).add(value)
        if not name.endswith("_created"):
            found[name] = (family.type, labels)
    return found


def agent_page() -> str:
    """Every operation and any number beside, faults of every kind and one that nobody knows."""
    tally = Tally(iter(range(10**6)).__next__)
    for kind in (*ERROR_KINDS, STRANGE):
        tally.fault(kind)
    for number in range(OPS_COUNTED + 4):
        for _ in range(SAMPLE_EVERY):
            if (timed := tally.begin(number)) is not None:
                tally.end(timed)
    engine = Engine(Facts(bytes(16), "arena", 0, 0, 4096, 0))
    timings = deque([("read", 0.002), ("write", 0.002)])
    metrics = Metrics(lambda: gather_figures(engine, None, tally, io_deadline_s=1), tally, timings)
    page = metrics.render().decode()
    metrics.close()
    return page


def control_page(kit: Any) -> str:
    world = kit.world(kit.pod("one"), kit.pod("two", kit.SKIPPED))
    world.hear(kit.beat(errors={STRANGE: 1}), now_s=99)
    (pool,) = world.snapshot(now_s=100)
    quota = QuotaShare(PoolQuota(2, 2), PoolUse(1, 1), {}, 1)
    status = plan_status(
        pool,
        now_s=100,
        now="2026-01-01T01:00:10Z",
        node_uids={},
        allocated=Allocation(quota=quota),
    ).whole()
    world.see_pool(kit.body(status=status))
    registry = CollectorRegistry()
    registry.register(PoolMetrics(lambda: world.snapshot(now_s=100), lambda: 100))
    AdmissionServer(None, None, registry)  # type: ignore[arg-type]
    HeartbeatServer(None, None, lambda: 100, registry)  # type: ignore[arg-type]
    RoundTimes(registry)
    tell_leading(lambda: True, registry)
    return generate_latest(registry).decode()


@pytest.fixture(scope="module")
def found(status_kit: Any) -> dict[str, tuple[str, Series]]:
    return exported(agent_page()) | exported(control_page(status_kit))


def test_the_page_has_every_metric_with_its_type_and_labels(
    found: dict[str, tuple[str, Series]],
) -> None:
    told = {
        name: (kind, set(labels.split(", ")) - {""}) for name, kind, labels in ROW.findall(PAGE)
    }
    assert told == {name: (kind, set(labels)) for name, (kind, labels) in found.items()}


def test_every_label_is_bounded_as_the_page_says(found: dict[str, tuple[str, Series]]) -> None:
    _, _, table = PAGE.partition("| label | from | values at most |")
    rows = re.findall(r"^\| ([\w, ]+) \| .* \| (\d+) \|$", table.partition("\n## ")[0], re.M)
    bounds = {label: int(bound) for labels, bound in rows for label in labels.split(", ")}
    assert bounds | {"tier": 2, "direction": 2, "end": 3, "outcome": 3, "state": 5} == bounds
    assert bounds["kind"] == len(ERROR_KINDS)
    assert bounds["op"] == len(Op) + 1
    assert bounds["reason"] == len(SkipReason) + 1
    assert bounds["status"] == len(STATUSES)
    assert bounds["type"] == len(Type)
    assert bounds["namespace"] == bounds["pool"] == POOLS_MAX
    for name, (_, labels) in found.items():
        for label, values in labels.items():
            assert len(values) <= bounds[label], f"{name}, {label}: {values}"


def test_the_pod_monitor_takes_an_agent_that_has_all_series_there_can_be(
    documents: dict[tuple[str, str], dict[str, Any]],
) -> None:
    limit = documents["PodMonitor", "onggi-agents"]["spec"]["sampleLimit"]
    series = sum(not line.startswith("#") for line in agent_page().splitlines())
    assert 250 < series < limit / 2


def test_nothing_that_others_say_becomes_a_label(found: dict[str, tuple[str, Series]]) -> None:
    values = {value for _, labels in found.values() for some in labels.values() for value in some}
    assert STRANGE not in values
    assert not values & {"one", "two", "uid-one", "n1", "0123456789abcdef"}
    assert found["onggi_errors_total"][1]["kind"] == set(ERROR_KINDS)
    assert found["onggi_request_seconds"][1]["op"] <= {op.name.lower() for op in Op} | {"unknown"}


def test_every_kind_of_fault_that_the_code_counts_is_exported() -> None:
    counted = {"disk_late", "disk_queue_full"}  # by figures.py, from what the disk's workers count
    for path in (ROOT / "sidecar").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "fault"
            ):
                words = [
                    one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)
                ]
                assert words, f"{path}:{node.lineno}: a kind that is no word written there"
                counted |= set(words)
    assert counted == set(ERROR_KINDS)
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `onggi_errors_total`")]
    assert set(re.findall(r"`(\w+)`", row)) - {"onggi_errors_total"} == set(ERROR_KINDS)


def test_every_status_that_a_report_is_answered_with_is_counted() -> None:
    text = (ROOT / "operator/onggi_operator/heartbeat/endpoint.py").read_text()
    assert {200, *map(int, re.findall(r"_refused\((\d+)", text))} == set(STATUSES)


def test_the_page_has_every_alert_with_its_wait_and_severity() -> None:
    groups = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    rules = {
        (rule["alert"], rule.get("for", ""), rule["labels"]["severity"])
        for group in groups
        for rule in group["rules"]
    }
    assert set(re.findall(r"^\| `(Onggi\w+)` \| (\w*) ?\| (\w+) \|", PAGE, re.M)) == rules
