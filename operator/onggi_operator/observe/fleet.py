"""Nodes, and what agents hold of them: changed by plain calls, read as frozen snapshots."""

import zlib
from collections import defaultdict
from collections.abc import Container, Mapping, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from onggi_core.heartbeat import Heartbeat, TierBytes
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.accounts import Account, Report
from onggi_operator.observe.agent_request import AgentRequest
from onggi_operator.observe.nodes import CacheNodeView, NodeView
from onggi_operator.observe.pods import AgentSizes, Neighbour, PodView

LEASE_S: Final = 60.0
"""How long an agent is charged after its pod is gone. The API server forgets a pod once its
containers have ended, but for one that was deleted by force, or whose node is cut off."""

PHASE_S: Final = 60.0
"""The default interval between two moves on a node."""

ACCOUNTS_MAX: Final = 20_000
"""Twice the largest cluster planned for."""

_uid: Final = attrgetter("uid")

NOTHING_BACKED: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(slots=True)
class AgentSnapshot:
    """An injected pod on its node, and what its agent last said. `held` None: never heard. Nobody
    changes one; to have Python see to that would make it four times as dear, and this one, claims
    and takers are made for each agent in each round."""

    uid: str
    namespace: str
    pod: str
    pool: str
    sizes: AgentSizes
    deleting: bool
    gone: bool
    newborn: bool
    heard_s: float | None
    began_s: float
    moved_s: float | None
    target_bytes: int | None
    granted_bytes: int | None
    answered_bytes: int | None
    held: TierBytes | None
    used: TierBytes
    ready_bytes: int
    tokens_per_s: float
    curve: tuple[tuple[int, float], ...]
    pending_blocks: int
    draining: bool
    request: AgentRequest | None = None
    """None where its pod's request cannot follow what it is granted."""


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node and all that is on it. `own` is Onggi's object of it, None before there is one;
    `requested_bytes` is what pods asked of its memory, agents included."""

    node: NodeView
    own: CacheNodeView | None
    requested_bytes: int
    agents: tuple[AgentSnapshot, ...]
    since_look_s: float
    """Since it was last looked at who should have more of it."""


class Fleet:
    """`pods`, `nodes` and `own` are kept current by others; `started_s` is when this operator
    began, and pods made after `newborn_after` (in the API's notation) surely were made under it. A
    round is `look()`, and for each node `node()`, a plan and `grant()` without an await between."""

    def __init__(
        self,
        pods: Mapping[Key, PodView | Neighbour],
        nodes: Mapping[Key, NodeView],
        own: Mapping[Key, CacheNodeView],
        *,
        started_s: float,
        newborn_after: str,
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._own = own
        self._started_s = started_s
        self._newborn_after = newborn_after
        self._accounts: dict[str, Account] = {}
        self._gone: dict[str, PodView] = {}
        """Pods that have gone since a round saw them, of agents that were heard: charged until
        their lease ends."""
        self._gone_from: Mapping[str, list[PodView]] = {}
        """The same by node."""
        self._here: dict[str, list[PodView]] = {}
        """Pods with an agent, by node, in the order of their uids."""
        self._members: Mapping[Key, list[PodView]] = {}
        """Pods with an agent, by the pool that they ask for."""
        self._requested: dict[str, int] = {}
        self._looked_s: dict[str, float] = {}
        self._leaving: frozenset[str] = frozenset()

    def hear(self, beat: Heartbeat, *, now_s: float) -> Report:
        account = self._accounts.get(beat.pod_uid)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                return Report.TOO_MANY
            account = Account(beat.pod_uid, beat.node, now_s, now_s)
            self._accounts[beat.pod_uid] = account
        return account.hear(beat, now_s=now_s)

    def mark(self, uid: str) -> str:
        """What an agent whose report was doubted has to repeat."""
        account = self._accounts.get(uid)
        return account.mark if account else ""

    def answer(self, uid: str) -> int | None:
        """The memory that an agent is told now; None to leave it what it has."""
        account = self._accounts.get(uid)
        return account.answer() if account else None

    def node_uids(self) -> dict[str, str]:
        """Nodes that there are, by name."""
        return {node.name: node.uid for node in self._nodes.values()}

    def is_leaving(self, uid: str) -> bool:
        """Whether an agent's pod is to leave its node, or this world: so it was when last looked
        at."""
        return uid in self._leaving

    def looked(self, name: str, *, now_s: float) -> None:
        """Who should have more of this node was looked at now."""
        self._looked_s[name] = now_s

    def disk_bytes(self, key: Key) -> int:
        """What a pod's disk was made for; 0 when there is none, or the pod is not known yet."""
        pod = self._pods.get(key)
        return pod.sizes.disk_bytes if isinstance(pod, PodView) and pod.sizes else 0

    def grant(
        self,
        targets: Mapping[str, int],
        told: Mapping[str, int],
        moved: Set[str],
        *,
        now_s: float,
        backed: Mapping[str, int] = NOTHING_BACKED,
    ) -> None:
        """What a plan decided: where agents are to come, what they are told from now on on the way
        there, and which were moved for what they are worth. `backed`: agents that are not to hold
        more than their pods request, and how much that is."""
        for uid, size_bytes in targets.items():
            self._accounts[uid].target_bytes = size_bytes
        for uid, size_bytes in told.items():
            self._accounts[uid].granted_bytes = size_bytes
            self._accounts[uid].backed_bytes = backed.get(uid)
        for uid in moved:
            self._accounts[uid].moved_s = now_s

    def look(self, *, now_s: float) -> tuple[str, ...]:
        """Note which pod is where, forget agents that hold nothing any more, and name all nodes."""
        here: dict[str, list[PodView]] = {name: [] for _, name in self._nodes}
        requested = dict.fromkeys(here, 0)
        members: defaultdict[Key, list[PodView]] = defaultdict(list)
        for pod in self._pods.values():
            node = pod.node
            if node in here:
                requested[node] += pod.request_bytes
            if isinstance(pod, PodView) and pod.sizes is not None:
                members[pod.namespace, pod.pool].append(pod)
                if node in here:
                    here[node].append(pod)
        for pods in here.values():
            pods.sort(key=_uid)
        self._forget({pod.uid for pods in here.values() for pod in pods}, here, now_s)
        self._here, self._requested, self._members = here, requested, members
        leaving = {node.name for node in self._nodes.values() if node.leaving}
        self._leaving = frozenset(
            [
                pod.uid
                for name, pods in here.items()
                for pod in pods
                if pod.deleting or name in leaving
            ]
        )
        self._looked_s = {name: at for name, at in self._looked_s.items() if name in here}
        return tuple(sorted(here))

    def _forget(self, alive: Set[str], here: Container[str], now_s: float) -> None:
        """Agents whose pods are gone are charged until their lease ends."""
        for uid, account in list(self._accounts.items()):
            if uid not in alive and (
                now_s - account.heard_s >= LEASE_S or account.node not in here
            ):
                del self._accounts[uid]
                self._gone.pop(uid, None)
        for uid in alive & self._gone.keys():
            del self._gone[uid]
        for pods in self._here.values():
            for pod in pods:
                known = self._accounts.get(pod.uid) if pod.uid not in alive else None
                if known is not None and known.held is not None:
                    self._gone[pod.uid] = pod
        gone_from: defaultdict[str, list[PodView]] = defaultdict(list)
        for uid, pod in self._gone.items():
            gone_from[self._accounts[uid].node].append(pod)
        self._gone_from = gone_from

    def agent(self, pod: PodView) -> AgentSnapshot | None:
        """A pod's agent as it is at this moment; None for a pod without."""
        return self._agent(pod) if pod.sizes is not None else None

    def members(self, pool: Key) -> tuple[AgentSnapshot, ...]:
        """A pool's agents on all nodes and on none yet, as they are at this moment."""
        agents = [self._agent(pod) for pod in self._members.get(pool, ())]
        gone = [pod for pod in self._gone.values() if (pod.namespace, pod.pool) == pool]
        return tuple(sorted((*agents, *map(self._ghost, gone)), key=_uid))

    def node(self, name: str, *, now_s: float) -> NodeSnapshot | None:
        """A node as it is at this moment; None when it went away since the last look."""
        node = self._nodes.get(("", name))
        if node is None or name not in self._here:
            return None
        agents = [self._agent(pod) for pod in self._here[name]]
        if gone := self._gone_from.get(name):
            agents = sorted((*agents, *map(self._ghost, gone)), key=_uid)
        return NodeSnapshot(
            node,
            self._own.get(("", name)),
            self._requested[name],
            tuple(agents),
            now_s - self._looked_s.get(name, self._first_look_s(name)),
        )

    def _first_look_s(self, name: str) -> float:
        """As if nodes had been looked at before this operator began, each at a moment of its own:
        a thousand of them are not all due at once."""
        return self._started_s - PHASE_S * (zlib.crc32(name.encode()) % 1000) / 1000

    def _ghost(self, pod: PodView) -> AgentSnapshot:
        """Of a pod that is gone, what its agent may hold still: what it was told last counts."""
        return replace(self._agent(pod), gone=True)

    def _agent(self, pod: PodView) -> AgentSnapshot:
        assert pod.sizes is not None, "look() keeps pods with an agent"
        account = self._accounts.get(pod.uid)
        known = account or Account(pod.uid, pod.node, 0.0, 0.0)
        # In the order of the fields: by name it would take twice as long, and this is made for each
        # agent in each round.
        return AgentSnapshot(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.pool,
            pod.sizes,
            pod.deleting,
            False,  # noqa: FBT003 - gone: its pod is here
            # Newborn: nobody can have told an agent to grow that has no node yet.
            not pod.node or pod.created > self._newborn_after,
            None if account is None else account.heard_s,
            known.began_s,
            known.moved_s,
            known.target_bytes,
            known.granted_bytes,
            known.answered_bytes,
            known.held,
            known.used,
            known.ready_bytes,
            known.demand.tokens_per_s,
            known.curve,
            known.pending_blocks,
            known.draining,
            pod.request,
        )
