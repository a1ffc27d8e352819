"""Keeps pods' requests in step with grants, where the installation allows it."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onggi_operator.apply.resizes import ask_memory
from onggi_operator.apply.together import together
from onggi_operator.kube.client import ApiClient, ApiError, Conflict
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.agent_request import AgentRequest
from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.plan.resizes import (
    AskMemory,
    Blocked,
    ResizeState,
    Resizing,
    block,
    blocked_by,
    request_of,
)
from onggi_operator.pool import Pool

ASKED_PER_ROUND_MAX: Final = 8
"""Four a second: what a node shares out anew is a handful of pods, and a grant that waits for its
request a round longer costs some hits."""

AGAIN_S: Final = 10.0
"""Between two changes of one pod, and as long as what was asked is believed without being seen."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    memory_bytes: int
    at_s: float


class Resizer:
    """A round is `begin`, `look` and `note` for each node, and `write`."""

    def __init__(self, api: ApiClient, *, allowed: bool) -> None:
        self._api = api
        self._allowed = allowed
        self._asked: dict[str, _Asked] = {}
        self._blocked: dict[str, Blocked] = {}
        self._requests: dict[str, AgentRequest] = {}
        """Of this round."""
        self._due: list[AskMemory] = []

    def begin(self, *, now_s: float) -> None:
        """Forget who was not seen in the last round."""
        if self._allowed:
            seen = self._requests.keys()
            self._asked = {
                uid: asked
                for uid, asked in self._asked.items()
                if uid in seen and now_s - asked.at_s < AGAIN_S
            }
            self._blocked = {uid: one for uid, one in self._blocked.items() if uid in seen}
            self._requests, self._due = {}, []

    def look(
        self, agents: Iterable[AgentSnapshot], pools: Mapping[Key, Pool], *, now_s: float
    ) -> Resizing:
        """What a node's plan goes by."""
        if not self._allowed:
            return Resizing()
        asked, blocked = {}, {}
        for one in agents:
            pool = pools.get((one.namespace, one.pool))
            request = request_of(one, pool, Resizing(allowed=True))
            if request is None:
                continue
            self._requests[one.uid] = request
            if (before := self._asked.get(one.uid)) is not None:
                asked[one.uid] = before.memory_bytes
            known = self._blocked.get(one.uid)
            # A kubelet's word is of what was asked when it said so.
            found = None if before else blocked_by(request, known, now_s=now_s)
            if found is not None:
                self._blocked[one.uid] = known = found
                told = {"namespace": one.namespace, "pod": one.pod, "state": found.state.value}
                log.info("a node does not let an agent's pod request more", extra=told)
            if known is not None and now_s < known.until_s:
                blocked[one.uid] = known
        return Resizing(allowed=True, asked=asked, blocked=blocked)

    def note(self, asks: Sequence[AskMemory]) -> None:
        """What a node's plan asks for."""
        self._due += asks

    async def write(self, *, now_s: float) -> int:
        """How many were asked for. What gives room goes first; one that is refused keeps no other
        from being asked. Raises Unreachable."""
        due = [ask for ask in self._due if ask.uid not in self._asked]
        due.sort(key=lambda ask: (ask.grows, ask.uid))
        self._due = []
        asks = due[:ASKED_PER_ROUND_MAX]
        await together([self._ask(ask, now_s) for ask in asks])
        return len(asks)

    async def _ask(self, ask: AskMemory, now_s: float) -> None:
        self._asked[ask.uid] = _Asked(ask.memory_bytes, now_s)
        told = {"namespace": ask.namespace, "pod": ask.pod, "bytes": ask.memory_bytes}
        try:
            await ask_memory(self._api, ask)
        except Conflict as changed:
            del self._asked[ask.uid]
            log.info("request not changed: %s", changed, extra=told)
        except ApiError as refused:
            del self._asked[ask.uid]
            before = self._blocked.get(ask.uid)
            request = replace(self._requests[ask.uid], asked_bytes=ask.memory_bytes)
            self._blocked[ask.uid] = block(ResizeState.REFUSED, request, before, now_s=now_s)
            log.warning("request not changed: %s", refused, extra=told)
        else:
            log.info("request changed", extra=told)
