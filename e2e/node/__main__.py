"""Command line of the harness: `e2e/node/node COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from node import boot, cluster
from node.components import CONTROL_PLANE, WORKER
from node.machine import BOOT_WORD
from node.places import BIN, KUBECONFIG, NODES_MAX, STATE
from node.shell import Failed


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One command that changes the cluster at a time; a killed one's lock is free at once."""
    STATE.mkdir(parents=True, exist_ok=True)
    with open(STATE / "lock", "w") as file:  # not inherited by what we start
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="node", description="A Kubernetes on this machine.")
    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = sub.add_parser("up", help="start the cluster, or add to it what is missing")
    numbers = range(1, NODES_MAX + 1)
    up.add_argument("--nodes", type=int, default=2, choices=numbers, metavar="N", help="default 2")
    up.add_argument(
        "--own", action="append", default=[], metavar="PATH",
        help="a host path that each node shall have for itself; repeatable",
    )  # fmt: skip
    up.add_argument(
        "--apiserver-arg", action="append", default=[], metavar="FLAG", help="as =--v=4"
    )
    sub.add_parser("down", help="end the cluster and remove all that it left")
    sub.add_parser("status", help="nodes, components and where they log")
    stop = sub.add_parser("stop", help="cut a node's power, or end components of it")
    start = sub.add_parser("start", help="the reverse of stop")
    for each in (stop, start):
        each.add_argument("node")
        each.add_argument("component", nargs="*", help=", ".join((*CONTROL_PLANE, *WORKER)))
    load = sub.add_parser("load", help="import image archives into every node")
    load.add_argument("tar", nargs="+")
    load.add_argument("--node", action="append", default=[], help="only into this; repeatable")
    inside = sub.add_parser("exec", help="run a command inside a node's namespaces")
    inside.add_argument("node")
    inside.add_argument("argv", nargs=argparse.REMAINDER)
    sub.add_parser("kubectl", help="run kubectl as admin")
    sub.add_parser("kubeconfig", help="print the path of the admin's kubeconfig")
    sub.add_parser("env", help="print KUBECONFIG and PATH (kubectl, helm) for eval")
    return parser


def _run(args: argparse.Namespace) -> int:
    match args.command:
        case "status":
            return cluster.status()
        case "exec":
            cluster.exec_inside(args.node, args.argv)
        case "kubeconfig":
            cluster.need_link()
            print(KUBECONFIG)
        case "env":
            cluster.need_link()
            print(f"export KUBECONFIG={KUBECONFIG}\nexport PATH={BIN}:$PATH")
        case _:
            with _lock():
                _change(args)
    return 0


def _change(args: argparse.Namespace) -> None:
    match args.command:
        case "up":
            cluster.up(args.nodes, args.own, args.apiserver_arg)
        case "down":
            cluster.down()
        case "stop":
            cluster.stop(args.node, args.component)
        case "start":
            cluster.start(args.node, args.component)
        case "load":
            cluster.load(args.tar, args.node)


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == [BOOT_WORD]:
        boot.main(Path(words[1]), int(words[2]))
        return 0
    try:
        if words[:1] == ["kubectl"]:  # its flags are not ours to parse
            cluster.exec_kubectl(words[1:])
        return _run(_parser().parse_args())
    except Failed as failed:
        print(f"node: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
