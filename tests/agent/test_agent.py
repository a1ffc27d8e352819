"""A real agent process over its socket: blocks in, blocks out, ends and deaths."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from agent_process import (
    MIB,
    PAGE_BYTES,
    SMALL,
    AgentProcess,
    BareClient,
    StartAgent,
    chain,
    ready,
    until,
)

from onggi_core.arena_header import RETIRED_EPOCH
from onggi_core.board.layout import Layout, slots_for
from onggi_core.identity import ROOT
from onggi_core.wire.replies import LoadPrepared, StorePrepared
from onggi_core.wire.requests import LoadPrepare, Lookup, SpaceSpec, StatsRequest, StorePrepare

BOARD_BYTES = Layout(slots_for(16 * MIB)).nbytes


def test_what_is_stored_is_loaded(start: StartAgent) -> None:
    client = ready(start())
    blocks = chain(10)
    assert client.store(blocks) == 10
    assert client.looked(*blocks) == (10, 10)
    assert client.load(tuple(blocks)) == list(blocks.values())
    stats = client.stats()
    assert (stats["hit_host_blocks"], stats["hit_disk_blocks"]) == (10, 0)
    assert stats["tokens_saved"] == 160
    client.close()


def test_a_client_of_a_killed_agent_sees_the_epoch_of_its_arena_go(start: StartAgent) -> None:
    first = start()
    client = ready(first)
    client.store(chain(1))
    first.end(signal.SIGKILL)
    assert client.arena is not None
    assert client.arena[16:32] == client.welcome.epoch
    start().wait_for("listening")
    assert client.arena[16:32] == RETIRED_EPOCH
    client.close()


def test_memory_stays_one_arena_however_often_the_agent_is_killed(
    start: StartAgent, memory_folder: Path
) -> None:
    """Pages in a memory volume outlive the container: kubernetes/kubernetes#128339."""
    for _ in range(3):
        agent = start()
        client = ready(agent)
        client.store(chain(200))
        agent.end(signal.SIGKILL)
        client.close()
        used = sum(p.stat().st_blocks * 512 for p in memory_folder.iterdir())
        assert used <= 16 * MIB + BOARD_BYTES + 64 * 1024
        assert sorted(p.name for p in memory_folder.iterdir()) == [
            "agent.sock",
            "agent.sock.lock",
            "arena",
        ]


def test_a_full_arena_evicts_and_pinned_pages_answer_no_room(start: StartAgent) -> None:
    client = ready(start())
    pages = 16 * MIB // PAGE_BYTES
    blocks = chain(pages)
    assert client.store(blocks) == pages
    assert client.store(chain(10, seed=1)) == 10
    reply = client.call(StorePrepare(0, ROOT, tuple(chain(pages, seed=2))))
    assert isinstance(reply, StorePrepared)
    other = client.call(StorePrepare(0, ROOT, tuple(chain(1, seed=3))))
    assert isinstance(other, StorePrepared)
    assert other.slots[0] == 2**64 - 3
    client.close()


def test_a_client_that_dies_releases_what_it_held(start: StartAgent) -> None:
    agent = start()
    client = ready(agent)
    dying = BareClient(agent)
    blocks = chain(5)
    client.store(blocks)
    dying.call(LoadPrepare(0, tuple(blocks)))
    dying.call(StorePrepare(0, ROOT, tuple(chain(7, seed=1))))
    stats = client.stats()
    assert (stats["open_stores"], stats["open_loads"], stats["sessions"]) == (1, 1, 2)
    dying.close()
    until("the session to go", lambda: client.stats()["sessions"] == 1)
    stats = client.stats()
    assert (stats["open_stores"], stats["open_loads"], stats["host_pages"]) == (0, 0, 5)
    client.close()


def test_a_load_that_waits_is_answered_in_time(
    start: StartAgent, disk_flags: tuple[str, ...]
) -> None:
    """The wait is for a block that another client never finishes storing."""
    agent = start(*disk_flags)
    client = ready(agent)
    storing = BareClient(agent)
    storing.call(StorePrepare(0, ROOT, tuple(chain(1))))
    reply = client.call(LoadPrepare(30, tuple(chain(1))))
    assert isinstance(reply, LoadPrepared)
    assert reply.blocks == 0
    client.close()
    storing.close()


def test_many_requests_in_flight_are_all_answered(start: StartAgent) -> None:
    client = ready(start())
    blocks = chain(3)
    client.store(blocks)
    numbers = [client.post(Lookup(tuple(blocks))) for _ in range(1000)]
    answered = [client.next_frame() for _ in numbers]
    assert [got.request_id for got in answered if got is not None] == numbers
    client.close()


def test_ending_leaves_nothing_in_the_socket_folder(
    start: StartAgent, disk_flags: tuple[str, ...], memory_folder: Path, tmp_path: Path
) -> None:
    agent = start(*disk_flags)
    client = ready(agent)
    blocks = chain(20)
    client.store(blocks)
    assert agent.end() == 0
    assert client.next_frame() is None
    assert list(memory_folder.iterdir()) == []
    client.close()
    again = start(*disk_flags)
    again.wait_for("listening")
    assert again.said("disk_ready")[0]["adopted_blocks"] == 20
    assert again.said("disk_ready")[0]["ended_cleanly"]
    assert again.end() == 0


def test_sigterm_is_obeyed_at_every_stage_of_the_start(
    start: StartAgent, disk_flags: tuple[str, ...], memory_folder: Path
) -> None:
    """A sidecar that did not obey held its pod in Terminating: kubernetes/kubernetes#125880."""
    at_once = start(*disk_flags)
    until("the interpreter to be our program", lambda: _runs_our_code(at_once))
    assert at_once.end() == 0
    for stage in ("disk_ready", "listening", "http_listening", "arena_ready"):
        agent = AgentProcess(memory_folder, "--memory", "256MiB", *disk_flags)
        agent.wait_for(stage)
        assert agent.end() == 0, agent.lines
        assert list(memory_folder.iterdir()) == []
        agent.clean_up()


def test_http_is_served_before_clients_come_who_may_take_every_descriptor(
    memory_folder: Path,
) -> None:
    agent = AgentProcess(memory_folder, *SMALL)
    try:
        agent.wait_for("listening")
        stages = [line["event"] for line in agent.lines]
        assert stages.index("http_listening") < stages.index("listening")
        assert agent.end() == 0
    finally:
        agent.clean_up()


def test_sighup_while_modules_are_loaded_ends_nothing(memory_folder: Path) -> None:
    patch = (
        "import os, signal, sys\n"
        "class HangsUp:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'onggi_sidecar.agent':\n"
        "            os.kill(os.getpid(), signal.SIGHUP)\n"
        "sys.meta_path.insert(0, HangsUp())\n"
    )
    agent = AgentProcess(memory_folder, *SMALL, patch=patch)
    try:
        agent.wait_for("listening")
        assert agent.end() == 0
    finally:
        agent.clean_up()


def _runs_our_code(agent: AgentProcess) -> bool:
    """Whether its SIGTERM handler is set: bit 15 of the caught signals."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_second_agent_on_the_socket_is_refused_and_the_first_undisturbed(
    start: StartAgent,
) -> None:
    client = ready(start())
    blocks = chain(10)
    client.store(blocks)
    second = start()
    assert second.wait() == 1
    assert "another agent serves socket" in second.said("start_refused")[0]["message"]
    assert client.load(tuple(blocks)) == list(blocks.values())
    client.close()


def test_a_bug_of_ours_ends_the_agent_with_its_own_code_and_keeps_the_disk(
    memory_folder: Path, disk_flags: tuple[str, ...]
) -> None:
    """An engine that raises when it is asked for its figures by a client."""
    patch = (
        "from onggi_core.engine.engine import Engine\n"
        "from onggi_core.wire import requests\n"
        "sound = Engine.step\n"
        "def step(self, event, now_s):\n"
        "    if isinstance(getattr(event, 'request', None), requests.StatsRequest):\n"
        "        raise RuntimeError('deliberate')\n"
        "    return sound(self, event, now_s)\n"
        "Engine.step = step\n"
    )
    agent = AgentProcess(memory_folder, *SMALL, *disk_flags, patch=patch)
    agent.wait_for("arena_ready")
    agent.wait_for("listening")
    client = BareClient(agent)
    client.store(chain(5))
    client.post(StatsRequest())
    assert client.next_frame() is None
    assert agent.wait() == 70
    assert any("deliberate" in str(line) for line in agent.lines)
    assert list(memory_folder.iterdir()) == []
    agent.clean_up()
    again = AgentProcess(memory_folder, *SMALL, *disk_flags)
    assert again.wait_for("disk_ready")["adopted_blocks"] == 5
    assert again.end() == 0
    again.clean_up()


def test_a_bug_where_memory_is_touched_ends_the_agent_too(start: StartAgent) -> None:
    patch = (
        "from onggi_sidecar.arena import file, toucher\n"
        "def fail(*_):\n"
        "    raise RuntimeError('deliberate')\n"
        "file.ArenaFile.sweep = fail\n"
        "toucher.SWEEP_S = 0.05\n"
    )
    agent = start(patch=patch)
    assert agent.wait() == 70
    assert any("deliberate" in str(line) for line in agent.lines)


def test_two_page_sizes_share_one_agent(start: StartAgent) -> None:
    agent = start()
    client = ready(agent)
    other = BareClient(agent, SpaceSpec(b"g" * 16, 100, 4))
    client.store(chain(10))
    page = {b"k" * 16: b"z" * 100}
    assert other.store(page) == 1
    assert other.looked(b"k" * 16) == (1, 1)
    assert client.looked(b"k" * 16) == (0, 0)
    client.close()
    other.close()


def test_a_taken_http_port_is_reported_and_not_fatal(start: StartAgent) -> None:
    first = start()
    port = first.wait_for("http_listening")["port"]
    path = first.folder / "second"
    path.mkdir()
    second = AgentProcess(path, *SMALL, "--http-port", str(port))
    try:
        assert str(port) in second.wait_for("http_unavailable")["message"]
        second.wait_for("listening")
        client = BareClient(second)
        assert client.stats()["sessions"] == 1
        client.close()
    finally:
        second.clean_up()


def test_probes_and_metrics_tell_the_state(start: StartAgent) -> None:
    agent = start()
    port = agent.wait_for("http_listening")["port"]
    client = ready(agent)
    blocks = chain(4)
    client.store(blocks)
    client.load((*blocks, b"?" * 16))
    assert _get(port, "/healthz") == (200, "ok\n")
    assert _get(port, "/readyz") == (200, "ready\n")
    status, page = _get(port, "/metrics")
    assert status == 200
    for line in (
        'onggi_hit_blocks_total{tier="host"} 4.0',
        "onggi_miss_blocks_total 1.0",
        "onggi_saved_tokens_total 64.0",
        f'onggi_moved_bytes_total{{direction="in",tier="host"}} {float(4 * PAGE_BYTES)}',
        f'onggi_moved_bytes_total{{direction="out",tier="host"}} {float(4 * PAGE_BYTES)}',
        "onggi_sessions 1.0",
        'onggi_requests_total{op="load_prepare"} 1.0',
    ):
        assert line in page.splitlines()
    assert "onggi_arena_ready_bytes 1.6777216e+07" in page
    client.close()


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_wrong_configuration_stops_the_start_with_a_line_a_field() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "onggi_sidecar", "agent", "--memory", "1GB", "--http-port", "x"],
        env={**os.environ, "ONGGI_AGENT_DISK": "1Gi"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("onggi agent: memory: '1GB' (in --memory) is wrong; ")
    assert lines[1].startswith("onggi agent: http_port: 'x' (in --http-port) is wrong; ")
    assert lines[2].startswith("onggi agent: disk_path: missing or at its default; name a folder")


def test_more_memory_than_the_machine_has_is_refused(start: StartAgent) -> None:
    """It was cut down to what the volume had room for: all memory of the machine, and it was
    touched."""
    agent = start("--memory", "1TiB")
    assert agent.wait() == 1
    message = agent.said("start_refused")[0]["message"]
    assert "memory is 1099511627776 bytes (1TiB), but this machine has" in message
    assert not (agent.folder / "arena").exists()


def test_too_few_descriptors_are_refused_in_a_sentence(memory_folder: Path) -> None:
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)); "
    program += "from onggi_sidecar.cli import main; sys.exit(main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, "agent", "--socket", str(memory_folder / "agent.sock")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 1
    assert "this process may open 12 files (ulimit -n); allow 64 or more" in ended.stderr
    assert "Traceback" not in ended.stderr
