"""Budgets that change while a real agent serves: the kernel's own figures have to follow.

The agent runs in a cgroup of the test's own, so that what its memory does is seen where the limit
of a container is enforced.
"""

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import MIB, PAGE_BYTES, AgentProcess, BareClient, chain, until
from fake_operator import Operator
from machine import MemoryGroup
from workers import WORKERS, StartWorker, stop_worker

from onggi import Client, LoadOutcome, SpaceSpec

ARENA_BYTES = 64 * MIB
HALF_BYTES = ARENA_BYTES // 2
BLOCKS = ARENA_BYTES // PAGE_BYTES
SLACK_BYTES = 8 * MIB
"""What else of the group may come and go meanwhile: the process's heap and page cache."""


class Bench:
    """An agent whose configuration lies in a file, and a client of it."""

    def __init__(self, group: MemoryGroup, folder: Path, disk: Path) -> None:
        self.group = group
        self.file = disk.parent / "agent.yaml"
        self.disk = disk
        self.write(memory="64MiB", disk="128MiB")
        flags = ("--config", str(self.file), "--extent", "4MiB", "--disk-path", str(disk))
        join = f"open({str(group.procs)!r}, 'w').write('0')"
        self.agent = AgentProcess(folder, *flags, patch=join)
        self.agent.wait_for("arena_ready")
        self.agent.wait_for("listening")
        self.client = BareClient(self.agent)
        self._engines: list[Client] = []

    def engine(self) -> Client:
        """A client as engines have it."""
        spaces = [SpaceSpec(b"f" * 16, PAGE_BYTES, 16)]
        made = Client(str(self.agent.socket_path), spaces=spaces, deadline_s=20)
        self._engines.append(made)
        return made

    def clean_up(self) -> None:
        for engine in self._engines:
            engine.close()
        self.agent.clean_up()

    def write(self, *, memory: str, disk: str) -> None:
        sizes = {"memory": memory, "memory_max": "96MiB", "disk": disk, "disk_max": "128MiB"}
        self.file.write_text(json.dumps(sizes))

    def set(self, *, memory: str, disk: str = "128MiB") -> None:
        self.write(memory=memory, disk=disk)
        said = len(self.agent.said("budget_set"))
        self.agent.process.send_signal(signal.SIGHUP)
        until("the agent to say so", lambda: len(self.agent.said("budget_set")) > said)
        self.until_heard_of(memory)
        until("it to come about", self.settled)

    def until_heard_of(self, memory: str) -> None:
        """The agent says what it is going to do before its engine does the first step of it."""
        wanted = int(memory.removesuffix("MiB")) * MIB
        until("the engine to know", lambda: self.client.stats()["arena_budget_bytes"] == wanted)

    def settled(self) -> bool:
        stats = self.client.stats()
        leaving = stats["arena_leaving_bytes"] + stats["disk_leaving_bytes"]
        return not leaving and stats["arena_ready_bytes"] == stats["arena_budget_bytes"]

    def shared_bytes(self) -> int:
        return self.group.shared_bytes

    def stored_on_disk_too(self, blocks: dict[bytes, bytes]) -> None:
        for key, page in blocks.items():
            self.client.store({key: page})

        def written() -> bool:
            stats = self.client.stats()
            return not stats["dirty_blocks"] and not stats["writes_in_flight"]

        until("blocks to be on disk too", written)

    def load_all(self, blocks: dict[bytes, bytes]) -> int:
        """How many come back, each of them right."""
        got = [self.client.load((key,)) for key in blocks]
        assert all(g in ([], [page]) for g, page in zip(got, blocks.values(), strict=True))
        return sum(map(len, got))


def bytes_in(folder: Path) -> int:
    """On disk; a file that goes while it is looked at takes none."""
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


@pytest.fixture
def bench(memory_group: MemoryGroup, memory_folder: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(memory_group, memory_folder, tmp_path / "disk")
    yield made
    made.clean_up()


def test_memory_follows_the_budget_down_and_up_in_the_kernels_own_figures(bench: Bench) -> None:
    blocks = chain(BLOCKS)
    bench.stored_on_disk_too(blocks)
    full_bytes, full_used = bench.shared_bytes(), bench.group.used_bytes
    assert 0 <= full_bytes - ARENA_BYTES < MIB

    bench.set(memory="32MiB")
    until("the kernel to have it back", lambda: bench.shared_bytes() - HALF_BYTES < MIB)
    assert full_used - bench.group.used_bytes > HALF_BYTES - SLACK_BYTES
    assert bench.load_all(blocks) == BLOCKS
    assert bench.shared_bytes() - HALF_BYTES < MIB

    bench.set(memory="96MiB")
    assert 0 <= bench.shared_bytes() - 96 * MIB < MIB
    assert bench.load_all(blocks) == BLOCKS
    more = chain(BLOCKS // 4, seed=1)
    bench.client.store(more)
    assert bench.load_all(more) == len(more)
    print(
        f"shared memory: {full_bytes / MIB:.1f} MiB, {HALF_BYTES / MIB:.0f} MiB asked, then "
        f"{bench.shared_bytes() / MIB:.1f} MiB; the group's use fell and rose with it"
    )
    bench.client.close()
    assert bench.agent.end() == 0


def test_an_engine_that_prepares_pages_ahead_takes_back_nothing(bench: Bench) -> None:
    """A client's idle thread fills its page table; under a hole that would make pages of zeros."""
    engine = bench.engine()
    until("it to attach", lambda: engine.attached)
    while engine.populate_next():
        pass
    bench.set(memory="32MiB")
    until("the kernel to have it back", lambda: bench.shared_bytes() - HALF_BYTES < MIB)
    while engine.populate_next():
        pass
    assert bench.shared_bytes() - HALF_BYTES < MIB
    bench.set(memory="64MiB")
    while engine.populate_next():
        pass
    blocks = chain(BLOCKS // 2)
    keys, buffers = list(blocks), [bytearray(PAGE_BYTES) for _ in blocks]
    assert engine.store(keys, list(blocks.values())).refused == 0
    assert engine.load(keys, buffers, wait_s=10) == len(keys)
    assert [bytes(buffer) for buffer in buffers] == list(blocks.values())


def test_what_a_client_holds_is_waited_for(bench: Bench) -> None:
    """A load pinned while the budget shrinks keeps its bytes until it is over."""
    blocks = chain(BLOCKS)
    bench.stored_on_disk_too(blocks)
    engine = bench.engine()
    until("it to attach", lambda: engine.attached)
    keys, pages = list(blocks)[: BLOCKS // 2], list(blocks.values())[: BLOCKS // 2]
    held = engine.load_prepare(keys, wait_s=20).wait(30)
    assert held.blocks == len(keys)
    bench.write(memory="4MiB", disk="128MiB")
    bench.agent.process.send_signal(signal.SIGHUP)
    bench.until_heard_of("4MiB")
    assert not bench.settled()
    buffers = [bytearray(PAGE_BYTES) for _ in keys]
    assert engine.copy_out(held.pages(), buffers)
    assert [bytes(buffer) for buffer in buffers] == pages
    engine.finish_load(held, LoadOutcome.LOADED)
    until("it to come about", bench.settled)
    until("the kernel to have it back", lambda: bench.shared_bytes() < 5 * MIB)
    assert bench.load_all(blocks) == BLOCKS


def test_the_disk_follows_its_budget_too(bench: Bench) -> None:
    def used_bytes() -> int:
        return bytes_in(bench.disk)

    for seed in range(6):
        bench.stored_on_disk_too(chain(BLOCKS // 4, seed=seed))
    assert used_bytes() > 80 * MIB
    bench.set(memory="64MiB", disk="32MiB")
    until("the files to go", lambda: used_bytes() <= 32 * MIB)
    assert sum(bench.load_all(chain(BLOCKS // 4, seed=seed)) for seed in range(6)) > 0
    bench.set(memory="64MiB", disk="128MiB")
    before = used_bytes()
    for seed in range(10, 14):
        bench.stored_on_disk_too(chain(BLOCKS // 4, seed=seed))
    assert before < used_bytes() <= 128 * MIB
    bench.client.close()
    assert bench.agent.end() == 0


def test_the_operators_directive_sets_the_budget(operator: Operator, memory_folder: Path) -> None:
    agent = AgentProcess(
        memory_folder,
        *("--memory", "16MiB", "--memory-max", "32MiB", "--extent", "4MiB"),
        **operator.environment,
    )
    try:
        agent.wait_for("arena_ready")
        agent.wait_for("listening")
        client = BareClient(agent)
        for asked, given in ((8 * MIB, 8 * MIB), (1024 * MIB, 32 * MIB), (0, 4 * MIB)):
            operator.say(host_bytes=asked)
            until(
                f"{given} bytes to be ready",
                lambda given=given: client.stats()["arena_ready_bytes"] == given,
            )
        until("the agent to have said so", lambda: len(agent.said("budget_set")) == 3)
        client.close()
        assert agent.end() == 0
    finally:
        agent.clean_up()


BUDGETS = (("16MiB", "128MiB"), ("96MiB", "24MiB"), ("8MiB", "96MiB"), ("64MiB", "128MiB"))
ROUNDS = 2


@pytest.mark.timeout(600)
def test_budgets_change_while_loads_wait_and_stores_run(
    bench: Bench, start_worker: StartWorker
) -> None:
    """Two engines store and load through all of it, from disk too. Nothing they get is wrong, and
    nothing is left of a budget that went."""
    workers = [start_worker(n, *worker) for n, worker in enumerate(WORKERS)]
    until("the workers to attach", lambda: bench.client.stats()["sessions"] == 1 + len(WORKERS))
    for memory, disk in BUDGETS * ROUNDS:
        before = bench.client.stats()
        bench.set(memory=memory, disk=disk)
        budget_bytes = int(memory.removesuffix("MiB")) * MIB
        until(
            "the kernel to have it back",
            lambda most=budget_bytes + MIB: bench.shared_bytes() < most,
        )

        def traffic(before: dict[str, Any] = before) -> bool:
            now = bench.client.stats()
            names = ("stored_blocks", "hit_host_blocks", "lookup_requests")
            return all(now[name] > before[name] for name in names)

        until("stores and loads to have gone on", traffic)
        used = bytes_in(bench.disk)
        assert used <= int(disk.removesuffix("MiB")) * MIB
    reports = [stop_worker(worker) for worker in workers]
    print(f"{len(BUDGETS) * ROUNDS} budgets; {reports}")
    for report in reports:
        assert report["wrong"] == 0
        assert report["loaded"] > 0
        assert report["stored"] > 0
    assert bench.client.stats()["hit_disk_blocks"] > 0
    assert bench.group.killed == 0
    bench.client.close()
    assert bench.agent.end() == 0
    assert "Traceback" not in str(bench.agent.lines)
