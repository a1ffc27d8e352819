"""A real agent's reports: what it says of itself, and what it does with the answer."""

import asyncio
from pathlib import Path

from agent_process import AgentProcess, BareClient, chain, until
from stand_in_operator import Operator, run, serving

from onggi_core.heartbeat import Mode, TierBlocks, TierBytes


def test_what_an_agent_did_since_its_last_report_is_told_when_it_ends(memory_folder: Path) -> None:
    async def scene() -> None:
        async with serving(interval_s=60.0) as operator:
            await asyncio.to_thread(agent_tells_at_its_end, memory_folder, operator)

    run(scene())


def agent_tells_at_its_end(folder: Path, operator: Operator) -> None:
    agent = AgentProcess(
        folder,
        *("--memory", "16MiB", "--extent", "4MiB"),
        ONGGI_AGENT_OPERATOR_URL=f"http://127.0.0.1:{operator.port}",
        ONGGI_AGENT_POOL="chat",
        ONGGI_AGENT_NAMESPACE="team-a",
        ONGGI_AGENT_POD_NAME="chat-0",
    )
    until("the first report", lambda: bool(operator.beats))
    client = BareClient(agent)
    assert client.store(chain(3)) == 3
    assert client.load(tuple(chain(3))) == list(chain(3).values())
    client.close()
    assert agent.end() == 0
    (first, last) = operator.beats
    assert (first.hits, first.tokens_saved) == (TierBlocks(0, 0), 0)
    assert (last.hits, last.lookups.blocks) == (TierBlocks(3, 0), 3)
    assert last.sequence == 2
    agent.clean_up()


def test_an_agent_takes_its_mode_from_the_operator(memory_folder: Path) -> None:
    async def scene() -> None:
        async with serving(mode=Mode.PAUSED) as operator:
            await asyncio.to_thread(paused_agent_stores_nothing, memory_folder, operator)

    run(scene())


def paused_agent_stores_nothing(folder: Path, operator: Operator) -> None:
    agent = AgentProcess(
        folder,
        *("--memory", "16MiB", "--extent", "4MiB"),
        ONGGI_AGENT_OPERATOR_URL=f"http://127.0.0.1:{operator.port}",
        ONGGI_AGENT_POOL="chat",
        ONGGI_AGENT_NAMESPACE="team-a",
        ONGGI_AGENT_POD_NAME="chat-0",
        ONGGI_AGENT_POD_UID="uid-1",
        ONGGI_AGENT_NODE_NAME="n1",
    )
    agent.wait_for("mode_set")
    client = BareClient(agent)
    until("the mode to be in force", lambda: client.stats()["mode"] != "Active")
    assert client.store(chain(3)) == 0
    client.close()
    beat = operator.beats[0]
    assert (beat.pool, beat.namespace, beat.pod, beat.node) == ("chat", "team-a", "chat-0", "n1")
    assert beat.capacity == TierBytes(16 * 2**20, 0)
    assert agent.end() == 0
    agent.clean_up()


def test_an_agent_that_is_to_drain_says_so_and_what_is_left(memory_folder: Path) -> None:
    async def scene() -> None:
        async with serving() as operator:
            await asyncio.to_thread(agent_drains, memory_folder, operator)

    run(scene())


def agent_drains(folder: Path, operator: Operator) -> None:
    agent = AgentProcess(
        folder,
        *("--memory", "16MiB", "--extent", "4MiB"),
        *("--disk", "64MiB", "--disk-path", str(folder / "disk")),
        ONGGI_AGENT_OPERATOR_URL=f"http://127.0.0.1:{operator.port}",
        ONGGI_AGENT_POOL="chat",
        ONGGI_AGENT_NAMESPACE="team-a",
        ONGGI_AGENT_POD_NAME="chat-0",
    )
    agent.wait_for("listening")
    client = BareClient(agent)
    assert client.store(chain(3)) == 3
    operator.drain = True
    agent.wait_for("drain_begun")
    assert client.store(chain(5, seed=1)) == 5, "until it goes, it serves"
    until("all blocks to be written", lambda: client.stats()["pending_blocks"] == 0)
    until("a report of it", lambda: operator.beats[-1].draining)
    assert [beat.sequence for beat in operator.beats] == [*range(1, len(operator.beats) + 1)]
    assert operator.beats[-1].held == TierBytes(16 * 2**20, operator.beats[-1].capacity.disk_bytes)
    client.close()
    assert agent.end() == 0
    assert agent.wait_for("blocks_left")["left_blocks"] == 0
    agent.clean_up()
