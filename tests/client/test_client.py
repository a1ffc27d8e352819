"""The client against the real engine over the real protocol."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import soon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi import Client, LoadOutcome, SpaceSpec, StoreOutcome, StoreSlot, block_keys
from onggi_core.wire.frame import KEYS_MAX

PAGE = 8192
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)


def pat(key: bytes, size: int = PAGE) -> bytes:
    """Bytes that only this block has."""
    return (hashlib.sha256(key).digest() * (size // 32 + 1))[:size]


def chain(blocks: int, seed: int = 0) -> list[bytes]:
    return block_keys([seed * 1_000_000 + i for i in range(blocks * 16)], 16)


CLIENTS: list[Client] = []


def connect(agent: Any, **kwargs: Any) -> Client:
    kwargs.setdefault("spaces", [SPACE])
    kwargs.setdefault("deadline_s", 30.0)
    CLIENTS.append(Client(agent.socket_path, **kwargs))
    return CLIENTS[-1]


@pytest.fixture(autouse=True)
def close_clients(make_agent: Any) -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def store(client: Client, keys: list[bytes], **kwargs: Any) -> Any:
    return client.store(keys, [pat(key) for key in keys], **kwargs)


def buffers(count: int) -> list[bytearray]:
    return [bytearray(PAGE) for _ in range(count)]


def test_what_was_stored_comes_back_byte_for_byte(agent: Any) -> None:
    client, keys = connect(agent), chain(8)
    assert client.lookup(keys).ready == 0
    stored = store(client, keys)
    assert (stored.stored, stored.existing, stored.refused) == (8, 0, 0)
    assert client.lookup(keys) == client.prefetch(keys)
    assert client.lookup(keys).ready == 8
    pages = buffers(8)
    assert client.load(keys, pages) == 8
    assert [bytes(p) for p in pages] == [pat(k) for k in keys]
    assert soon(lambda: agent.stats()["hit_host_blocks"] == 8)


def test_storing_again_copies_nothing(agent: Any) -> None:
    client, keys = connect(agent), chain(4)
    store(client, keys)
    again = store(client, keys)
    assert (again.stored, again.existing, again.refused) == (0, 4, 0)


def test_a_longer_chain_stores_only_its_tail(agent: Any) -> None:
    client, keys = connect(agent), chain(6)
    store(client, keys[:4])
    assert store(client, keys).stored == 2
    assert client.store_prepare(keys[4:], parent=keys[3]).existing == 2


def test_a_load_ends_at_the_first_hole(agent: Any) -> None:
    client, keys = connect(agent), chain(5)
    store(client, keys[:2])
    store(client, keys[3:], parent=keys[2])
    pages = buffers(5)
    assert client.load(keys, pages) == 2
    assert client.lookup(keys).ready == 2


def test_two_clients_share_blocks_and_two_fingerprints_do_not(agent: Any) -> None:
    keys = chain(3)
    store(connect(agent), keys)
    assert connect(agent).lookup(keys).ready == 3
    other = SpaceSpec(b"g" * 16, PAGE, 16)
    assert connect(agent, spaces=[other]).lookup(keys).ready == 0


def test_a_block_counts_only_if_every_rank_has_it(agent: Any) -> None:
    ranks = [SpaceSpec(bytes([r]) * 16, PAGE, 16) for r in (1, 2)]
    keys = chain(4)
    workers = [connect(agent, spaces=[space]) for space in ranks]
    scheduler = connect(agent, spaces=ranks)
    assert store(workers[0], keys).stored == 4
    assert scheduler.lookup(keys).ready == 0
    assert store(workers[1], keys[:3]).stored == 3
    assert scheduler.lookup(keys).ready == 3
    load = scheduler.load_prepare(keys).wait(30.0)
    assert load.blocks == 3
    for rank, worker in enumerate(workers):
        assert worker.attached
        pages = buffers(3)
        assert worker.copy_out(load.pages(rank).sent(), pages)
        assert bytes(pages[2]) == pat(keys[2])
    scheduler.finish_load(load, LoadOutcome.LOADED)
    assert soon(lambda: agent.stats()["hit_host_blocks"] == 3)


def test_room_that_ends_is_a_value(agent: Any) -> None:
    client, keys = connect(agent), chain(4 * 128 + 10)
    tickets = []
    ticket = client.store_prepare(keys)
    tickets.append(ticket)
    assert ticket.slots[-1] == StoreSlot.NO_ROOM
    assert len(ticket.granted) == 512
    assert client.finish_store(ticket, StoreOutcome.ABANDONED) == 0
    assert client.lookup(keys).ready == 0


def test_an_absent_agent_is_a_miss_and_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(str(tmp_path / "nobody.sock"), spaces=[SPACE])
    with caplog.at_level(logging.INFO, "onggi"):
        for _ in range(50):
            assert client.lookup(chain(2)).ready == 0
            assert store(client, chain(2)).refused == 2
            assert client.load(chain(2), buffers(2)) == 0
            assert client.stats() == {}
    assert not client.attached
    assert len(caplog.records) == 1
    assert "no agent there" in caplog.text


def test_the_client_finds_an_agent_that_comes_later(
    make_agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(str(tmp_path / "agent.sock"), spaces=[SPACE])
    CLIENTS.append(client)
    assert not client.attached
    make_agent()
    assert soon(lambda: client.attached)
    assert store(client, chain(2)).stored == 2
    assert "answers now, after" in caplog.text


def test_a_restarted_agent_is_attached_to_again(agent: Any) -> None:
    client, keys = connect(agent), chain(4)
    store(client, keys)
    agent.restart()
    assert client.lookup(keys).ready == 0
    assert soon(lambda: store(client, keys).stored == 4)
    pages = buffers(4)
    assert client.load(keys, pages) == 4
    assert bytes(pages[3]) == pat(keys[3])


def test_a_load_of_a_retired_arena_fails(agent: Any) -> None:
    client, keys = connect(agent), chain(2)
    store(client, keys)
    load = client.load_prepare(keys).wait(30.0)
    agent.retire()
    assert not client.copy_out(load.pages(), buffers(2))


def test_pages_are_not_touched_after_their_session(agent: Any) -> None:
    """The agent may have given them to somebody else."""
    client, keys = connect(agent), chain(2)
    ticket = client.store_prepare(keys)
    agent.kick()
    assert soon(lambda: client.attached and client.session_number != ticket.session)
    before = bytes(agent.map[ticket.slots[0] : ticket.slots[0] + PAGE])
    assert not client.copy_in(ticket.pages(), [pat(k) for k in keys])
    assert agent.map[ticket.slots[0] : ticket.slots[0] + PAGE] == before
    assert client.finish_store(ticket, StoreOutcome.SEALED) == 0
    assert client.lookup(keys).ready == 0


def test_an_expired_lease_is_a_failed_copy(agent: Any) -> None:
    now = [1000.0]
    client, keys = connect(agent, clock=lambda: now[0]), chain(2)
    store(client, keys)
    load = client.load_prepare(keys).wait(30.0)
    assert client.copy_out(load.pages(), buffers(2))
    now[0] += 100.0
    assert not client.copy_out(load.pages(), buffers(2))
    assert not client.copy_in(load.pages(), buffers(2))


def test_a_hung_agent_costs_a_deadline_then_almost_nothing(
    agent: Any, hang: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client, keys = connect(agent, deadline_s=0.05), chain(2)
    store(client, keys)
    hang(agent)
    began = time.monotonic()
    for _ in range(2000):
        assert client.lookup(keys).ready == 0
    assert time.monotonic() - began < 50.0  # each would cost a deadline: 100 s
    assert len(caplog.records) == 1
    agent.mute = False
    assert soon(lambda: client.lookup(keys).ready == 2)


def test_a_late_reply_is_nobody_elses(agent: Any) -> None:
    client = connect(agent, deadline_s=0.05)
    one, two = chain(1), chain(3, seed=1)
    store(client, one)
    store(client, two)
    agent.delay_s = 0.12
    assert client.lookup(one).ready == 0
    agent.delay_s = 0.0
    assert soon(lambda: client.lookup(two).ready == 3)
    assert client.lookup(one).ready == 1


def test_a_pin_that_comes_late_is_given_back(agent: Any) -> None:
    client, keys = connect(agent, deadline_s=0.05), chain(2)
    store(client, keys)
    agent.delay_s = 0.12
    assert client.load_prepare(keys).wait(0.0).blocks == 0
    agent.delay_s = 0.0
    assert soon(lambda: client.lookup(keys).ready == 2)
    assert soon(lambda: not agent.engine._state.loads)


def test_loads_wait_for_the_disk_without_blocking(make_agent: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    client, keys = connect(agent), chain(64)
    store(client, keys)
    assert soon(lambda: len(agent.disk) == 64)
    store(client, chain(128, seed=1))  # pushes the others out of the host tier
    looked = client.lookup(keys)
    assert (looked.ready, looked.pending) == (0, 64)
    agent.reads.clear()
    pending = client.load_prepare(keys, wait_s=30.0)
    assert pending.poll() is None
    assert client.lookup(keys).ready == 0  # other calls go on meanwhile
    agent.reads.set()
    load = pending.wait(30.0)
    assert (load.blocks, load.from_disk) == (64, 64)
    pages = buffers(64)
    assert client.copy_out(load.pages(), pages)
    assert [bytes(p) for p in pages] == [pat(k) for k in keys]
    client.finish_load(load, LoadOutcome.LOADED)
    assert soon(lambda: agent.stats()["hit_disk_blocks"] == 64)


def test_a_load_that_is_not_wanted_any_more_unpins(make_agent: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    client, keys = connect(agent), chain(4)
    store(client, keys)
    store(client, chain(128, seed=1))
    agent.reads.clear()
    pending = client.load_prepare(keys, wait_s=30.0)
    pending.cancel()
    assert pending.poll() is not None
    agent.reads.set()
    assert soon(lambda: client.lookup(keys).ready == 4 and not agent.engine._state.loads)


def test_many_threads_share_one_client(agent: Any) -> None:
    client = connect(agent)
    wrong: list[str] = []

    def work(seed: int) -> None:
        for turn in range(30):
            keys = chain(1 + (seed + turn) % 4, seed=seed * 100 + turn % 3)
            client.store(keys, [pat(k) for k in keys])
            pages = buffers(len(keys))
            got = client.load(keys, pages)
            if [bytes(p) for p in pages[:got]] != [pat(k) for k in keys[:got]]:
                wrong.append(f"{seed}/{turn}")
            if client.lookup(keys).ready > len(keys):
                wrong.append("lookup")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert agent.accepted == 1


def test_a_waiting_load_does_not_hold_up_other_threads(make_agent: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    client, keys = connect(agent), chain(4)
    store(client, keys)
    store(client, chain(128, seed=1))
    agent.reads.clear()
    pending = client.load_prepare(keys, wait_s=30.0)
    waiter = threading.Thread(target=lambda: pending.wait(30.0))
    waiter.start()
    time.sleep(0.05)
    began = time.monotonic()
    for _ in range(20):
        assert client.lookup(chain(128, seed=1)).pending > 0
    assert time.monotonic() - began < 25.0  # the load alone takes 30 s
    agent.reads.set()
    waiter.join()
    load = pending.poll()
    assert load is not None
    assert load.blocks == 4


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"x", "pages[1] has 1 bytes; a page of this space has 8192"),
        ("text", "pages[1] is a str; hand in a bytes-like object"),
        (memoryview(bytearray(2 * PAGE))[::2], "pages[1] has strides (2,)"),
    ],
)
def test_a_wrong_page_is_named(agent: Any, page: Any, said: str) -> None:
    client, keys = connect(agent), chain(2)
    with pytest.raises(ValueError) as caught:
        client.store(keys, [bytes(PAGE), page])
    assert said in str(caught.value)
    assert client.lookup(keys).ready == 0


def test_a_read_only_page_cannot_be_loaded_into(agent: Any) -> None:
    client, keys = connect(agent), chain(1)
    store(client, keys)
    with pytest.raises(ValueError, match="read-only"):
        client.load(keys, [bytes(PAGE)])
    assert soon(lambda: not agent.engine._state.loads)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    client = Client(str(tmp_path / "s"), spaces=[SPACE])
    with pytest.raises(ValueError, match="of 3 bytes; use 16"):
        client.lookup([b"abc"])
    with pytest.raises(ValueError, match="65537 entries"):
        client.lookup([bytes(16)] * (KEYS_MAX + 1))
    with pytest.raises(ValueError, match="spaces has 0"):
        Client("s", spaces=[])
    with pytest.raises(ValueError, match="fingerprint has 2 bytes"):
        Client("s", spaces=[SpaceSpec(b"ab", 1, 1)])
    with pytest.raises(ValueError, match="deadline_s is 0"):
        Client("s", spaces=[SPACE], deadline_s=0)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["store", "load"]), st.integers(0, 5), st.integers(1, 40)),
        min_size=1,
        max_size=30,
    )
)
def test_a_load_never_returns_a_wrong_byte(agent: Any, steps: list[tuple[str, int, int]]) -> None:
    """Chains that crowd each other out of 512 pages: any run may be short, none may be wrong."""
    client = connect(agent)
    for verb, seed, blocks in steps:
        keys = chain(blocks * 10, seed=seed)
        if verb == "store":
            done = store(client, keys)
            assert done.stored + done.existing + done.refused == len(keys)
        else:
            pages = buffers(len(keys))
            got = client.load(keys, pages)
            assert [bytes(p) for p in pages[:got]] == [pat(k) for k in keys[:got]]
    client.close()
