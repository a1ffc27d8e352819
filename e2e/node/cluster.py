"""The commands: up, down, status, stop, start, load, and the ways in."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn

from node import archives, boot, components, configs, network, objects, pki, power
from node.machine import Node, known, named, running
from node.places import (
    BIN,
    COMPLETE,
    COREDNS_IMAGE,
    HOST_LINK,
    IMAGES,
    KUBECONFIG,
    NODES_MAX,
    PAUSE_IMAGE,
    PKI,
    RUN,
    SETTINGS,
    archive_of,
)  # fmt: skip
from node.shell import Failed, attempt, call, wait_for

APISERVER_S: Final = 90
READY_S: Final = 90
"""Both are under 20 s on an idle machine of two cores; four times that on one that builds."""

PROGRAMS: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "etcd": "etcd-server",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Program -> Debian package that has it."""


def kubectl(*argv: str, stdin: str | None = None) -> str:
    return call(BIN / "kubectl", "--kubeconfig", KUBECONFIG, *argv, stdin=stdin).stdout


def _answers(*argv: str) -> bool:
    return attempt(BIN / "kubectl", "--kubeconfig", KUBECONFIG, *argv).returncode == 0


def _apply(items: Sequence[objects.Manifest]) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=listed)


def preflight() -> None:
    """Raise Failed with all that is missing, before anything is touched."""
    if os.geteuid():
        raise Failed("needs root: it makes namespaces, links and cgroups")
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if not Path("/usr/lib/cni/ptp").exists():
        missing.add("containernetworking-plugins")
    if missing:
        raise Failed(f"Debian packages missing: apt-get install {' '.join(sorted(missing))}")
    for file, maker in (
        (BIN / "hyperkube", "e2e/node/binaries"),
        (archive_of(PAUSE_IMAGE), "e2e/node/images base"),
    ):
        if not file.exists():
            raise Failed(f"{file} is missing: run {maker}")


def up(count: int, own: Sequence[str], apiserver_args: Sequence[str]) -> None:
    """A cluster of at least `count` nodes; returns when nodes and DNS are ready.

    A run that did not come to its end is wiped first, whatever is left of it: half a cluster can
    look alive and lack its network.
    """
    preflight()
    power.refuse_foreign()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)

    if not COMPLETE.exists() or not Node(1).pid():
        if RUN.exists():
            say("an earlier run was not ended: removing what it left")
        power.wipe()
    _settle(own, apiserver_args)
    network.fence()
    for number in range(1, count + 1):
        (RUN / f"node{number}").mkdir(exist_ok=True)
    nodes = known()
    _start_nodes(nodes, say)
    _start_control_plane(nodes, say)
    _fill(nodes, say)
    COMPLETE.touch()
    say(f"up; KUBECONFIG={KUBECONFIG}")


def _settle(own: Sequence[str], apiserver_args: Sequence[str]) -> None:
    RUN.mkdir(parents=True, exist_ok=True)
    asked = {"own": list(own), "apiserver_args": list(apiserver_args)}
    if not SETTINGS.exists():
        SETTINGS.write_text(json.dumps(asked))
    elif (own or apiserver_args) and json.loads(SETTINGS.read_text()) != asked:
        raise Failed("--own and --apiserver-arg are set by the first `up`: run `down` before")


def _start_nodes(nodes: Sequence[Node], say: Callable[[str], None]) -> None:
    pki.make(nodes)
    KUBECONFIG.touch(mode=0o600)
    KUBECONFIG.write_text((PKI / "admin.kubeconfig").read_text())
    for node in nodes:
        configs.write(node)
        if not node.pid():
            boot.start(node)
            network.join(node)
            say(f"{node.name} booted")


def _start_worker(node: Node) -> None:
    components.start_containerd(node)
    archives.load(node, archive_of(PAUSE_IMAGE))


def _join_cluster(node: Node) -> None:
    components.start(node, "kubelet")
    components.start(node, "kube-proxy")


def _start_control_plane(nodes: Sequence[Node], say: Callable[[str], None]) -> None:
    first = nodes[0]
    components.start(first, "etcd")
    components.start(first, "kube-apiserver")
    with ThreadPoolExecutor(NODES_MAX) as pool:
        list(pool.map(_start_worker, nodes))
    hint = f"See {components.log_of(first, 'kube-apiserver')}"
    wait_for("apiserver", lambda: _answers("get", "--raw=/readyz"), APISERVER_S, hint)
    say("apiserver ready")
    _apply([objects.node_object(node) for node in nodes])
    components.start(first, "kube-controller-manager")
    components.start(first, "kube-scheduler")


def _fill(nodes: Sequence[Node], say: Callable[[str], None]) -> None:
    for node in nodes:
        _join_cluster(node)
    dns = archive_of(COREDNS_IMAGE)
    if dns.exists():
        _apply(objects.dns_objects())
    # DNS first, then by size: what waits for a small image need not wait for a large one.
    tars = sorted(IMAGES.glob("*.tar"), key=lambda tar: (tar != dns, tar.stat().st_size))
    archives.load_all(nodes, tars)
    say("images loaded")
    names = [f"node/{node.name}" for node in nodes]
    kubectl("wait", "--for=condition=Ready", f"--timeout={READY_S}s", *names)
    say("nodes ready")
    if dns.exists():
        rollout = ("rollout", "status", "deployment/coredns", f"--timeout={READY_S}s")
        kubectl("-n", "kube-system", *rollout)
    wait_for("default service account", lambda: _answers("get", "sa", "default"), READY_S)


def down() -> None:
    power.wipe()
    print("down: no process, mount, link, cgroup or folder of a run is left")


def status() -> int:
    nodes = known()
    if not nodes:
        print("down")
        return 1
    for node in nodes:
        pid = node.pid()
        print(f"{node.name} {node.ip} pods {node.pods} {f'pid {pid}' if pid else 'OFF'}")
        for component in components.of(node) if pid else ():
            runs = "running" if components.pid_of(node, component) else "STOPPED"
            print(f"  {component:24}{runs:8}  {components.log_of(node, component)}")
    if nodes[0].pid():
        zones = ("get", "nodes", "-L", "topology.kubernetes.io/zone")
        done = attempt(BIN / "kubectl", "--kubeconfig", KUBECONFIG, *zones)
        print(done.stdout or done.stderr, end="")
    return 0 if COMPLETE.exists() else 1


def stop(name: str, asked: Sequence[str]) -> None:
    node = named(name)
    for component in asked:
        components.stop(node, component)
    if not asked:
        if node.leads:
            raise Failed("node1 holds the control plane: use `down`")
        power.end(node, cut=True)


def start(name: str, asked: Sequence[str]) -> None:
    node = named(name)
    if not node.pid():
        boot.start(node)
        network.join(node)
    if not asked:
        _start_worker(node)
        _join_cluster(node)
    for component in asked:
        components.start(node, component)


def load(tars: Sequence[str], only: Sequence[str]) -> None:
    nodes = [named(name) for name in only] or running()
    if not nodes:
        raise Failed("the cluster is down")
    archives.load_all(nodes, map(Path, tars))


def need_link() -> None:
    """Raise Failed when the cluster is down: its addresses would be answered by nobody."""
    if not KUBECONFIG.exists() or not Path("/sys/class/net", HOST_LINK).exists():
        raise Failed("the cluster is down")


def exec_kubectl(argv: Sequence[str]) -> NoReturn:
    need_link()
    os.execv(BIN / "kubectl", ["kubectl", "--kubeconfig", str(KUBECONFIG), *argv])


def exec_inside(name: str, argv: Sequence[str]) -> NoReturn:
    line = named(name).enter(*(argv or ["bash"]))
    os.execvp(line[0], line)
