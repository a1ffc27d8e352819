"""Configuration files of a node's components."""

from __future__ import annotations

import json
from typing import Any

from node.machine import Node
from node.places import CGROUP, DNS_IP, DOMAIN, PAUSE_IMAGE, PKI, PODS, SOCKET


def write(node: Node) -> None:
    (node.dir / "containerd.toml").write_text(_containerd(node))
    (node.dir / "net.d").mkdir(exist_ok=True)
    _write_json(node, "net.d/10-pods.conflist", _pod_network(node))
    _write_json(node, "kubelet.json", _kubelet(node))
    _write_json(node, "kube-proxy.json", _kube_proxy(node))


def _write_json(node: Node, name: str, content: dict[str, Any]) -> None:
    (node.dir / name).write_text(json.dumps(content, indent=1))


def _containerd(node: Node) -> str:
    """restrict_oom_score_adj: where nobody may lower oom_score_adj no container would start."""
    runc = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc'
    return f"""version = 2
root = "{node.dir}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{node.dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{node.dir}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
    [{runc}]
      runtime_type = "io.containerd.runc.v2"
      [{runc}.options]
        BinaryName = "runc"
        SystemdCgroup = false
"""


def _pod_network(node: Node) -> dict[str, Any]:
    """`ptp`, not `bridge`: pods on one bridge answer each other past iptables, so a Service would
    not reach a pod of the same node. No masquerade: a peer sees the pod's own address."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}


def _kubelet(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.ip,
        "healthzBindAddress": "127.0.0.1",
        "failSwapOn": False,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}/{node.name}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "imageServiceEndpoint": f"unix://{SOCKET}",
        "volumePluginDir": f"{node.dir}/opt/volume-plugins",
        "clusterDNS": [DNS_IP],
        "clusterDomain": DOMAIN,
        "resolvConf": "",
        "tlsCertFile": f"{PKI}/{node.name}-kubelet.crt",
        "tlsPrivateKeyFile": f"{PKI}/{node.name}-kubelet.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        # Renewed every 5 s, to match the grace period that the controller manager is given.
        "nodeLeaseDurationSeconds": 20,
        # An image that was loaded cannot be pulled again, so none may be collected.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "memory.available": "200Mi",
        },
    }


def _kube_proxy(node: Node) -> dict[str, Any]:
    """conntrack is left alone: its sysctls can be written only in the first network namespace."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": node.ip,
        "hostnameOverride": node.name,
        "clusterCIDR": f"{PODS}.0.0/16",
        "clientConnection": {"kubeconfig": f"{PKI}/kube-proxy.kubeconfig"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
