"""What goes on in a cluster all day: pods that come and go, kubelets that report, workloads that
change."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timezone
from typing import Final

from bench.scale import objects
from bench.scale.agents import Agent, Crowd
from bench.scale.cluster import RENEW, TOKEN_S, Cluster, Made
from bench.scale.objects import Size

NODE_BEAT_S: Final = 300.0
"""Of a kubelet's status when nothing changed."""

WORKLOAD_S: Final = 6_000.0
"""How long an agent's prompts stay of a kind."""

AGENT_BEGINS_S: Final = 3.0


class Life:
    """Runs a filled cluster until cancelled."""

    def __init__(
        self, cluster: Cluster, crowd: Crowd, size: Size, pods: list[Made], dice: random.Random
    ) -> None:
        self._cluster = cluster
        self._crowd = crowd
        self._size = size
        self._pods = deque(pods)
        self._next = size.pods
        self._dice = dice
        self.replaced = 0

    def start_agents(self, over_s: float) -> None:
        """All of them, in the course of that time."""
        for pod in self._pods:
            self._start(pod, self._dice.uniform(0, over_s))

    async def run(self) -> None:
        await asyncio.gather(self._replace_pods(), self._beat_nodes(), self._change_workloads())

    async def _replace_pods(self) -> None:
        async for _ in _ticks(self._size.pod_life_s / self._size.pods):
            old = self._pods.popleft()
            self._crowd.stop(old.uid)
            await self._cluster.delete_pod(old.at)
            # The one that comes has the old one's node and pool, as a rolling update would.
            self._next += 1
            name = f"{old.at.pool}-7f8a9b-{self._next:06d}"
            at = objects.Place(old.at.namespace, old.at.pool, name, old.at.node, old.at.has_disk)
            pod = await self._cluster.make_pod(at)
            self._pods.append(pod)
            self._start(pod, AGENT_BEGINS_S)
            self.replaced += 1

    async def _beat_nodes(self) -> None:
        number = 0
        async for _ in _ticks(NODE_BEAT_S / self._size.nodes):
            now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            await self._cluster.beat_node(objects.node_name(number % self._size.nodes), now)
            number += 1

    async def _change_workloads(self) -> None:
        async for _ in _ticks(WORKLOAD_S / self._size.pods):
            self._crowd.change_workloads(1, self._dice)

    def _start(self, pod: Made, first_s: float) -> None:
        agent = Agent(pod.at, pod.uid, self._tokens(pod), random.Random(self._dice.random()))
        self._crowd.start(pod.uid, agent, first_s=first_s)

    def _tokens(self, pod: Made) -> Callable[[], str]:
        def renewed() -> Iterator[str]:
            while True:
                token, until_s = self._cluster.token(pod), time.monotonic() + TOKEN_S * RENEW
                while time.monotonic() < until_s:
                    yield token

        tokens = renewed()
        return lambda: next(tokens)


async def _ticks(every_s: float) -> AsyncIterator[None]:
    """At fixed moments; those that were missed are made up for."""
    begin_s, count = time.monotonic(), 0
    while True:
        count += 1
        await asyncio.sleep(max(0.0, begin_s + count * every_s - time.monotonic()))
        yield
