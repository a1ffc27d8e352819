"""Where the harness keeps its files, and the addresses it uses: the only home of either."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final


def _state() -> Path:
    if named := os.environ.get("ONGGI_NODE_DIR"):
        return Path(named).resolve()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache").resolve() / "onggi-node"


STATE: Final = _state()
BIN: Final = STATE / "bin"
"""Binaries built from Go modules; outlives a cluster."""
IMAGES: Final = STATE / "images"
"""Image archives, all of them loaded into every node at `up`; outlives a cluster."""
RUN: Final = STATE / "run"
"""One cluster's life: goes with `down`."""
PKI: Final = RUN / "pki"
KUBECONFIG: Final = RUN / "kubeconfig"
SETTINGS: Final = RUN / "settings.json"
COMPLETE: Final = RUN / "complete"
"""Exists once `up` has come to its end: a run folder without it was killed half-way."""
MADE: Final = STATE / "made"
"""Mount points the harness had to make on the host, to be removed again. Not in the run folder:
if that is deleted by hand they are still known."""

LAN: Final = "10.99.0"
"""Node N has LAN.N; its pods have PODS.N.0/24."""
PODS: Final = "10.88"
SERVICES: Final = "10.96.0.0/16"
SERVICES_FIRST: Final = "10.96.0.1"
DNS_IP: Final = "10.96.0.10"
DOMAIN: Final = "cluster.local"
HOST_IP: Final = f"{LAN}.254"
HOST_LINK: Final = "onggi0"
SERVER: Final = f"https://{LAN}.1:6443"
RANGES: Final = (f"{LAN}.0/24", f"{PODS}.0.0/16", SERVICES)

SOCKET: Final = "/run/containerd/containerd.sock"
"""The same on each node, since each has a /run of its own."""
CGROUP: Final = "onggi-node"
CONTEXT: Final = "onggi-node"
"""Name of cluster and kube context; the tests refuse any other unless it is named to them."""
NODES_MAX: Final = 9
"""Nodes have one-digit addresses, links and MAC addresses."""

PAUSE_IMAGE: Final = "localhost/pause:3.10"
COREDNS_IMAGE: Final = "localhost/coredns:1.13"


def archive_of(image: str) -> Path:
    """The archive that holds an image: `localhost/pause:3.10` lies in `pause-3.10.tar`."""
    name = image.removeprefix("localhost/").replace("/", "-").replace(":", "-")
    return IMAGES / f"{name}.tar"
