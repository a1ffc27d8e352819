"""Counters of a pool that never fall, out of counters of agents that begin anew at each start.

For each agent the ledger holds how far its counters are contained in the totals. Both are written
to the pool's status together, so that an operator that restarts goes on where the last one left.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Any, Final

from onggi_core.heartbeat import Heartbeat

AGENTS_WRITTEN_MAX: Final = 100
"""Agents in a pool's status, as in the schema: some 30 KiB of an object's 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted: of one life of an agent, or of a pool since it was made."""

    host_blocks: int = 0
    disk_blocks: int = 0
    requests: int = 0
    blocks: int = 0
    miss_blocks: int = 0
    tokens_saved: int = 0
    evictions: int = 0

    def plus(self, other: "Counters") -> "Counters":
        return Counters(*map(add, _values(self), _values(other)))

    def since(self, earlier: "Counters") -> "Counters":
        """The difference, never negative: a report that was overtaken by a later one adds 0."""
        pairs = zip(_values(self), _values(earlier), strict=True)
        return Counters(*[max(0, now - before) for now, before in pairs])


_values: Final[Callable[[Counters], tuple[int, ...]]] = attrgetter(
    *(field.name for field in fields(Counters))
)
"""In the order of the fields; each report of an agent asks several times."""

ZERO: Final = Counters()
_KEYS: Final = (
    "hostBlocks",
    "diskBlocks",
    "requests",
    "blocks",
    "missBlocks",
    "tokensSaved",
    "evictions",
)
"""Counters' fields as the API names them, in the same order."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How far one agent is contained in the totals: its life, and that life's counters."""

    pod: str
    node: str
    epoch: str
    counters: Counters


class Ledger:
    """One pool's totals and the agents contained in them.

    Plain calls, no I/O: what is read from it between two heartbeats belongs together. `complete` is
    False when the status it was read from had no room for every agent; then progress of an agent
    that is not listed may be contained in the totals already.
    """

    def __init__(
        self,
        totals: Counters = ZERO,
        agents: Mapping[str, Counted] | None = None,
        *,
        complete: bool = True,
    ) -> None:
        self.totals = totals
        self.agents = dict(agents or {})
        self._complete = complete

    def absorb(self, beat: Heartbeat, *, newborn: bool) -> None:
        """Add what an agent did since its last report. `newborn`: its pod was made after this
        ledger was, so nothing of it can be contained yet."""
        now, known = counters_of(beat), self.agents.get(beat.pod_uid)
        if known is not None and known.epoch == beat.epoch:
            added = now.since(known.counters)
            now = known.counters.plus(added)
        elif known is not None or newborn or self._complete:
            added = now
        else:
            added = ZERO
        self.totals = self.totals.plus(added)
        self.agents[beat.pod_uid] = Counted(beat.pod, beat.node, beat.epoch, now)

    def forget_all_but(self, uids: Set[str]) -> None:
        """Drop agents whose pods are gone; what they did stays in the totals."""
        for uid in self.agents.keys() - uids:
            del self.agents[uid]


def ledger_of(status: Mapping[str, Any]) -> Ledger:
    """Read back what `totals_fields` and `agents_field` wrote."""
    hits, lookups = status.get("hits") or {}, status.get("lookups") or {}
    flat = {**hits, **lookups, **status}
    listed = status.get("agents") or ()
    agents = {
        one["podUID"]: Counted(
            one["pod"], one.get("node", ""), one["epoch"], _counters(one["counted"])
        )
        for one in listed
    }
    return Ledger(_counters(flat), agents, complete=len(listed) < AGENTS_WRITTEN_MAX)


def totals_fields(totals: Counters) -> dict[str, Any]:
    """The totals as the status has them."""
    flat = _fields(totals)
    return {
        "hits": {key: flat[key] for key in ("hostBlocks", "diskBlocks")},
        "lookups": {key: flat[key] for key in ("requests", "blocks", "missBlocks")},
        "tokensSaved": flat["tokensSaved"],
        "evictions": flat["evictions"],
    }


def agents_field(agents: Mapping[str, Counted]) -> list[dict[str, Any]]:
    """The agents as the status has them, by name, as many as there is room for."""
    listed = sorted(agents.items(), key=lambda item: (item[1].pod, item[0]))
    return [
        {
            "podUID": uid,
            "pod": agent.pod,
            "node": agent.node,
            "epoch": agent.epoch,
            "counted": _fields(agent.counters),
        }
        for uid, agent in listed[:AGENTS_WRITTEN_MAX]
    ]


def _fields(counters: Counters) -> dict[str, int]:
    return dict(zip(_KEYS, _values(counters), strict=True))


def _counters(flat: Mapping[str, Any]) -> Counters:
    return Counters(*(int(flat.get(key, 0)) for key in _KEYS))


def counters_of(beat: Heartbeat) -> Counters:
    return Counters(
        host_blocks=beat.hits.host_blocks,
        disk_blocks=beat.hits.disk_blocks,
        requests=beat.lookups.requests,
        blocks=beat.lookups.blocks,
        miss_blocks=beat.lookups.miss_blocks,
        tokens_saved=beat.tokens_saved,
        evictions=beat.evictions,
    )
