"""An operator without a cluster: its endpoint, its accounts and its planner, on loopback.

What is left out is the API server: pods, nodes and pools are handed in as it would tell them, and
what would be written to it is dropped. Agents report to it as they do in a pod.
"""

from __future__ import annotations

import asyncio
import copy
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry

from bench.machine import ROOT
from onggi_operator.heartbeat.desk import Desk
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import Caller
from onggi_operator.node_rounds import NodeRounds
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.nodes import CacheNodeView, NodeView
from onggi_operator.observe.pods import AgentSizes, PodView
from onggi_operator.observe.world import World
from onggi_operator.plan.nodes import ToldMove
from onggi_operator.resizer import Resizer
from onggi_operator.round_times import RoundTimes

SCHEMA: Final = ROOT / "crds/v1alpha1/kvcachepools.yaml"
NAMESPACE: Final = "bench"
STARTED: Final = "2026-01-01T00:00:00Z"
ROUND_S: Final = 1.0
HEARTBEAT_S: Final = 1.0
STOP_S: Final = 20.0


def pool_body(name: str, *, rebalance: str, memory_bytes: int) -> dict[str, Any]:
    """A pool as the API server returns it: the schema fills in all that is not said here."""
    spec = {
        "tiers": [{"type": "Memory", "memory": {"max": str(memory_bytes)}}],
        "placement": {
            "rebalance": rebalance,
            "interval": "10s",
            "step": "128Mi",
            "scheduling": "Off",
        },
        "lifecycle": {"rampUp": "0s"},
    }
    crd = yaml.safe_load(SCHEMA.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    meta = {"namespace": NAMESPACE, "name": name, "uid": name, "generation": 1}
    return {"metadata": meta, "spec": _defaulted(schema, spec)}


def _defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    """As the API server does it: defaults of what is missing, inside what is there."""
    if isinstance(value, dict):
        fields = schema.get("properties", {})
        missing = {k: copy.deepcopy(v["default"]) for k, v in fields.items() if "default" in v}
        return {k: _defaulted(fields.get(k, {}), v) for k, v in {**missing, **value}.items()}
    if isinstance(value, list):
        return [_defaulted(schema.get("items", {}), one) for one in value]
    return value


def pod(name: str, *, pool: str, node: str, sizes: AgentSizes) -> PodView:
    """An injected pod that runs."""
    return PodView(
        namespace=NAMESPACE,
        name=name,
        uid=name,
        pool=pool,
        created=STARTED,
        stamp=None,
        running=True,
        deleting=False,
        node=node,
        sizes=sizes,
    )


def nodes(names: tuple[str, ...], *, offer_bytes: int) -> dict[str, tuple[NodeView, CacheNodeView]]:
    """Nodes that give agents so much together."""
    return {
        name: (
            NodeView(name, name, offer_bytes, 0, ready=True, leaving=False),
            CacheNodeView(name, 1, offer_bytes, {}),
        )
        for name in names
    }


class _Believing:
    """Takes a token for the name of the pod that sends it."""

    async def caller(self, token: str) -> Caller:
        return Caller(NAMESPACE, token, token)


class OperatorSite:
    """`with OperatorSite(...) as site:` serves on `site.url`, in a thread of its own. The port is
    taken before that, so that agents can be started by a process that has no threads yet."""

    def __init__(
        self,
        pools: tuple[dict[str, Any], ...],
        pods: tuple[PodView, ...],
        nodes: Mapping[str, tuple[NodeView, CacheNodeView]],
    ) -> None:
        by_key = {(one.namespace, one.name): one for one in pods}
        began_s = time.monotonic()
        self.world = World(by_key, started=STARTED, started_s=began_s, interval_s=HEARTBEAT_S)
        for body in pools:
            self.world.see_pool(body)
        self._fleet = Fleet(
            by_key,
            {("", name): node for name, (node, _) in nodes.items()},
            {("", name): own for name, (_, own) in nodes.items()},
            started_s=began_s,
            newborn_after=STARTED,
        )
        nowhere: Any = None  # nothing is written here
        times = RoundTimes(CollectorRegistry())
        resizer = Resizer(nowhere, allowed=False)
        self._rounds = NodeRounds(
            nowhere, self.world, self._fleet, time.monotonic, times, resizer, share=0.5
        )
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def moves(self, pool: str) -> Sequence[ToldMove]:
        """What was last planned for a pool's agents."""
        return self._rounds.moves()[NAMESPACE, pool]

    def __enter__(self) -> OperatorSite:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        believing: Any = _Believing()
        desk = Desk(self.world, self._fleet)
        server = HeartbeatServer(lambda: desk, believing, time.monotonic, CollectorRegistry())
        runner = web.AppRunner(server.app(), access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket).start()
            while not self._stop.is_set():
                await self._rounds.plan(now=STARTED)
                await asyncio.sleep(ROUND_S)
        finally:
            await runner.cleanup()
