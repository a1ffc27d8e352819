"""A client and the children of its process: whose session it is, and whose replies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onggi import Client, LoadOutcome, SpaceSpec, block_keys

PAGE = 4096
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)
KEYS = block_keys(list(range(64)), 16)
PAGES = [bytes([n]) * PAGE for n in range(4)]


@pytest.fixture
def client(agent: Any) -> Iterator[Client]:
    """Its clock stands still: no lease ends and nothing is late, however slow the machine."""
    client = Client(agent.socket_path, spaces=[SPACE], clock=lambda: 1000.0)
    assert client.store(KEYS, PAGES).stored == 4
    yield client
    client.close()


def in_child(work: Any) -> int:
    """Exit code of a forked child that runs `work`: 0 if it answered True."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def still_whole(agent: Any, client: Client) -> bool:
    buffers = [bytearray(PAGE) for _ in KEYS]
    return (
        client.load(KEYS, buffers) == 4
        and [bytes(b) for b in buffers] == PAGES
        and (Path(agent.socket_path).parent / "arena").exists()
    )


def back_to_one(agent: Any) -> bool:
    until = time.monotonic() + 60.0
    while agent.clients != 1 and time.monotonic() < until:
        time.sleep(0.005)
    return bool(agent.clients == 1)


def test_a_child_that_ends_leaves_the_session_alone(agent: Any, client: Client) -> None:
    load = client.load_prepare(KEYS).wait(30.0)
    for _ in range(100):
        assert in_child(lambda: True) == 0
    assert client.copy_out(load.pages(), [bytearray(PAGE) for _ in KEYS])
    client.finish_load(load, LoadOutcome.LOADED)
    assert still_whole(agent, client)
    assert agent.accepted == 1


def test_a_child_that_asks_gets_a_session_of_its_own(agent: Any, client: Client) -> None:
    def work() -> bool:
        buffers = [bytearray(PAGE) for _ in KEYS]
        return client.load(KEYS, buffers) == 4 and [bytes(b) for b in buffers] == PAGES

    for _ in range(20):
        assert in_child(work) == 0
        assert still_whole(agent, client)
    assert agent.accepted == 21
    assert back_to_one(agent)


def test_a_child_never_reads_its_parents_reply(agent: Any, client: Client) -> None:
    """A request is in flight while the process forks."""
    for _ in range(20):
        asked = client.prefetch_begin(KEYS)
        assert in_child(lambda: client.lookup(KEYS[:1]).ready == 1) == 0
        assert client.prefetch_end(asked).ready == 4
    assert back_to_one(agent)


def test_a_childs_end_of_a_parents_load_does_nothing(agent: Any, client: Client) -> None:
    load = client.load_prepare(KEYS).wait(30.0)

    def work() -> bool:
        client.finish_load(load, LoadOutcome.UNUSED)
        client.close()
        return True

    assert in_child(work) == 0
    assert agent.stats()["open_loads"] == 1
    client.finish_load(load, LoadOutcome.LOADED)
    assert still_whole(agent, client)
    assert agent.accepted == 1


def test_a_spawned_process_attaches_stores_and_ends(agent: Any, client: Client) -> None:
    code = (
        "import sys; from onggi import Client, SpaceSpec, block_keys\n"
        f"c = Client(sys.argv[1], spaces=[SpaceSpec(b'f' * 16, {PAGE}, 16)], deadline_s=30)\n"
        "assert c.attach(60)\n"
        f"k = block_keys(list(range(999, 999 + 32)), 16)\n"
        f"assert c.store(k, [bytes({PAGE})] * 2).stored == 2\n"
    )
    sidecar = str(Path(__file__).parents[2] / "sidecar")
    subprocess.run(
        [sys.executable, "-c", code, agent.socket_path],
        check=True,
        env={**os.environ, "PYTHONPATH": sidecar},
    )
    assert still_whole(agent, client)
    assert back_to_one(agent)


def test_descriptors_do_not_pass_to_other_programs(agent: Any, client: Client) -> None:
    """close_fds off, as some launchers have it: the socket must close on exec by itself."""
    listing = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    )
    session = client._link.current
    assert session is not None
    assert f"socket:[{os.fstat(session.channel._sock.fileno()).st_ino}]" not in listing.stdout
    assert "arena" not in listing.stdout
