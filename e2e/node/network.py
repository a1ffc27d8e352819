"""Links and routes: host to nodes, node to node, and a fence around all of it."""

from __future__ import annotations

from node.machine import Node, running
from node.places import HOST_IP, HOST_LINK, RANGES, SERVICES
from node.shell import attempt, call


def fence() -> None:
    """Routes that outlive the cluster, and keep its addresses on this machine when it is down.

    Without them a client that asks an address after `down` would send packets out by the host's
    default route. Their metric is high: while the cluster is up its own routes win.
    """
    for net in RANGES:
        call("ip", "route", "replace", "unreachable", net, "metric", 9999)


def join(node: Node) -> None:
    """Connect a booted node with the host and with every other node."""
    if node.leads:
        _join_host(node)
    else:
        _join_bridge(node)
    # No default route: what is not of this cluster fails at once and never leaves the machine.
    # The Service route: a process on the node itself would get "unreachable" before kube-proxy's
    # rules see its packet.
    node.sh(
        f"ip addr add {node.ip}/24 dev {node.link}; ip link set {node.link} up;"
        f"ip route add {SERVICES} dev {node.link}"
    )
    call("ip", "route", "replace", node.pods, "via", node.ip, "dev", HOST_LINK)
    for other in running():
        if other.number != node.number:
            other.sh(f"ip route replace {node.pods} via {node.ip}")
            node.sh(f"ip route replace {other.pods} via {other.ip}")


def _join_host(node: Node) -> None:
    """node1 holds the bridge of all nodes; a veth joins the host to it."""
    delete_host_link()
    call(
        "ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host0",
        "netns", node.pid() or 0,
    )  # fmt: skip
    call("ip", "addr", "add", f"{HOST_IP}/24", "dev", HOST_LINK)
    call("ip", "link", "set", HOST_LINK, "up")
    call("ip", "route", "add", SERVICES, "via", node.ip, "dev", HOST_LINK)
    # The bridge has a fixed address: else it takes another when a port leaves.
    node.sh(
        f"ip link add node0 address {node.mac} type bridge; ip link set node0 up;"
        "ip link set host0 master node0 up"
    )


def _join_bridge(node: Node) -> None:
    first, port = Node(1), f"port{node.number}"
    cut(node)
    call(
        "ip", "link", "add", port, "netns", first.pid() or 0, "type", "veth",
        "peer", "name", "eth0", "netns", node.pid() or 0, "address", node.mac,
    )  # fmt: skip
    first.sh(f"ip link set {port} master node0 up")


def cut(node: Node) -> None:
    """Make the node's peers see silence, as when a machine loses power."""
    Node(1).try_sh(f"ip link delete port{node.number}")


def delete_host_link() -> None:
    attempt("ip", "link", "delete", HOST_LINK)
