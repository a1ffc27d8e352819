"""Room ahead: stores that ask nobody for their pages, and what becomes of room that is not used."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine_harness import soon

from onggi import Client, SpaceSpec, block_keys
from onggi.rooms import REST_S
from onggi.stock import ROOMS_MAX, STREAM_S
from onggi_core.wire.frame import Op

PAGE = 4096
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)
BLOCKS = 8


class Still:
    """A clock that only a hand moves: how slow the machine is ends no stream and no rest."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return 1000.0 + self.ahead_s


@pytest.fixture
def clock() -> Still:
    return Still()


@pytest.fixture
def client(agent: Any, clock: Any) -> Iterator[Client]:
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0, clock=clock)
    yield client
    client.close()


def pat(key: bytes) -> bytes:
    """Bytes that only this block has."""
    return hashlib.sha256(key).digest() * (PAGE // 32)


def chain(seed: int, blocks: int = BLOCKS) -> list[bytes]:
    return block_keys([seed * 1_000_000 + i for i in range(blocks * 16)], 16)


def store(client: Client, keys: list[bytes]) -> Any:
    return client.store(keys, [pat(key) for key in keys])


def stream(client: Client, seeds: range) -> None:
    for seed in seeds:
        stored = store(client, chain(seed))
        assert (stored.stored, stored.existing, stored.refused) == (BLOCKS, 0, 0)


def whole(client: Client, keys: list[bytes]) -> bool:
    pages = [bytearray(PAGE) for _ in keys]
    got = client.load(keys, pages)
    return got == len(keys) and [bytes(page) for page in pages] == [pat(key) for key in keys]


def fills(agent: Any, client: Client) -> int:
    """How many of these the agent has had, which nobody waits for: all that were sent."""
    asked = len(agent.ops)
    client.lookup(chain(99))
    assert len(agent.ops) > asked, "an answer to it follows all that was sent before it"
    return int(agent.ops.count(Op.STORE_FILL))


def test_stores_that_follow_each_other_ask_for_no_pages(agent: Any, client: Client) -> None:
    stream(client, range(10))
    assert agent.ops.count(Op.STORE_PREPARE) == 2, "the first, and the one that made it a stream"
    assert all(whole(client, chain(seed)) for seed in range(10))
    assert client.unsealed_blocks == 0


def test_who_asks_after_a_store_finds_it(client: Client) -> None:
    for seed in range(6):
        store(client, chain(seed))
        assert client.lookup(chain(seed)).ready == BLOCKS


def test_stores_that_are_far_apart_hold_no_room(agent: Any, client: Client, clock: Any) -> None:
    for seed in range(4):
        store(client, chain(seed))
        clock.ahead_s += STREAM_S + 0.1
    assert fills(agent, client) == 0
    assert agent.ops.count(Op.STORE_PREPARE) == 4


@pytest.mark.parametrize("how", ["tidy", "load"])
def test_a_client_that_stores_no_more_gives_its_room_back(
    agent: Any, client: Client, clock: Any, how: str
) -> None:
    stream(client, range(4))
    assert client.lookup(chain(0)).ready == BLOCKS  # all is answered by now
    assert 0 < agent.stats()["room_bytes"] <= ROOMS_MAX * BLOCKS * PAGE
    clock.ahead_s += STREAM_S + 0.1
    client.tidy() if how == "tidy" else whole(client, chain(0))
    assert soon(lambda: agent.stats()["room_bytes"] == 0)
    assert agent.stats()["open_stores"] == 0
    stream(client, range(4, 8))
    assert all(whole(client, chain(seed)) for seed in range(8))


def test_a_stream_that_goes_on_keeps_its_room(agent: Any, client: Client) -> None:
    stream(client, range(4))
    for seed in range(4, 8):
        client.tidy()
        assert whole(client, chain(0))
        store(client, chain(seed))
    assert agent.ops.count(Op.STORE_PREPARE) == 2


def test_closing_gives_it_back(agent: Any, client: Client) -> None:
    stream(client, range(4))
    client.close()
    assert soon(lambda: agent.stats()["room_bytes"] == 0)


def test_room_whose_lease_is_over_is_not_written_to(agent: Any, client: Client, clock: Any) -> None:
    stream(client, range(3))
    asked = agent.ops.count(Op.STORE_PREPARE)
    clock.ahead_s += 25.0  # of the client alone: the agent would still keep it
    stream(client, range(3, 4))
    assert agent.ops.count(Op.STORE_PREPARE) == asked + 1
    assert soon(lambda: agent.stats()["room_bytes"] == 0)
    assert whole(client, chain(3))


def test_what_the_agent_did_not_keep_is_counted(
    agent: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onggi_core.engine.rooms.LEASE_S", 0.0)
    store(client, chain(0))
    store(client, chain(1))
    time.sleep(0.2)  # some ticks
    store(client, chain(2))
    assert client.lookup(chain(2)).ready == 0
    assert client.unsealed_blocks == BLOCKS


def test_blocks_that_are_there_give_their_pages_back(agent: Any, client: Client) -> None:
    other = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    store(other, chain(3))
    stream(client, range(4))
    assert client.lookup(chain(3)).ready == BLOCKS
    assert agent.stats()["host_pages"] == 4 * BLOCKS
    assert client.unsealed_blocks == 0
    other.close()


def test_a_wrong_page_leaves_the_room_for_the_next_store(agent: Any, client: Client) -> None:
    stream(client, range(3))
    asked = agent.ops.count(Op.STORE_PREPARE)
    with pytest.raises(ValueError, match=r"pages\[3\] has 5 bytes"):
        client.store(chain(9), [*map(pat, chain(9)[:3]), b"short", *map(pat, chain(9)[4:])])
    with pytest.raises(ValueError, match="of 3 bytes; use 16"):
        client.store([*chain(9)[:-1], b"key"], [bytes(PAGE)] * BLOCKS)
    assert client.lookup(chain(9)).ready == 0
    stream(client, range(9, 10))
    assert whole(client, chain(9))
    assert agent.ops.count(Op.STORE_PREPARE) == asked


def test_a_chain_longer_than_its_room_is_stored_whole(agent: Any, client: Client) -> None:
    stream(client, range(4))
    keys = chain(50, 200)
    assert store(client, keys).stored == 200
    assert whole(client, keys)
    assert store(client, chain(51, 3)).stored == 3
    assert whole(client, chain(51, 3))


def test_an_agent_without_room_to_grant_is_not_asked_on_and_on(
    agent: Any, client: Client, clock: Any
) -> None:
    keys = [chain(seed, 128) for seed in range(8)]  # its bound is 64 pages
    for some in keys[:4]:
        assert store(client, some).stored == 128
    before = fills(agent, client)
    assert before <= 1 + ROOMS_MAX
    store(client, keys[4])
    assert fills(agent, client) == before
    clock.ahead_s += REST_S + STREAM_S  # it may be asked again, and this is no stream any more
    store(client, keys[5])
    assert fills(agent, client) == before
    store(client, keys[6])
    assert fills(agent, client) > before


def test_an_agent_that_comes_back_finds_no_room_of_the_last_one_used(
    agent: Any, client: Client
) -> None:
    stream(client, range(4))
    agent.restart()
    assert client.attach(60.0), "it attaches again"
    stream(client, range(4, 8))
    assert agent.ops.count(Op.STORE_PREPARE) == 4
    assert all(whole(client, chain(seed)) for seed in range(4, 8))


def test_a_hung_agent_costs_no_more_than_its_deadlines(agent: Any, hang: Any) -> None:
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=0.2)
    stream(client, range(3))
    client.lookup(chain(0))
    hang(agent)
    for seed in range(3, 12):
        began_s = time.monotonic()
        store(client, chain(seed))
        assert time.monotonic() - began_s < 2.0
    client.close()


def test_a_child_does_not_write_to_its_parents_room(agent: Any, client: Client) -> None:
    stream(client, range(4))
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            stream(client, range(10, 14))
            code = 0 if whole(client, chain(13)) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stream(client, range(20, 24))
    assert all(whole(client, chain(seed)) for seed in (*range(4), *range(10, 14), *range(20, 24)))
    assert soon(lambda: agent.clients == 1)


def test_threads_share_the_room_of_a_client(agent: Any, client: Client) -> None:
    assert client.attached  # a thread does not wait for another that attaches
    threads = [
        threading.Thread(target=stream, args=(client, range(100 * n, 100 * n + 20)))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seeds = [100 * n + seed for n in range(4) for seed in range(20)]
    assert all(whole(client, chain(seed)) for seed in seeds)
    assert client.unsealed_blocks == 0
