"""What the system allows: descriptors and memory. A sentence or a working agent, never a traceback,
never a kill."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import MIB, PAGE_BYTES, SMALL, AgentProcess, BareClient, chain, ready, until
from machine import MemoryGroup

from onggi_sidecar.cgroup import OVERHEAD_BYTES, own_bytes

ARENA_BYTES = 64 * MIB
EXTENT = ("--extent", "4MiB")


@pytest.fixture
def agents() -> Iterator[list[AgentProcess]]:
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.clean_up()


@pytest.mark.parametrize("files", [12, 32, 63, 64])
def test_with_few_descriptors_there_is_a_sentence_or_a_working_agent(
    files: int, agents: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """More clients than descriptors come, and one that was there is served all the time."""
    disk = ("--disk", "64MiB", "--disk-path", str(tmp_path / "disk"))
    agent = AgentProcess(memory_folder, *SMALL, *disk, patch=_allow(files))
    agents.append(agent)
    if files < 64:
        assert agent.wait() == 1, agent.lines
        assert agent.said("start_refused"), agent.lines
        assert "Traceback" not in str(agent.lines)
        return
    client = ready(agent)
    crowd = [BareClient(agent, greet=False) for _ in range(files)]
    blocks = chain(100)
    client.store(blocks)
    assert client.load(tuple(blocks)) == list(blocks.values())
    for one in crowd:
        one.close()
    until("the crowd to go", lambda: client.stats()["sessions"] == 1)
    late = BareClient(agent)
    assert late.load(tuple(blocks)) == list(blocks.values())
    late.close()
    client.close()
    assert agent.end() == 0
    assert "Traceback" not in str(agent.lines)


def _allow(files: int) -> str:
    return f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))"


def _join(group: MemoryGroup) -> str:
    return f"open({str(group.procs)!r}, 'w').write('0')"


def test_an_agent_lives_within_its_arena_and_the_overhead_that_is_documented(
    memory_group: MemoryGroup, agents: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """OOM-killed under its own load: vllm-project/production-stack#923. Here more is stored than
    fits, some is read back from disk, and 200 clients are connected."""
    memory_group.limit(ARENA_BYTES + own_bytes(ARENA_BYTES))
    disk = ("--disk", "256MiB", "--disk-path", str(tmp_path / "disk"))
    flags = ("--memory", "64MiB", *EXTENT, *disk)
    agent = AgentProcess(memory_folder, *flags, patch=_join(memory_group))
    agents.append(agent)
    assert agent.wait_for("arena_ready")["ready_bytes"] == ARENA_BYTES
    agent.wait_for("listening")
    client = BareClient(agent)
    crowd = [BareClient(agent) for _ in range(200)]
    rounds = 2 * ARENA_BYTES // PAGE_BYTES // 100
    for seed in range(rounds):
        client.store(chain(100, seed=seed))
    for seed in range(rounds):
        for key, page in list(chain(100, seed=seed).items())[::10]:
            assert client.load((key,)) in ([], [page])
    assert memory_group.killed == 0
    assert memory_group.used_bytes <= ARENA_BYTES + own_bytes(ARENA_BYTES)
    for one in crowd:
        one.close()
    client.close()
    assert agent.end() == 0


def test_an_arena_larger_than_the_limit_is_cut_down_and_not_killed_for(
    memory_group: MemoryGroup, agents: list[AgentProcess], memory_folder: Path
) -> None:
    limit_bytes = 32 * MIB + own_bytes(1024 * MIB)
    memory_group.limit(limit_bytes)
    agent = AgentProcess(memory_folder, "--memory", "1GiB", *EXTENT, patch=_join(memory_group))
    agents.append(agent)
    said = agent.wait_for("arena_cut_down")
    assert said["given_bytes"] == 32 * MIB
    assert f"the container may use {limit_bytes // 4096 * 4096} bytes" in said["message"]
    assert agent.wait_for("arena_ready")["ready_bytes"] == 32 * MIB
    agent.wait_for("listening")
    client = BareClient(agent)
    client.store(chain(600))
    assert memory_group.killed == 0
    client.close()
    assert agent.end() == 0


def test_a_limit_below_the_agent_itself_is_a_sentence(
    memory_group: MemoryGroup, agents: list[AgentProcess], memory_folder: Path
) -> None:
    memory_group.limit(OVERHEAD_BYTES)
    agent = AgentProcess(memory_folder, *SMALL, patch=_join(memory_group))
    agents.append(agent)
    assert agent.wait() == 1
    said = agent.said("start_refused")[0]["message"]
    assert "the container may use 67108864 bytes (64MiB)" in said
    assert "raise the limit, or lower extent" in said
    assert list(memory_folder.iterdir()) == []


def test_a_share_is_of_the_containers_limit_and_page_cache_is_no_matter(
    memory_group: MemoryGroup, agents: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """Page cache counted as used left next to nothing: kekzl/imp#2070. Here a file fills what the
    group may use before the agent starts in it."""
    memory_group.limit(256 * MIB)
    write = (
        f"f = open({str(tmp_path / 'large')!r}, 'wb')\nfor _ in range(300): f.write(bytes(2**20))"
    )
    run = [sys.executable, "-c", f"{_join(memory_group)}\n{write}"]
    subprocess.run(run, check=True, timeout=60)
    assert memory_group.used_bytes > 128 * MIB
    agent = AgentProcess(memory_folder, "--memory", "60%", *EXTENT, patch=_join(memory_group))
    agents.append(agent)
    said = agent.wait_for("memory_share")
    assert said["memory_bytes"] == 256 * MIB * 60 // 100
    ready_bytes = agent.wait_for("arena_ready")["ready_bytes"]
    assert 0 <= said["memory_bytes"] - ready_bytes < 4 * MIB
    assert agent.end() == 0


def test_without_a_limit_a_share_is_the_default(
    agents: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """Never a share of the node: vllm-project/vllm#45086."""
    patch = (
        "import onggi_sidecar.cgroup as c, onggi_sidecar.config as f\n"
        'f.load_config.__defaults__ = (lambda: None, "")\n'
    )
    agent = AgentProcess(memory_folder, "--memory", "60%", patch=patch)
    agents.append(agent)
    said = agent.wait_for("memory_share")
    assert said["memory_bytes"] == 1024 * MIB
    assert "but there is none, so it is the default" in said["message"]
    assert agent.end() == 0
