"""Opens warm gates, where the installation allows it."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from onggi_operator.apply.gates import open_gate
from onggi_operator.kube.client import ApiClient, ApiError, Conflict, NotFound
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.observe.pods import PodView
from onggi_operator.plan.gates import plan_gates
from onggi_operator.pool import Pool

AGAIN_S: Final = 10.0
"""What was set is seen within a moment; a pod that is still waiting then is tried once more."""

log = logging.getLogger(__name__)


class GateKeeper:
    """Remembers which gates it opened a moment ago, since what is seen of a pod follows it."""

    def __init__(self, api: ApiClient, agent_of: Callable[[PodView], AgentSnapshot | None]) -> None:
        self._api = api
        self._agent_of = agent_of
        self._tried_s: dict[str, float] = {}

    async def open(
        self, pods: Iterable[PodView], pools: Mapping[Key, Pool], *, now_s: float, now: str
    ) -> int:
        """How many were to be opened. One that is refused keeps no other closed. Raises
        Unreachable."""
        self._tried_s = {uid: at for uid, at in self._tried_s.items() if now_s - at < AGAIN_S}
        waiting = (pod for pod in pods if pod.gated and pod.uid not in self._tried_s)
        gates = plan_gates(waiting, pools, self._agent_of, now_s=now_s, now=now)
        for gate in gates:
            self._tried_s[gate.uid] = now_s
            told = {"namespace": gate.namespace, "pod": gate.pod, "reason": gate.reason.value}
            try:
                await open_gate(self._api, gate, now=now)
                log.info("warm gate opened", extra=told)
            except (NotFound, Conflict) as gone:
                log.info("warm gate not opened: %s", gone, extra=told)
            except ApiError as refused:
                log.error("warm gate not opened: %s", refused, extra=told)
        return len(gates)
