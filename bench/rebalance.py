"""Memory that follows value against equal shares: real agents, real reports, a public trace.

Four agents in two pairs, each pair on a node of its own that has memory for half of what both could
use. In each pair one agent serves the trace's conversations (prompts that go on from others) and
one its single prompts. One pair's memory stays in equal shares; the other pair's follows what it
brings. All four replay at once and at the same pace, so a busy machine costs both pairs alike.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Final

from bench.agent import AgentUnderTest, space_for
from bench.entries import Against, Entry, Row, Unit
from bench.operator_site import NAMESPACE, OperatorSite, nodes, pod, pool_body
from bench.replay import trace
from bench.sizes import MIB, Sizes
from onggi import Client, LoadOutcome, StoreOutcome
from onggi_core.identity import ROOT
from onggi_operator.observe.pods import AgentSizes

PAGE_BYTES: Final = 128 * 1024
BLOCK_TOKENS: Final = 512
FLOOR_BYTES: Final = 64 * MIB
CEILING_BYTES: Final = 448 * MIB
NODE_BYTES: Final = 512 * MIB
"""Half of what both agents could use: an equal share is 2,048 blocks."""

BLOCKS: Final = 60_000
QUICK_BLOCKS: Final = 3_000
"""Of each workload."""

BLOCKS_PER_S: Final = 800
"""A little under what an agent shows its ghost caches, so that their curves are of the same past as
the blocks that it serves."""

FAMILY_MIN: Final = 4
"""Prompts with the same second block (the first is the same for all), from which on they are taken
for turns of a conversation."""

WAIT_S: Final = 30.0
COMMAND: Final = "python -m bench rebalance"
HOW: Final = (
    "Share of the blocks asked for that two agents of one node hit together, one of which serves "
    "the conversations of an hour of a chat service and the other its single prompts; the node has "
    "memory for half of what both could use. equal_shares: the same requests at the same time, to "
    "two agents whose memory the operator leaves in equal shares."
)

Prompt = tuple[bytes, ...]


def rebalances(sizes: Sizes) -> list[Entry]:
    """Raises NoTrace where the trace is missing."""
    work = dict(zip(("talks", "singles"), _workloads(), strict=True))
    blocks = QUICK_BLOCKS if sizes.quick else BLOCKS
    rates = _measure({name: _first(prompts, blocks) for name, prompts in work.items()})
    row = Row("rebalance_hits", rates["value"], Unit.SHARE, {"equal_shares": rates["equal"]})
    return [Entry(row, (Against("equal_shares", 1.0),), COMMAND, HOW)]


def _workloads() -> tuple[list[Prompt], list[Prompt]]:
    with trace().open() as file:
        prompts = [json.loads(line)["hash_ids"] for line in file]
    families = Counter(ids[1] for ids in prompts if len(ids) > 1)
    talks: list[Prompt] = []
    singles: list[Prompt] = []
    for ids in prompts:
        goes_on = len(ids) > 1 and families[ids[1]] >= FAMILY_MIN
        (talks if goes_on else singles).append(tuple(_key(one) for one in ids))
    return talks, singles


def _key(number: int) -> bytes:
    """Spread evenly, as prefix hashes are: ghost caches take a sample by a key's last bits."""
    return hashlib.sha256(number.to_bytes(8, "big")).digest()[:16]


def _first(prompts: list[Prompt], blocks: int) -> list[Prompt]:
    taken: list[Prompt] = []
    for prompt in prompts:
        if blocks <= 0:
            break
        taken.append(prompt)
        blocks -= len(prompt)
    return taken


def _measure(work: dict[str, list[Prompt]]) -> dict[str, float]:
    """Hit rates of the pairs, by node."""
    sizes = AgentSizes(FLOOR_BYTES, CEILING_BYTES, 0)
    modes = {"equal": "Off", "value": "Auto"}
    pools = tuple(
        pool_body(node, rebalance=mode, memory_bytes=CEILING_BYTES) for node, mode in modes.items()
    )
    pods = tuple(
        pod(f"{node}-{kind}", pool=node, node=node, sizes=sizes) for node in modes for kind in work
    )
    tallies = {one.name: Tally() for one in pods}
    given = nodes(tuple(modes), offer_bytes=NODE_BYTES)
    with ExitStack() as stack:
        site = OperatorSite(pools, pods, given)
        agents = {
            one.name: stack.enter_context(_agent(site.url, one.pool, one.name)) for one in pods
        }
        stack.enter_context(site)
        for name, agent in agents.items():
            agent.wait_until(
                lambda stats: stats["arena_ready_bytes"] >= NODE_BYTES // 2, f"{name}'s share"
            )
        threads = [
            threading.Thread(
                target=_replay, args=(agent, work[name.split("-")[1]], tallies[name]), daemon=True
            )
            for name, agent in agents.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        node: sum(tallies[f"{node}-{kind}"].hits for kind in work)
        / sum(tallies[f"{node}-{kind}"].asked for kind in work)
        for node in modes
    }


class _Launched(AgentUnderTest):
    """Not waited for: the operator that it is to report to starts after it."""

    def start(self) -> None:
        self.launch()


def _agent(url: str, pool: str, name: str) -> AgentUnderTest:
    return _Launched(
        memory=str(FLOOR_BYTES),
        identity={
            "POOL": pool,
            "NAMESPACE": NAMESPACE,
            "POD_NAME": name,
            "POD_UID": name,
            "NODE_NAME": pool,
            "OPERATOR_URL": url,
        },
        flags=("--memory-max", str(CEILING_BYTES)),
    )


class Tally:
    """What one agent was asked and had."""

    def __init__(self) -> None:
        self.asked = 0
        self.hits = 0


def _replay(agent: AgentUnderTest, prompts: list[Prompt], tally: Tally) -> None:
    """As an engine asks: load what there is of a prompt, store the rest. Bytes are no matter here,
    so none are copied."""
    client = agent.client(space_for(PAGE_BYTES, BLOCK_TOKENS))
    begun_s = time.monotonic()
    for prompt in prompts:
        due_s = begun_s + tally.asked / BLOCKS_PER_S
        time.sleep(max(0.0, due_s - time.monotonic()))
        tally.asked += len(prompt)
        tally.hits += _ask(client, prompt)
    client.close()


def _ask(client: Client, prompt: Prompt) -> int:
    load = client.load_prepare(prompt).wait(WAIT_S)
    client.finish_load(load, LoadOutcome.LOADED)
    missing = prompt[load.blocks :]
    if missing:
        parent = prompt[load.blocks - 1] if load.blocks else ROOT
        client.finish_store(client.store_prepare(missing, parent=parent), StoreOutcome.SEALED)
    return load.blocks
