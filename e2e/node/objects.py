"""What a bare cluster lacks: its Node objects and a DNS server."""

from __future__ import annotations

from typing import Any

from node.machine import Node
from node.places import COREDNS_IMAGE, DNS_IP, DOMAIN

Manifest = dict[str, Any]

COREFILE = f"""{DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health
    ready
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    cache 5
    loadbalance
}}
.:53 {{
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
"""Plugins run in a fixed order, `template` before `kubernetes`: the answer for every other name
needs a server block of its own."""


def node_object(node: Node) -> Manifest:
    """Made before the kubelet registers: it takes over the object it finds, with the pod range
    and the labels that it may not set itself."""
    labels = {
        "topology.kubernetes.io/region": "local",
        "topology.kubernetes.io/zone": f"zone-{'ba'[node.number % 2]}",
    }
    if node.leads:
        labels["node-role.kubernetes.io/control-plane"] = ""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"podCIDR": node.pods, "podCIDRs": [node.pods]},
    }


def _meta(name: str = "coredns", **more: Any) -> Manifest:
    return {"name": name, "namespace": "kube-system", **more}


def dns_objects() -> list[Manifest]:
    """CoreDNS on node1, so that a test may drain or cut any other node."""
    labels = {"k8s-app": "kube-dns"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _dns_pod()},
    }
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta()},
        *_dns_rights(),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _meta(),
            "data": {"Corefile": COREFILE},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta(labels=labels),
            "spec": spec,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta("kube-dns", labels=labels),
            "spec": {"clusterIP": DNS_IP, "selector": labels, "ports": ports},
        },
    ]


def _dns_rights() -> list[Manifest]:
    group, name = "rbac.authorization.k8s.io", "system:coredns"
    rules = [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
    ]


def _dns_pod() -> Manifest:
    container = {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "command": ["/coredns", "-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "170Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
