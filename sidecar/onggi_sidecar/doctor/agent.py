"""What an agent's figures mean for whoever wonders why nothing is cached."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from onggi_core.quantity import format_size
from onggi_sidecar.doctor.finding import Finding, Level

LOOKUPS_FEW: Final = 100
"""Blocks asked for; a share of fewer says nothing."""

REFUSED_SHARE: Final = 0.05
"""Of what engines offered: a store that comes while others are copied may be refused whatever the
size."""

LOOK_INSIDE: Final = (
    "wait until it has started; else look in its log for lines that begin with 'onggi:', and see"
    " whether it finds the client: kubectl exec POD -c ENGINE -- python3 -c 'import onggi'. Where"
    " the image's own start script sets PYTHONPATH, let it keep what is in there"
)

LOOK_HERE: Final = (
    "start the engine with PYTHONPATH=FOLDER, as filled by `onggi install-client FOLDER`, and"
    " ONGGI_SOCKET={socket}; its log then has a line that begins with 'onggi:'"
)
"""The same where there is no pod."""

_FAULTS: Final = {
    "corrupt": "pages on disk were damaged; they were misses, and the disk should be looked at",
    "read_fault": "reads from the disk failed",
    "write_fault": "writes to the disk failed",
    "no_space": "the disk's filesystem was full",
    "disk_late": "disk jobs took longer than their deadline",
    "disk_queue_full": "more was asked of the disk than it could take",
    "disk_unavailable": "the disk's folder cannot be used; the agent's log says why",
    "late_load": "clients took longer than their lease to copy what they had loaded",
    "lease_ended": "clients kept pages longer than their lease",
    "slow_client": "clients that did not read their replies were dropped",
}
"""Of the kinds of docs/agent.md those that cost hits."""


def judge(figures: Mapping[str, Any], unready: str) -> list[Finding]:
    """`unready` is what /readyz says; empty when it is."""
    return [
        *_readiness(figures, unready),
        *_engines(figures),
        *_refused(figures),
        *_mode(figures),
        *_memory(figures),
        *_disk(figures),
        *_hits(figures),
        *_would(figures),
        *_faults(figures),
    ]


def _readiness(figures: Mapping[str, Any], unready: str) -> Iterator[Finding]:
    if unready:
        yield Finding(Level.WRONG, f"the agent is not ready: {unready}")
        return
    where = f" on {figures['socket']}" if figures.get("socket") else ""
    if outside(figures):
        yield Finding(Level.FINE, f"the agent serves{where}, outside Kubernetes")
    else:
        yield Finding(Level.FINE, f"the agent of pool {figures['pool']} serves{where}")


def outside(figures: Mapping[str, Any]) -> bool:
    """Whether the agent was started by hand: every injected one has a pool."""
    return not figures.get("pool")


def _engines(figures: Mapping[str, Any]) -> Iterator[Finding]:
    clients, so_far = figures["clients"], figures.get("greeted_sessions", 0)
    if not clients and so_far:
        yield Finding(
            Level.NOTE,
            f"no engine is attached now; sessions since the agent started: {so_far}",
            "an engine that runs attaches by itself with its next request",
        )
        return
    if not clients:
        then = LOOK_INSIDE
        if outside(figures):
            then = LOOK_HERE.format(socket=figures.get("socket") or "PATH")
        if not figures.get("refused_clients"):  # else _refused says why there is none
            yield Finding(Level.WRONG, "no engine has loaded the client yet", then)
        return
    named = ", ".join(sorted({str(one["engine"]) or "without a name" for one in clients}))
    count = f"{len(clients)} client{'s' if len(clients) > 1 else ''}"
    yield Finding(Level.FINE, f"the engine has loaded the client: {count} ({named})")


def _refused(figures: Mapping[str, Any]) -> Iterator[Finding]:
    """Clients that came and got no session."""
    if count := figures.get("refused_clients", 0):
        times = "once" if count == 1 else f"{count} times"
        yield Finding(
            Level.WRONG,
            f"a client was refused {times}, last: {figures['last_refusal']}",
            "its engine runs without a cache, and its log says the same after 'onggi:'; this count"
            " begins anew when the agent does",
        )


def _mode(figures: Mapping[str, Any]) -> Iterator[Finding]:
    then = "start it with --mode Active" if outside(figures) else "set spec.mode to Active"
    if figures["mode"] == "Observe":
        yield Finding(Level.NOTE, "mode Observe: nothing is stored", then)
    elif figures["mode"] == "Paused":
        yield Finding(Level.NOTE, "mode Paused: every lookup is a miss", then)


def _memory(figures: Mapping[str, Any]) -> Iterator[Finding]:
    budget, ready = figures["arena_budget_bytes"], figures["arena_ready_bytes"]
    used = figures["host_used_bytes"]
    told = f"memory: {_size(used)} used of {_size(ready)}"
    if ready < budget:
        yield Finding(Level.NOTE, f"{told} that are ready; of {_size(budget)} in all")
    else:
        yield Finding(Level.FINE, told)
    refused, stored = figures.get("refused_blocks", 0), figures.get("stored_blocks", 0)
    if refused > REFUSED_SHARE * (refused + stored):
        more = "--memory" if outside(figures) else "memory.max of the pool"
        yield Finding(
            Level.NOTE,
            f"{refused} blocks found no room, {stored} did: too little memory for what engines hold"
            " at a time, or a disk that takes blocks too slowly",
            f"raise {more}, or see what is said of the disk",
        )


def _disk(figures: Mapping[str, Any]) -> Iterator[Finding]:
    if not figures["disk_bytes"]:
        yield Finding(Level.FINE, "disk: none")
        return
    used, budget = figures["disk_used_bytes"], figures["disk_budget_bytes"]
    told = f"disk: {_size(used)} used of {_size(budget)}"
    if figures["disk_breaker"] != "closed":
        bound = "--io-deadline-s" if outside(figures) else "failure.diskDeadline of the pool"
        yield Finding(
            Level.WRONG,
            f"{told}; its breaker is {figures['disk_breaker']}: it was slow or failed, and what"
            " lies on disk alone is a miss until probes pass",
            f"look at the disk; {bound} bounds one read or write",
        )
    elif figures["disk_stuck_jobs"]:
        stuck = figures["disk_stuck_jobs"]
        yield Finding(Level.WRONG, f"{told}; {stuck} jobs are past their deadline")
    elif figures["disk_no_space"]:
        yield Finding(Level.WRONG, f"{told}; its filesystem is full", "somebody else fills it")
    elif figures["disk_breaker_opened"]:
        times = figures["disk_breaker_opened"]
        yield Finding(Level.NOTE, f"{told}; its breaker opened {times} times and is closed again")
    else:
        yield Finding(Level.FINE, told)


def _size(size_bytes: int) -> str:
    """As the agent's settings and its log write it."""
    return f"{format_size(size_bytes)}B"


def _hits(figures: Mapping[str, Any]) -> Iterator[Finding]:
    asked = figures["lookup_blocks"]
    found = figures["hit_host_blocks"] + figures["hit_disk_blocks"]
    if asked < LOOKUPS_FEW:
        told = f"{asked} blocks were asked for so far and {found} were hits"
        yield Finding(Level.NOTE, f"{told}: too few to judge by")
        return
    told = f"{found} of {asked} blocks were hits ({found / asked:.0%})"
    saved = figures["tokens_saved"]
    yield Finding(Level.FINE, f"{told}; {saved} tokens were not computed again")


def _would(figures: Mapping[str, Any]) -> Iterator[Finding]:
    """What other sizes, or the mode Active, would have found, as ghost caches tell."""
    seen, curve = figures.get("observe", {}), figures.get("demand", {}).get("curve", [])
    asked = seen.get("asked_blocks", 0)
    if figures["mode"] == "Observe" and asked >= LOOKUPS_FEW:
        told = f"about {seen['hit_share']:.0%} of the {asked} blocks that were asked for"
        saved = f"some {seen['saved_tokens']} tokens not computed again"
        yield Finding(Level.FINE, f"Active would have found {told}: {saved}")
    if curve:
        shares = ", ".join(f"{_size(size_bytes)} {share:.0%}" for size_bytes, share in curve)
        yield Finding(Level.FINE, f"hits that each size would bring, estimated: {shares}")


def _faults(figures: Mapping[str, Any]) -> Iterator[Finding]:
    for kind, count in sorted(figures["errors"].items()):
        if count and kind in _FAULTS:
            yield Finding(Level.NOTE, f"{kind} {count}: {_FAULTS[kind]}")
