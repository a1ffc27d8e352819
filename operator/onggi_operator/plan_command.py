"""`plan`: what each node shares out among its agents, what would be moved and why, and what pools
have taken of their quotas.

It reads what the operator wrote last, so it shows what the operator itself goes by, and needs no
more than the right to list KVCacheNodes and KVCachePools.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from onggi_core.quantity import format_size
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.names import NODES_PATH, POOLS_PATH
from onggi_operator.plan.conditions import Reason

EX_UNAVAILABLE: Final = 69
"""sysexits.h."""

QUOTA_WORDS: Final = {"memoryBytes": "memory", "diskBytes": "disk"}

QUOTA_REASONS: Final = (Reason.QUOTA_REACHED.value, Reason.QUOTA_EXCEEDED.value)


async def print_plan(access: ApiAccess, namespace: str | None, out: TextIO) -> int:
    """The exit code."""
    listed: dict[str, list[Mapping[str, Any]]] = {NODES_PATH: [], POOLS_PATH: []}
    async with ApiClient(access) as api:
        for path, items in listed.items():
            try:
                async for page in api.pages(path, {}):
                    items.extend(page.get("items") or ())
            except (ApiError, Unreachable) as fault:
                print(f"{path} could not be listed: {fault}", file=out)
                return EX_UNAVAILABLE
    for line in rendered(listed[NODES_PATH], listed[POOLS_PATH], namespace):
        print(line, file=out)
    return 0


def rendered(
    nodes: Sequence[Mapping[str, Any]], pools: Sequence[Mapping[str, Any]], namespace: str | None
) -> Iterable[str]:
    """Lines: nodes with their agents, and under each agent what would become of it; then pools
    with quotas."""
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
    for pool in pools:
        if namespace in (None, pool["metadata"]["namespace"]):
            yield from _quota(pool)


def _agent(grant: Mapping[str, Any], move: Mapping[str, Any] | None) -> Iterable[str]:
    held = format_size(grant["memoryBytes"])
    heard = ", unheard" if grant.get("unheard") else ""
    yield f"  {grant['namespace']}/{grant['pod']} (pool {grant['pool']}): {held}{heard}"
    if move is not None:
        says = "would move" if move.get("dryRun") else "moves"
        way = f"{format_size(move['fromBytes'])} -> {format_size(move['toBytes'])}"
        yield f"    {says} {way} ({move['reason']}): {move['message']}"


def _quota(pool: Mapping[str, Any]) -> Iterable[str]:
    """Of a pool that has one, once the operator has reckoned with it."""
    status, meta = pool.get("status") or {}, pool["metadata"]
    quota = status.get("quota") or {}
    hard, used = quota.get("hard") or {}, quota.get("used") or {}
    parts = [
        f"{format_size(used.get(field, 0))} of {format_size(hard[field])} {what}"
        for field, what in QUOTA_WORDS.items()
        if field in hard
    ]
    if not parts:
        return
    states = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
    reason = states.get("CapacityAllocated")
    told = f" ({reason})" if reason in QUOTA_REASONS else ""
    yield f"quota of {meta['namespace']}/{meta['name']}: {', '.join(parts)} taken{told}"
