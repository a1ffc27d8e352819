"""Agents as the controller sees them: one TLS connection each, a report at the told interval, and
memory that follows the answer. Everything else of a real one is left out, and so a core carries ten
thousand of them."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import dataclasses
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.scale.objects import AGENT_DISK_BYTES, AGENT_MIN_BYTES, GIB, Place
from bench.scale.site import HOST
from onggi_core.heartbeat import (
    Demand,
    Directive,
    Heartbeat,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
    dump_heartbeat,
    parse_directive,
)
from onggi_operator.serving import TLS_READ_BYTES
from onggi_sidecar.heartbeat import BACKOFF_S_MAX, DOUBLINGS_MAX, INTERVAL_S, JITTER, TIMEOUT_S

HANDSHAKES_MAX: Final = 50
"""At once, so that those who wait in line do so here and not within their time limit."""

NOISE: Final = 0.03
"""By how much a curve is off from one report to the next."""

CURVE_SIZES: Final = (GIB // 4, GIB // 2, GIB, 2 * GIB, 4 * GIB)


@dataclass
class Tally:
    """What came of the reports, by what it was."""

    outcomes: Counter[str] = field(default_factory=Counter)
    waited_s: list[float] = field(default_factory=list)
    connections: int = 0

    def forget(self) -> None:
        """Begin anew."""
        self.outcomes.clear()
        self.waited_s.clear()
        self.connections = 0


class Refused(Exception):
    """An answer other than 200."""


class _Connection:
    """To the controller, made when it is first wanted and again when it is lost."""

    def __init__(
        self, port: int, trust: ssl.SSLContext, line: asyncio.Semaphore, tally: Tally
    ) -> None:
        self._port = port
        self._trust = trust
        self._line = line
        self._tally = tally
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, token: str, body: bytes) -> bytes:
        """Raises Refused, OSError, EOFError, TimeoutError."""
        if self._streams is None or self._streams[0].at_eof():
            async with self._line:
                self._tally.connections += 1
                self._streams = await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._trust, server_hostname=HOST
                )
        reader, writer = self._streams
        head = (
            f"POST /v1/heartbeat HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            answer = await reader.readexactly(int(length.partition(":")[2]))
        status = lines[0].split(" ")[1]
        if status != "200":
            raise Refused(status)
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Agent:
    """One pod's. `token` is asked before each report, since a kubelet would renew it."""

    def __init__(self, at: Place, uid: str, token: Callable[[], str], dice: random.Random) -> None:
        self._token = token
        self._dice = dice
        self._fit_bytes = 0
        self._rate = 0.0
        disk = AGENT_DISK_BYTES if at.has_disk else 0
        size = TierBytes(AGENT_MIN_BYTES, disk)
        self._beat = Heartbeat(
            pool=at.pool,
            namespace=at.namespace,
            pod=at.name,
            pod_uid=uid,
            node=at.node,
            epoch=f"{dice.getrandbits(64):016x}",
            mode=Mode.ACTIVE,
            capacity=size,
            used=size,
            arena_ready_bytes=AGENT_MIN_BYTES,
            hits=TierBlocks(),
            lookups=Lookups(),
            tokens_saved=0,
            evictions=0,
            errors={},
            fingerprints=("ab" * 16,),
            clients=1,
            held=size,
        )
        self.change_workload()

    def change_workload(self) -> None:
        """Other prompts: how much memory they would need, and how many tokens a second."""
        self._fit_bytes = self._dice.randrange(GIB // 2, 6 * GIB)
        self._rate = self._dice.uniform(200, 20_000)

    def report(self, past_s: float) -> bytes:
        """The next one. Everything in it moves, as in life."""
        beat, blocks = self._beat, int(self._rate * past_s / 16)
        share = min(1.0, beat.capacity.host_bytes / self._fit_bytes) * 0.6
        hits = int(blocks * share)
        self._beat = dataclasses.replace(
            beat,
            sequence=beat.sequence + 1,
            hits=TierBlocks(beat.hits.host_blocks + hits, 0),
            lookups=Lookups(
                beat.lookups.requests + blocks // 64,
                beat.lookups.blocks + blocks,
                beat.lookups.miss_blocks + blocks - hits,
            ),
            tokens_saved=beat.tokens_saved + hits * 16,
            evictions=beat.evictions + blocks - hits,
            demand=Demand(beat.demand.asked_tokens + blocks * 16, self._curve()),
        )
        return dump_heartbeat(self._beat)

    def _curve(self) -> tuple[tuple[int, float], ...]:
        """Hit rate by size, a little off each time."""
        share, points = 0.0, []
        for size in CURVE_SIZES:
            noisy = (
                0.6 * min(1.0, size / self._fit_bytes) * self._dice.uniform(1 - NOISE, 1 + NOISE)
            )
            share = max(share, round(noisy, 4))
            points.append((size, share))
        return tuple(points)

    def obey(self, told: Directive) -> None:
        if told.host_bytes is None:
            return
        size = TierBytes(told.host_bytes, self._beat.capacity.disk_bytes)
        self._beat = dataclasses.replace(
            self._beat, capacity=size, used=size, held=size, arena_ready_bytes=size.host_bytes
        )

    async def run(self, connection: _Connection, tally: Tally, first_s: float) -> None:
        """Until cancelled; the first report after `first_s`."""
        failures, interval_s = 0, INTERVAL_S
        try:
            await asyncio.sleep(first_s)
            last_s = time.monotonic()
            while True:
                now_s = time.monotonic()
                try:
                    answer = await connection.post(self._token(), self.report(now_s - last_s))
                except (Refused, OSError, EOFError, TimeoutError) as fault:
                    tally.outcomes[f"{type(fault).__name__} {fault}".strip()[:80]] += 1
                    if not isinstance(fault, Refused):
                        connection.close()
                    failures += 1
                else:
                    told = parse_directive(answer)
                    self.obey(told)
                    failures, interval_s = 0, told.interval_s
                    tally.outcomes["200"] += 1
                    tally.waited_s.append(time.monotonic() - now_s)
                last_s = now_s
                doubled_s = interval_s * 2 ** min(failures, DOUBLINGS_MAX)
                pause_s = min(doubled_s, max(BACKOFF_S_MAX, interval_s))
                await asyncio.sleep(pause_s * self._dice.uniform(1 - JITTER, 1 + JITTER))
        finally:
            connection.close()


class Crowd:
    """Agents that run. `tally` is of all of them."""

    def __init__(self, port: int, ca_pem: str) -> None:
        self._port = port
        self._trust = ssl.create_default_context(cadata=ca_pem)
        asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES  # all of them are in this process
        self._line = asyncio.Semaphore(HANDSHAKES_MAX)
        self._running: dict[str, tuple[Agent, asyncio.Task[None]]] = {}
        self.tally = Tally()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, uid: str, agent: Agent, *, first_s: float) -> None:
        connection = _Connection(self._port, self._trust, self._line, self.tally)
        task = asyncio.create_task(agent.run(connection, self.tally, first_s))
        self._running[uid] = (agent, task)

    def stop(self, uid: str) -> None:
        self._running.pop(uid)[1].cancel()

    def change_workloads(self, count: int, dice: random.Random) -> None:
        for agent, _ in dice.sample(list(self._running.values()), min(count, len(self))):
            agent.change_workload()

    def failed(self) -> list[BaseException]:
        """Of agents that ended with a fault, which none is meant to."""
        ended = [task for _, task in self._running.values() if task.done()]
        return [fault for task in ended if (fault := task.exception()) is not None]

    async def close(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for uid in list(self._running):
            self.stop(uid)
        await asyncio.gather(*tasks, return_exceptions=True)
