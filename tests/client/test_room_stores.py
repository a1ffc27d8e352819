"""The usual store of a stream, in one flat function: where its bytes land, and what becomes of the
room when it comes to nothing in the middle."""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from onggi import Client, SpaceSpec, block_keys
from onggi.arena import Arena
from onggi.channel import Channel
from onggi.stock import ROOMS_MAX, row_of
from onggi_core.wire.frame import Op
from onggi_core.wire.requests import StoreOutcome

PAGE = 4096
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)
BLOCKS = 8


@pytest.fixture
def client(agent: Any, clock: Any) -> Iterator[Client]:
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0, clock=clock)
    while not client.attached:  # on a busy machine even a HELLO may be late
        time.sleep(0.01)
    yield client
    client.close()


def chain(seed: int, blocks: int = BLOCKS) -> list[bytes]:
    return block_keys([seed * 1_000_000 + i for i in range(blocks * 16)], 16)


def pattern(key: bytes) -> bytes:
    return hashlib.sha256(key).digest() * (PAGE // 32)


def in_a_row(keys: Sequence[bytes]) -> list[memoryview]:
    """Their pages, one after the other in one piece of memory."""
    memory = memoryview(bytearray(b"".join(map(pattern, keys))))
    return [memory[n * PAGE : (n + 1) * PAGE] for n in range(len(keys))]


def scattered(keys: Sequence[bytes]) -> list[memoryview]:
    """The same, the last one first."""
    return in_a_row(list(keys)[::-1])[::-1]


def whole(client: Client, keys: Sequence[bytes]) -> bool:
    pages = [bytearray(PAGE) for _ in keys]
    return client.load(keys, pages) == len(keys) and pages == [*map(pattern, keys)]


def stream(client: Client, seeds: range, pages: Callable[..., Any] = in_a_row) -> None:
    for seed in seeds:
        assert client.store(chain(seed), pages(chain(seed))).stored == BLOCKS
    client.lookup(chain(0))  # all is answered by then, and rooms are at hand


def settled(agent: Any, client: Client) -> bool:
    """Whether the agent holds the rooms that the client knows of, and no more."""
    client.lookup(chain(0))  # all is answered by then
    rooms = client.rooms.stocks[0].at_hand
    assert not client.rooms.stocks[0].coming
    return bool(agent.stats()["open_stores"] == len(rooms) <= ROOMS_MAX)


@pytest.mark.parametrize("pages", [in_a_row, scattered])
def test_every_page_lands_in_its_place(agent: Any, client: Client, pages: Any) -> None:
    stream(client, range(12), pages)
    assert agent.ops.count(Op.STORE_PREPARE) == 2
    assert all(whole(client, chain(seed)) for seed in range(12))
    assert client.unsealed_blocks == 0
    assert settled(agent, client)


def test_a_room_in_pieces_is_filled_in_order(agent: Any, client: Client) -> None:
    other = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    held = [other.store_prepare(chain(100 + n, 3)) for n in range(341)]  # all there is
    for ticket in held[::2]:
        other.finish_store(ticket, StoreOutcome.ABANDONED)
    stream(client, range(6))
    assert any(room.row < BLOCKS for room in client.rooms.stocks[0].at_hand)
    assert all(whole(client, chain(seed)) for seed in range(6))
    other.close()


def test_a_row_ends_where_a_place_is_not_the_next() -> None:
    assert row_of((8, 12, 16), 4) == 3
    assert row_of((8, 12, 20), 4) == 2
    assert row_of((8, 16, 12, 20), 4) == 1, "the last is where a row of four would end"
    assert row_of((8,), 4) == 1


def test_fewer_blocks_than_the_room_has_pages(agent: Any, client: Client) -> None:
    stream(client, range(3))
    some = chain(50, 3)
    assert client.store(some, in_a_row(some)).stored == 3
    stream(client, range(3, 8))
    assert whole(client, some)
    assert all(whole(client, chain(seed)) for seed in range(8))
    assert settled(agent, client)


def test_an_arena_that_is_taken_back_under_the_copy_gets_nothing_sealed(
    agent: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))
    write = Arena.write

    def torn(arena: Arena, pieces: Any, stream: Any) -> bool:
        write(arena, [(at, address, n // 2) for at, address, n in pieces], stream)
        return False

    monkeypatch.setattr(Arena, "write", torn)
    assert client.store(chain(20), in_a_row(chain(20))).stored == BLOCKS, "the long way"
    monkeypatch.undo()
    assert settled(agent, client)
    stream(client, range(3, 6))
    assert whole(client, chain(20))
    assert settled(agent, client)


def test_a_lease_that_ends_under_the_copy_seals_nothing(
    agent: Any, client: Client, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))
    write = Arena.write

    def slow(arena: Arena, pieces: Any, stream: Any) -> bool:
        done = write(arena, pieces, stream)
        clock.ahead_s += 25.0
        monkeypatch.undo()
        return done

    monkeypatch.setattr(Arena, "write", slow)
    prepared = agent.ops.count(Op.STORE_PREPARE)
    assert client.store(chain(20), in_a_row(chain(20))).stored == BLOCKS
    assert agent.ops.count(Op.STORE_PREPARE) == prepared + 1, "in pages of a lease that runs"
    assert whole(client, chain(20))
    assert settled(agent, client)


def test_another_threads_store_does_not_change_what_this_one_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))
    stock, write = client.rooms.stocks[0], Arena.write

    def meanwhile(arena: Arena, pieces: Any, stream: Any) -> bool:
        stock.begin(3, streams=True)
        return write(arena, pieces, stream)

    monkeypatch.setattr(Arena, "write", meanwhile)
    assert client.store(chain(20), in_a_row(chain(20))).stored == BLOCKS
    monkeypatch.setattr(type(stock), "begin", lambda *_, **__: None)  # between its two lines
    assert client.store(chain(21), in_a_row(chain(21))).stored == BLOCKS


def test_an_interrupt_under_the_copy_leaks_no_room(
    agent: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Arena, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.store(chain(20), in_a_row(chain(20)))
    monkeypatch.undo()
    assert client.lookup(chain(20)).ready == 0
    assert settled(agent, client)


def test_nothing_is_written_once_the_stream_is_closed(agent: Any, client: Client) -> None:
    stream(client, range(3))
    stock = client.rooms.stocks[0]
    room, session = stock.at_hand[0], stock.session
    assert session is not None
    session.hold()  # so that the agent keeps the pages
    before = bytes(agent.map[room.offsets[0] : room.offsets[0] + PAGE])
    pages = in_a_row(chain(20))
    session.channel.close("for this test")
    piece = (room.offsets[0], ctypes.addressof(ctypes.c_char.from_buffer(pages[0])), PAGE)
    assert not session.arena.write([piece], session.channel)
    assert bytes(agent.map[room.offsets[0] : room.offsets[0] + PAGE]) == before
    session.release()


def test_an_agent_that_ends_before_it_is_told_costs_no_exception(
    agent: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))
    send = Channel.send

    def cut(channel: Channel, data: bytes, deadline_s: float) -> None:
        agent.stop()
        send(channel, data, deadline_s)
        channel.drain()

    monkeypatch.setattr(Channel, "send", cut)
    client.store(chain(20), in_a_row(chain(20)))
    monkeypatch.undo()
    assert client.store(chain(21), in_a_row(chain(21))).refused == BLOCKS


def test_a_room_larger_than_one_copy_is_written_in_several(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(client, range(3))
    lengths: list[int] = []
    write = Arena.write

    def seen(arena: Arena, pieces: Any, stream: Any) -> bool:
        lengths.extend(length for _, _, length in pieces)
        return write(arena, pieces, stream)

    monkeypatch.setattr(Arena, "write", seen)
    stock = client.rooms.stocks[0]
    assert stock.session is not None
    monkeypatch.setattr(stock.session.arena, "copy_max_bytes", 2 * PAGE)
    stream(client, range(3, 4))
    assert lengths == [2 * PAGE] * (BLOCKS // 2)
    assert whole(client, chain(3))


@pytest.mark.parametrize(
    ("keys", "pages", "kind", "words"),
    [
        (chain(9), in_a_row(chain(9))[:-1], ValueError, "7 entries for 8 keys"),
        ([*chain(9)[:-1], "key"], in_a_row(chain(9)), TypeError, "keys"),
        ([*chain(9)[:-2], b"k" * 15, b"k" * 17], in_a_row(chain(9)), ValueError, "of 15 bytes"),
        (chain(9), [*in_a_row(chain(9))[:-1], b"short"], ValueError, r"pages\[7\] has 5 bytes"),
    ],
)
def test_a_wrong_argument_is_named_and_takes_no_room(
    agent: Any, client: Client, keys: Any, pages: Any, kind: type[Exception], words: str
) -> None:
    stream(client, range(3))
    with pytest.raises(kind, match=words):
        client.store(keys, pages)
    assert settled(agent, client)
    assert agent.ops.count(Op.STORE_PREPARE) == 2
    stream(client, range(3, 5))
    assert agent.ops.count(Op.STORE_PREPARE) == 2
