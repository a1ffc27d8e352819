"""Whole chains in parts: what goes on beside a copy, and what is held when something goes wrong."""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import Any

import pytest
from engine_harness import soon
from hypothesis import given
from hypothesis import strategies as st

from onggi import Client, SpaceSpec, StoreOutcome, block_keys
from onggi.bulk import FIRST_BLOCKS, PART_BYTES, blocks_in_part, parts
from onggi.memory import hold, hold_pages
from onggi_core.wire.frame import Op

PAGE = 4096
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)


def pat(key: bytes) -> bytes:
    """Bytes that only this block has."""
    return hashlib.sha256(key).digest() * (PAGE // 32)


def chain(blocks: int, seed: int = 0) -> list[bytes]:
    return block_keys([seed * 1_000_000 + i for i in range(blocks * 16)], 16)


def connect(agent: Any) -> Client:
    """An attached one: on a busy machine a first try may come too late."""
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    assert soon(lambda: client.attached)
    return client


@given(
    st.integers(0, 5000),
    st.sampled_from([1, 8192, 262_144, 1 << 20, 5 << 20, 100 << 20]),
    st.booleans(),
)
def test_parts_cover_a_chain_and_none_is_large(
    blocks: int, page_bytes: int, from_disk: bool
) -> None:
    most = blocks_in_part(page_bytes, from_disk=from_disk)
    assert most == 1 or most * page_bytes <= PART_BYTES
    cut = list(parts(blocks, most))
    assert [number for begin, end in cut for number in range(begin, end)] == list(range(blocks))
    assert all(0 < end - begin <= most + most // 2 for begin, end in cut)
    assert all(begin or end <= FIRST_BLOCKS + FIRST_BLOCKS // 2 for begin, end in cut)


def test_a_chain_of_many_parts_comes_back(agent: Any) -> None:
    client, keys = connect(agent), chain(900)
    stored = client.store(keys, [pat(key) for key in keys])
    assert (stored.stored, stored.existing, stored.refused) == (900, 0, 0)
    assert agent.ops.count(Op.STORE_PREPARE) > 3
    pages = [bytearray(PAGE) for _ in keys]
    assert client.load(keys, pages) == 900
    assert [bytes(page) for page in pages] == [pat(key) for key in keys]
    assert client.unsealed_blocks == 0
    client.close()


def test_one_piece_of_memory_may_hold_all_pages(agent: Any) -> None:
    client, keys = connect(agent), chain(200)
    whole = bytearray(b"".join(map(pat, keys)))
    assert client.store(keys, memoryview(whole)).stored == 200
    into = bytearray(len(whole))
    assert client.load(keys, into) == 200
    assert into == whole
    assert client.store(keys, whole).existing == 200
    with pytest.raises(ValueError, match="819199 bytes; 200 pages of 4096"):
        client.store(keys, whole[:-1])
    client.close()


def test_a_chain_that_ends_in_the_middle_of_a_part_loads_up_to_there(agent: Any) -> None:
    client, keys = connect(agent), chain(300)
    client.store(keys[:150], [pat(key) for key in keys[:150]])
    pages = [bytearray(PAGE) for _ in keys]
    assert client.load(keys, pages) == 150
    assert [bytes(page) for page in pages[:150]] == [pat(key) for key in keys[:150]]
    client.tidy()
    assert soon(lambda: agent.stats()["open_loads"] == 0)
    client.close()


def test_room_that_ends_in_the_middle_stores_up_to_there(agent: Any) -> None:
    """1,024 pages of which another client holds 900."""
    holder, client = connect(agent), connect(agent)
    assert len(holder.store_prepare(chain(900, seed=1)).granted) == 900
    keys = chain(400)
    stored = client.store(keys, [pat(key) for key in keys])
    assert (stored.stored, stored.refused) == (124, 276)
    pages = [bytearray(PAGE) for _ in keys]
    got = client.load(keys, pages)  # a tick may have made some room again, at the chain's end
    assert 64 <= got <= 124
    assert [bytes(page) for page in pages[:got]] == [pat(key) for key in keys[:got]]
    assert soon(lambda: agent.stats()["open_stores"] == 1)
    client.close()
    holder.close()


def test_a_later_part_with_a_wrong_page_leaves_nothing_open(agent: Any) -> None:
    client, keys = connect(agent), chain(200)
    pages: list[Any] = [pat(key) for key in keys]
    pages[80] = b"short"
    with pytest.raises(ValueError, match=r"pages\[80\] has 5 bytes"):
        client.store(keys, pages)
    assert client.lookup(keys).ready == 64  # the part before it is whole
    assert soon(lambda: agent.stats()["open_stores"] == 0)
    client.close()


def test_after_wrong_pages_the_same_keys_are_free_at_once(agent: Any) -> None:
    client, keys = connect(agent), chain(4)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"pages\[0\] has 5 bytes"):
            client.store(keys, [b"short"] * 4)
    stored = client.store(keys, [pat(key) for key in keys])
    assert (stored.stored, stored.existing) == (4, 0)
    assert client.lookup(keys).ready == 4
    client.close()


def test_a_part_is_copied_while_the_next_one_is_read_from_disk(make_agent: Any) -> None:
    """The reads of the second part wait until the first has been copied and given back."""
    agent = make_agent(extents=1, segments=8)
    client, keys = connect(agent), chain(200)
    client.store(keys, [pat(key) for key in keys])
    assert soon(lambda: agent.stats()["disk_pages"] == 200)
    client.store(chain(256, seed=1), [bytes(PAGE)] * 256)  # pushes them out of the host tier
    assert client.lookup(keys).ready == 0
    read, first, late = agent._read, set(keys[:64]), threading.Event()

    def read_in_order(action: Any) -> None:
        if not first.issuperset(action.keys) and not soon(
            lambda: agent.ops.count(Op.LOAD_COMPLETE) >= 1
        ):
            late.set()
        read(action)

    agent._read = read_in_order
    pages = [bytearray(PAGE) for _ in keys]
    assert client.load(keys, pages, wait_s=30.0) == 200
    assert not late.is_set()
    assert [bytes(page) for page in pages] == [pat(key) for key in keys]
    client.close()


def test_a_chain_that_an_arena_holds_only_part_by_part_comes_whole(make_agent: Any) -> None:
    """Of parts of 64, 128, 256 and 512 blocks that are asked for at a time, one found no room."""
    agent = make_agent(extents=8, segments=16)
    client, holder, keys = connect(agent), connect(agent), chain(1500)
    assert client.store(keys, [pat(key) for key in keys]).refused == 0
    assert soon(lambda: agent.stats()["disk_pages"] == 1500)
    assert len(holder.store_prepare(chain(1448, seed=1)).granted) == 1448  # and 600 are left
    pages = [bytearray(PAGE) for _ in keys]
    assert client.load(keys, pages, wait_s=60.0) == 1500
    assert [bytes(page) for page in pages] == [pat(key) for key in keys]
    client.tidy()
    assert soon(lambda: agent.stats()["open_loads"] == 0)
    client.close()
    holder.close()


def test_a_chain_that_really_ends_is_not_asked_for_again_and_again(make_agent: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    client, keys = connect(agent), chain(300)
    client.store(keys[:150], [pat(key) for key in keys[:150]])
    assert soon(lambda: agent.stats()["disk_pages"] == 150)
    client.store(chain(256, seed=1), [bytes(PAGE)] * 256)  # pushes them out of the host tier
    before = agent.ops.count(Op.LOAD_PREPARE)
    assert client.load(keys, [bytearray(PAGE) for _ in keys], wait_s=30.0) == 150
    assert agent.ops.count(Op.LOAD_PREPARE) - before <= 4
    client.close()


def test_a_seal_that_came_too_late_is_counted(
    agent: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onggi_core.engine.stores.LEASE_S", 0.01)
    client, keys = connect(agent), chain(3)
    ticket = client.store_prepare(keys)
    assert client.copy_in(ticket.pages(), [pat(key) for key in keys])
    assert soon(lambda: agent.stats()["errors"].get("lease_ended"))
    with caplog.at_level(logging.WARNING):
        client.finish_store_later(ticket, StoreOutcome.SEALED)
        assert client.lookup(keys).ready == 0
    assert client.unsealed_blocks == 3
    assert "not sealed" in caplog.text
    client.close()


def test_a_space_that_is_not_there_is_named(agent: Any) -> None:
    client, keys = connect(agent), chain(1)
    with pytest.raises(ValueError, match="space is 9; this client has 1, from 0"):
        client.store(keys, [bytes(PAGE)], space=9)
    with pytest.raises(ValueError, match="space is -1; this client has 1, from 0"):
        client.load(keys, [bytearray(PAGE)], space=-1)
    client.close()


@pytest.mark.parametrize("kind", [bytearray, bytes, lambda n: memoryview(bytearray(n))])
def test_pages_of_one_kind_are_held_as_each_by_itself(kind: Any) -> None:
    pages = [kind(PAGE) for _ in range(5)]
    held = hold_pages(pages, PAGE, writable=False)
    one_by_one = [hold(page, PAGE, name="page", writable=False).at for page in pages]
    assert list(held.addresses) == one_by_one
