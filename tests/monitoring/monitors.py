"""Scrape configurations from monitors, as the Prometheus operator makes them, and the targets that
service discovery would find: both in terms of Kubernetes' labels, so that selectors are put to the
test without a cluster."""

import re
from collections.abc import Mapping
from typing import Any


def meta(kind: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of an object as Prometheus' discovery of Kubernetes spells them."""
    found = {}
    for key, value in labels.items():
        word = re.sub(r"[^a-zA-Z0-9_]", "_", key)
        found[f"__meta_kubernetes_{kind}_label_{word}"] = value
        found[f"__meta_kubernetes_{kind}_labelpresent_{word}"] = "true"
    return found


def service_target(address: str, service: Mapping[str, Any], port: str) -> dict[str, Any]:
    """An endpoint of a Service behind the port of that name."""
    described = service["metadata"]
    labels = {
        "__meta_kubernetes_namespace": described["namespace"],
        "__meta_kubernetes_service_name": described["name"],
        "__meta_kubernetes_endpoint_port_name": port,
        "__meta_kubernetes_pod_name": f"{described['name']}-0",
    }
    return {"targets": [address], "labels": labels | meta("service", described["labels"])}


def pod_target(address: str, pod: Mapping[str, Any], container: str, port: str) -> dict[str, Any]:
    """A port of a pod's container."""
    described = pod["metadata"]
    labels = {
        "__meta_kubernetes_namespace": described["namespace"],
        "__meta_kubernetes_pod_name": described["name"],
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_container_name": container,
        "__meta_kubernetes_pod_container_port_name": port,
    }
    return {"targets": [address], "labels": labels | meta("pod", described["labels"])}


def scrape_services(monitor: Mapping[str, Any], targets: list[dict[str, Any]]) -> dict[str, Any]:
    (endpoint,) = monitor["spec"]["endpoints"]
    relabel = [
        *_selected("service", monitor["spec"]["selector"]),
        _keep(["__meta_kubernetes_endpoint_port_name"], endpoint["port"]),
        _copy("__meta_kubernetes_service_name", "job"),
    ]
    return _job("services", endpoint, relabel, targets)


def scrape_pods(monitor: Mapping[str, Any], targets: list[dict[str, Any]]) -> dict[str, Any]:
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    relabel = [
        *_selected("pod", monitor["spec"]["selector"]),
        _keep(["__meta_kubernetes_pod_container_port_name"], endpoint["port"]),
    ]
    job = _job("pods", endpoint, relabel, targets)
    return job | {"sample_limit": monitor["spec"]["sampleLimit"]}


def _job(
    name: str, endpoint: Mapping[str, Any], relabel: list[Any], targets: list[dict[str, Any]]
) -> dict[str, Any]:
    further = [
        {"source_labels": one["sourceLabels"], "target_label": one["targetLabel"]}
        for one in endpoint.get("relabelings", ())
    ]
    common = [
        _copy("__meta_kubernetes_namespace", "namespace"),
        _copy("__meta_kubernetes_pod_name", "pod"),
    ]
    return {
        "job_name": name,
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint.get("honorLabels", False),
        "relabel_configs": [*relabel, *common, *further],
        "static_configs": targets,
    }


def _selected(kind: str, selector: Mapping[str, Any]) -> list[dict[str, Any]]:
    rules = []
    for key, value in selector.get("matchLabels", {}).items():
        rules.append(_keep(_sources(kind, key), f"({value});true"))
    for one in selector.get("matchExpressions", ()):
        if one["operator"] == "Exists":
            rules.append(_keep(_sources(kind, one["key"])[1:], "true"))
        else:
            assert one["operator"] == "In"
            rules.append(_keep(_sources(kind, one["key"]), f"({'|'.join(one['values'])});true"))
    return rules


def _sources(kind: str, key: str) -> list[str]:
    return list(meta(kind, {key: ""}))


def _keep(sources: list[str], regex: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": sources, "regex": regex}


def _copy(source: str, target: str) -> dict[str, Any]:
    return {"source_labels": [source], "target_label": target}
