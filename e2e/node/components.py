"""The daemons of a node: their command lines, start, stop and logs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from node.machine import Node, settings
from node.places import BIN, DOMAIN, PKI, SERVICES, SOCKET
from node.shell import Failed, attempt, call, flags, wait_for

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
WORKER: Final = ("containerd", "kubelet", "kube-proxy")
STOP_S: Final = 10
CONTAINERD_S: Final = 30
LOSS_S: Final = 20
"""A node is given up this long after its last sign of life, instead of the usual 50 s."""


def of(node: Node) -> tuple[str, ...]:
    return (*CONTROL_PLANE, *WORKER) if node.leads else WORKER


def log_of(node: Node, component: str) -> Path:
    return node.dir / "out" / f"{component}.log"


def pid_of(node: Node, component: str) -> int | None:
    """The pid, inside the node, of a running component, or None."""
    host = node.pid()
    if host is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        pid = int((node.dir / "pids" / component).read_text())
        argv = Path(f"/proc/{host}/root/proc/{pid}/cmdline").read_bytes()
        if component.encode() in argv:
            return pid
    return None


def start(node: Node, component: str) -> None:
    """Start a component unless it runs. Its output goes to a file: with the caller's it would
    keep the caller's pipes open for ever."""
    if pid_of(node, component):
        return
    script = 'exec >>"$1" 2>&1 </dev/null; pidfile=$2; shift 2; setsid "$@" & echo $! >"$pidfile"'
    path = f"PATH={BIN}:{os.environ['PATH']}"
    log, pid_file = log_of(node, component), node.dir / "pids" / component
    argv = command(node, component)
    call(*node.enter("env", path, "sh", "-c", script, "sh", log, pid_file, *argv))


def stop(node: Node, component: str) -> None:
    pid = pid_of(node, component)
    if pid is None:
        return

    def gone() -> bool:
        return pid_of(node, component) is None

    node.try_sh(f"kill -TERM {pid}")
    with contextlib.suppress(Failed):
        wait_for(component, gone, STOP_S)
        return
    node.try_sh(f"kill -KILL {pid}")
    wait_for(f"end of {component}", gone, STOP_S)


def start_containerd(node: Node) -> None:
    start(node, "containerd")
    probe = node.enter("ctr", "-a", SOCKET, "version")
    hint = f"See {log_of(node, 'containerd')}"
    wait_for(
        f"containerd of {node.name}",
        lambda: attempt(*probe).returncode == 0,
        CONTAINERD_S,
        hint,
    )


def command(node: Node, component: str) -> list[str]:
    """The command line of a component. Raises Failed for a name that is none."""
    if component == "etcd":
        return _etcd(node)
    if component == "kube-apiserver":
        return _apiserver(node)
    if component in ("kube-controller-manager", "kube-scheduler"):
        return _controller(node, component)
    if component == "containerd":
        config = str(node.dir / "containerd.toml")
        return ["containerd", "--config", config, "--log-level", "info"]
    if component == "kubelet":
        return ["kubelet", *flags(
            config=node.dir / "kubelet.json",
            kubeconfig=PKI / f"{node.name}.kubeconfig",
            hostname_override=node.name,
            node_ip=node.ip,
            v=2,
        )]  # fmt: skip
    if component == "kube-proxy":
        return ["kube-proxy", *flags(config=node.dir / "kube-proxy.json")]
    raise Failed(f"no component {component!r}; there are: {', '.join(of(node))}")


def _etcd(node: Node) -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return ["etcd", "--unsafe-no-fsync", *flags(
        data_dir=node.dir / "etcd",
        listen_client_urls=client,
        advertise_client_urls=client,
        listen_peer_urls=peer,
    )]  # fmt: skip


def _apiserver(node: Node) -> list[str]:
    """InternalIP, since node names do not resolve. The request-header flags are the aggregation
    layer's: without them the controller manager and the scheduler complain."""
    return ["kube-apiserver", *flags(
        etcd_servers="http://127.0.0.1:2379",
        advertise_address=node.ip,
        secure_port=6443,
        service_cluster_ip_range=SERVICES,
        authorization_mode="Node,RBAC",
        enable_admission_plugins="NodeRestriction",
        allow_privileged="true",
        tls_cert_file=PKI / "apiserver.crt",
        tls_private_key_file=PKI / "apiserver.key",
        client_ca_file=PKI / "ca.crt",
        service_account_issuer=f"https://kubernetes.default.svc.{DOMAIN}",
        service_account_signing_key_file=PKI / "sa.key",
        service_account_key_file=PKI / "sa.pub",
        kubelet_client_certificate=PKI / "apiserver-kubelet.crt",
        kubelet_client_key=PKI / "apiserver-kubelet.key",
        kubelet_certificate_authority=PKI / "ca.crt",
        kubelet_preferred_address_types="InternalIP",
        requestheader_client_ca_file=PKI / "front-proxy-ca.crt",
        requestheader_allowed_names="front-proxy-client",
        requestheader_username_headers="X-Remote-User",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
        proxy_client_cert_file=PKI / "front-proxy.crt",
        proxy_client_key_file=PKI / "front-proxy.key",
    ), *settings().get("apiserver_args", [])]  # fmt: skip


def _controller(node: Node, component: str) -> list[str]:
    config = PKI / f"{component}.kubeconfig"
    argv = [component, *flags(
        kubeconfig=config,
        authentication_kubeconfig=config,
        authorization_kubeconfig=config,
        leader_elect="false",
        bind_address="127.0.0.1",
    )]  # fmt: skip
    if component == "kube-controller-manager":
        argv += flags(
            service_account_private_key_file=PKI / "sa.key",
            root_ca_file=PKI / "ca.crt",
            cluster_signing_cert_file=PKI / "ca.crt",
            cluster_signing_key_file=PKI / "ca.key",
            use_service_account_credentials="true",
            flex_volume_plugin_dir=f"{node.dir}/opt/volume-plugins",
            node_monitor_grace_period=f"{LOSS_S}s",
        )
    return argv
