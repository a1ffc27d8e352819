"""`plan`: what each node shares out among its agents, and what would be moved and why.

It reads what the operator wrote last, so it shows what the operator itself goes by, and needs no
more than the right to list KVCacheNodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from onggi_core.quantity import format_size
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.names import NODES_PATH

EX_UNAVAILABLE: Final = 69
"""sysexits.h."""


async def print_plan(access: ApiAccess, namespace: str | None, out: TextIO) -> int:
    """The exit code."""
    nodes: list[Mapping[str, Any]] = []
    try:
        async with ApiClient(access) as api:
            async for page in api.pages(NODES_PATH, {}):
                nodes += page.get("items") or ()
    except (ApiError, Unreachable) as fault:
        print(f"KVCacheNodes could not be listed: {fault}", file=out)
        return EX_UNAVAILABLE
    for line in rendered(nodes, namespace):
        print(line, file=out)
    return 0


def rendered(nodes: Sequence[Mapping[str, Any]], namespace: str | None) -> Iterable[str]:
    """Lines: nodes with their agents, and under each agent what would become of it."""
    if not nodes:
        yield "No node has agents yet."
    for node in nodes:
        status = node.get("status") or {}
        offered = (status.get("offered") or {}).get("memoryBytes", 0)
        granted = (status.get("granted") or {}).get("memoryBytes", 0)
        name = node["metadata"]["name"]
        yield f"{name}: {format_size(granted)} granted of {format_size(offered)} offered"
        moves = {move["podUID"]: move for move in status.get("moves") or ()}
        for grant in status.get("grants") or ():
            if namespace in (None, grant["namespace"]):
                yield from _agent(grant, moves.get(grant["podUID"]))


def _agent(grant: Mapping[str, Any], move: Mapping[str, Any] | None) -> Iterable[str]:
    held = format_size(grant["memoryBytes"])
    yield f"  {grant['namespace']}/{grant['pod']} (pool {grant['pool']}): {held}"
    if move is not None:
        says = "would move" if move.get("dryRun") else "moves"
        way = f"{format_size(move['fromBytes'])} -> {format_size(move['toBytes'])}"
        yield f"    {says} {way} ({move['reason']}): {move['message']}"
