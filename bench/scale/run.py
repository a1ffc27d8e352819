"""One run: fill the cluster, let the agents in, and watch for a while."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from bench.scale.agents import Crowd
from bench.scale.churn import Life
from bench.scale.cluster import AT_ONCE, Cluster
from bench.scale.objects import Size
from bench.scale.site import Site
from bench.scale.watching import Reading, Watcher

SETTLE_S_MAX: Final = 600.0
"""Until every pod was seen, every agent heard and every node written once."""

AGENTS_STARTED_PER_S: Final = 100
"""A handshake and a review each, on a machine that carries API server and agents as well."""

LIVING_SHARE: Final = 0.99
"""Of all pods: some have just come."""

WINDOWS_MIN: Final = 5
WINDOW_S: Final = 10.0
SAID_EVERY: Final = 12


class NeverSettled(Exception):
    """What did not come about in time."""


@dataclass
class Window:
    """Some seconds of the run, up to `at_s`."""

    seconds: float
    at_s: float
    plan_s: float
    """Of each round, on average."""
    cores: float
    planning_cores: float
    calls: dict[str, float]
    rss_mib: float
    ready: int


@dataclass
class Seen:
    """Of the whole run. `rss_mib` is by what was there; `ready_s` how long it took to hear every
    agent, of those that began together."""

    rss_mib: dict[str, float] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    replaced: int = 0
    ready_s: float = 0.0


async def run(site: Site, size: Size, for_s: float, say: Callable[[str], None]) -> Seen:
    """`say` is told how far it got."""
    seen = Seen()
    connector = aiohttp.TCPConnector(limit=AT_ONCE * 2)
    async with aiohttp.ClientSession(connector=connector) as session:
        cluster = Cluster(site, session)
        watcher = Watcher(site, cluster, session)
        seen.rss_mib["nothing"] = watcher.rss_mib()
        say(f"making {size.nodes} nodes and {size.pods} pods")
        pods = await cluster.fill(size)
        await _until("pods seen", lambda: watcher.pods("injected"), size.pods)
        seen.rss_mib["pods"] = watcher.rss_mib()
        crowd = Crowd(site.port, site.ca_pem)
        life = Life(cluster, crowd, size, pods, random.Random(1))
        try:
            await _let_in(watcher, cluster, life, size, seen, say)
            await _watch(watcher, crowd, life, for_s, seen, say)
        finally:
            await crowd.close()
    return seen


async def _let_in(
    watcher: Watcher,
    cluster: Cluster,
    life: Life,
    size: Size,
    seen: Seen,
    say: Callable[[str], None],
) -> None:
    began_s = time.monotonic()
    say(f"starting agents (controller: {watcher.rss_mib():.0f} MiB)")
    life.start_agents(over_s=size.pods / AGENTS_STARTED_PER_S)
    await _until("agents heard", lambda: watcher.pods("ready"), int(size.pods * LIVING_SHARE))
    seen.ready_s = time.monotonic() - began_s
    say(f"all heard after {seen.ready_s:.0f} s (controller: {watcher.rss_mib():.0f} MiB)")
    await _until("nodes written", cluster.nodes_written, size.nodes)
    seen.rss_mib["agents"] = watcher.rss_mib()


async def _watch(
    watcher: Watcher,
    crowd: Crowd,
    life: Life,
    for_s: float,
    seen: Seen,
    say: Callable[[str], None],
) -> None:
    crowd.tally.forget()
    living = asyncio.create_task(life.run())
    window_s = min(WINDOW_S, for_s / WINDOWS_MIN)
    try:
        before = await watcher.read()
        end_s = before.at_s + for_s
        while before.at_s < end_s:
            await asyncio.sleep(window_s)
            for fault in (*crowd.failed(), *_fault_of(living)):
                raise fault
            now = await watcher.read()
            seen.windows.append(_window(before, now, watcher))
            if len(seen.windows) % SAID_EVERY == 0:
                say(f"{seen.windows[-1]}")
            before = now
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    seen.waited_s, seen.outcomes = crowd.tally.waited_s, dict(crowd.tally.outcomes)
    seen.connections, seen.replaced = crowd.tally.connections, life.replaced


def _fault_of(task: asyncio.Task[None]) -> list[BaseException]:
    return [task.exception() or NeverSettled("life ended")] if task.done() else []


def _window(before: Reading, now: Reading, watcher: Watcher) -> Window:
    past_s = now.at_s - before.at_s
    rounds = now.rounds - before.rounds
    return Window(
        seconds=past_s,
        at_s=now.at_s,
        plan_s=(now.planning_s - before.planning_s) / rounds if rounds else 0.0,
        cores=(now.cpu_s - before.cpu_s) / past_s,
        planning_cores=(now.planning_cpu_s - before.planning_cpu_s) / past_s,
        calls={
            kind: (count - before.calls.get(kind, 0.0)) / past_s
            for kind, count in now.calls.items()
        },
        rss_mib=watcher.rss_mib(),
        ready=now.ready,
    )


async def _until(what: str, count: Callable[[], Awaitable[int]], wanted: int) -> None:
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while (there := await count()) < wanted:
        if time.monotonic() > deadline_s:
            raise NeverSettled(f"{what}: {there} of {wanted} after {SETTLE_S_MAX:.0f} s")
        await asyncio.sleep(1.0)
