"""What the chart renders for a Prometheus: nothing unasked, and selectors that meet what they
should."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene import CHART

from onggi_operator import names

Documents = dict[tuple[str, str], dict[str, Any]]
METRIC = re.compile(r"\bonggi_[a-z_]+\b")


def test_without_being_asked_no_kind_of_the_prometheus_operator_is_made(render: Any) -> None:
    found = render()
    assert not any(one["apiVersion"].startswith("monitoring.coreos.com") for one in found)
    assert ("ConfigMap", "onggi-dashboard") not in {
        (one["kind"], one["metadata"]["name"]) for one in found
    }
    for one in found:
        if one["kind"] == "Deployment":
            assert "annotations" not in one["spec"]["template"]["metadata"]


def test_annotations_for_who_goes_by_them_beside_those_of_ones_own(render: Any) -> None:
    found = render("monitoring.annotations=true", "operator.podAnnotations.mine=yes")
    told = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["annotations"]
        for one in found
        if one["kind"] == "Deployment"
    }
    scrape = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    assert told == {"onggi-webhook": scrape, "onggi-operator": {**scrape, "mine": "yes"}}


def test_services_have_the_port_that_is_scraped(documents: Documents) -> None:
    for name, component in (("onggi-webhook", "webhook"), ("onggi-operator", "operator")):
        service = documents["Service", name]
        assert service["metadata"]["labels"]["app.kubernetes.io/component"] == component
        (port,) = [one for one in service["spec"]["ports"] if one["name"] == "metrics"]
        (container,) = documents["Deployment", name]["spec"]["template"]["spec"]["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert ports[port["targetPort"]] == port["port"] == 8080


def test_monitors_and_rules_carry_the_labels_by_which_they_are_chosen(render: Any) -> None:
    parts = ("serviceMonitor", "podMonitor", "rules")
    found = render(
        "monitoring.labels.release=prom", *(f"monitoring.{part}.enabled=true" for part in parts)
    )
    chosen = [one for one in found if one["apiVersion"] == "monitoring.coreos.com/v1"]
    assert sorted(one["kind"] for one in chosen) == [
        "PodMonitor",
        "PrometheusRule",
        "ServiceMonitor",
    ]
    assert {one["metadata"]["labels"]["release"] for one in chosen} == {"prom"}


def yaml_of_the_page(beginning: str) -> str:
    page = (CHART.parents[1] / "docs/metrics.md").read_text()
    (block,) = [
        one for one in re.findall(r"```yaml\n(.*?)```", page, re.S) if one.startswith(beginning)
    ]
    return str(block)


def test_the_values_on_the_page_make_all_that_they_say(render: Any) -> None:
    values = yaml.safe_load(yaml_of_the_page("monitoring:"))["monitoring"]
    labels = [f"monitoring.labels.{name}={word}" for name, word in values.pop("labels").items()]
    on = [
        f"monitoring.{part}.enabled={str(told['enabled']).lower()}" for part, told in values.items()
    ]
    made = {(one["kind"], one["metadata"]["name"]) for one in render(*labels, *on)}
    assert made >= {
        ("ServiceMonitor", "onggi"),
        ("PodMonitor", "onggi-agents"),
        ("PrometheusRule", "onggi"),
        ("ConfigMap", "onggi-dashboard"),
    }


def test_a_prometheus_takes_the_jobs_on_the_page(promtool: str, tmp_path: Path) -> None:
    """All but the discovery of Kubernetes, which Debian builds Prometheus without."""
    told = yaml.safe_load(yaml_of_the_page("scrape_configs:"))
    (job,) = told["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(told))
    done = subprocess.run(
        [promtool, "check", "config", str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert job["relabel_configs"][0]["regex"] == names.HTTP_PORT_NAME


def test_the_interval_is_as_said(render: Any) -> None:
    found = render("monitoring.podMonitor.enabled=true", "monitoring.podMonitor.interval=10s")
    (monitor,) = [one for one in found if one["kind"] == "PodMonitor"]
    assert monitor["spec"]["podMetricsEndpoints"][0]["interval"] == "10s"


@pytest.mark.parametrize(
    "value",
    [
        "monitoring.podMonitor.interval=often",
        "monitoring.serviceMonitor.enabled=yes",
        "monitoring.alerts.enabled=true",
    ],
)
def test_a_wrong_value_is_refused(render: Any, value: str) -> None:
    with pytest.raises(AssertionError, match="monitoring"):
        render(value)


def test_the_dashboard_is_the_file_and_has_the_sidecars_label(documents: Documents) -> None:
    made = documents["ConfigMap", "onggi-dashboard"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["onggi.json"]) == dashboard()


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CHART / "files/dashboards/onggi.json").read_text())
    return loaded


def test_panels_are_told_apart_lie_apart_and_say_what_they_show() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "$datasource"
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_alerts_and_dashboard_name_only_metrics_that_there_are() -> None:
    rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    asked = [rule["expr"] for group in rules for rule in group["rules"]]
    for panel in dashboard()["panels"]:
        asked += [target["expr"] for target in panel.get("targets", ())]
    page = (CHART.parents[1] / "docs/metrics.md").read_text()
    known = set(re.findall(r"^\| `(onggi_\w+)`", page, re.M))
    named = {
        re.sub("_(bucket|count|sum)$", "", one) for expr in asked for one in METRIC.findall(expr)
    }
    assert named <= known
