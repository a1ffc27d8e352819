"""Loads from the board of a real agent: no round trip, and never a byte of another block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import AgentProcess, soon

from onggi import Client, SpaceSpec, block_keys
from onggi.board import READS_IN_ORDER
from onggi.session import Session

PAGE = 65_536
SPACE = SpaceSpec(b"b" * 16, PAGE, 16)
OTHER = SpaceSpec(b"o" * 16, PAGE, 16)
KEYS = block_keys(list(range(64 * 16)), 16)

pytestmark = pytest.mark.skipif(not READS_IN_ORDER, reason="this processor reads no board")


def page(key: bytes, space: SpaceSpec = SPACE) -> bytes:
    return (hashlib.sha256(space.fingerprint + key).digest() * (PAGE // 32))[:PAGE]


def chain(number: int, blocks: int = 64) -> list[bytes]:
    first = number * 1_000_000
    return list(block_keys(list(range(first, first + blocks * 16)), 16))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path, memory="16MiB") as agent:
        yield agent


@pytest.fixture
def client(agent: AgentProcess) -> Iterator[Client]:
    client = Client(agent.socket, spaces=[SPACE], deadline_s=30.0)
    assert soon(lambda: client.stats().get("arena_ready_bytes") == 16 << 20)
    assert client.store(KEYS, [page(key) for key in KEYS]).stored == 64
    assert soon(lambda: shows(client, KEYS))
    yield client
    client.close()


def session_of(client: Client) -> Session:
    session = client.showing()
    assert session is not None
    return session


def shows(client: Client, keys: list[bytes]) -> bool:
    shown = session_of(client).shown
    return shown is not None and shown.look(keys) is not None


def loaded(client: Client, keys: list[bytes], space: int = 0) -> list[bytes]:
    buffers = [bytearray(PAGE) for _ in keys]
    count = client.load(keys, buffers, space=space)
    return [bytes(buffer) for buffer in buffers[:count]]


def test_a_load_and_a_lookup_ask_nobody_and_count_all_the_same(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client.stats()
    sent: list[int] = []
    channel = session_of(client).channel
    start = channel.start
    monkeypatch.setattr(channel, "start", lambda op, *rest: (sent.append(op), start(op, *rest))[1])
    assert client.lookup(KEYS).ready == 64
    assert loaded(client, KEYS) == [page(key) for key in KEYS]
    assert loaded(client, KEYS[8:40]) == [page(key) for key in KEYS[8:40]]
    assert set(sent) <= {9}, "LOADED alone is told"
    after = client.stats()
    for figure, more in (
        ("hit_host_blocks", 96),
        ("lookup_blocks", 96),
        ("lookup_requests", 2),
        ("tokens_saved", 96 * 16),
        ("loaded_bytes", 96 * PAGE),
    ):
        assert after[figure] - before[figure] == more, figure
    assert after["open_loads"] == 0


def test_what_is_not_shown_as_a_whole_is_asked_for(client: Client) -> None:
    longer = [*KEYS, *chain(7, 3)]
    assert loaded(client, longer) == [page(key) for key in KEYS]
    assert client.lookup(longer).ready == 64


def test_a_page_that_goes_under_the_copy_is_not_believed(
    agent: AgentProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the arena is stored anew between the look at the board and the copy."""
    arena = session_of(client).arena
    prepare, overwritten = arena.prepare, []
    other = Client(agent.socket, spaces=[OTHER], deadline_s=30.0)

    def overwrite_first(*piece: int) -> None:
        if not overwritten:
            overwritten.append(True)
            for number in range(1, 6):
                keys = chain(number)
                other.store(keys, [page(key, OTHER) for key in keys])
            assert soon(lambda: client.stats()["evicted_host_blocks"] >= 64)
        prepare(*piece)

    monkeypatch.setattr(arena, "prepare", overwrite_first)
    assert loaded(client, KEYS) == []
    assert overwritten
    other.close()


def test_a_place_behind_the_file_is_a_miss(client: Client) -> None:
    """Places are read after stamps and keys: the slot may have gone to a smaller page by then."""
    shown = session_of(client).shown
    assert shown is not None
    reader = shown._reader
    real, last = reader.buffer, (16 << 20) // 4096 - 1

    class Torn:
        def __getitem__(self, part: slice) -> bytes | bytearray:
            if reader._places_at <= part.start < reader._stamps_at:
                return last.to_bytes(4, "little") * ((part.stop - part.start) // 4)
            return real[part]

    reader.buffer = Torn()
    assert loaded(client, KEYS[:1]) == [page(KEYS[0])], "asked for instead"
    assert loaded(client, KEYS) == [page(key) for key in KEYS]


def test_a_long_chain_is_loaded_and_told_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message names 65,536 keys at most; what is refused would never count."""
    keys = chain(9, 2500)
    pages = [key * 256 for key in keys]
    told: list[int] = []
    with AgentProcess(tmp_path, memory="64MiB") as agent:
        small = Client(agent.socket, spaces=[SpaceSpec(b"s" * 16, 4096, 16)], deadline_s=30.0)
        assert soon(lambda: small.stats().get("arena_ready_bytes") == 64 << 20)
        assert small.store(keys, pages).stored == 2500
        assert soon(lambda: shows(small, keys))
        note = small.note_loaded
        monkeypatch.setattr(
            small, "note_loaded", lambda of, some: (told.append(len(some)), note(of, some))
        )
        buffers = [bytearray(4096) for _ in keys]
        assert small.load(keys, buffers) == 2500
        assert [bytes(buffer) for buffer in buffers] == pages
        assert sum(told) == 2500
        assert max(told) <= 1024
        assert small.stats()["hit_host_blocks"] == 2500
        small.close()


def test_a_rank_loads_only_what_all_ranks_have(agent: AgentProcess, client: Client) -> None:
    both = Client(agent.socket, spaces=[SPACE, OTHER], deadline_s=30.0)
    assert both.lookup(KEYS).ready == 0
    assert loaded(both, KEYS) == []
    some = KEYS[:32]
    assert both.store(some, [page(key, OTHER) for key in some], space=1).stored == 32
    assert soon(lambda: shows(both, some))
    for number, space in enumerate((SPACE, OTHER)):
        assert loaded(both, some, space=number) == [page(key, space) for key in some]
        assert loaded(both, KEYS, space=number) == [page(key, space) for key in some]
    both.close()


def test_what_is_loaded_from_the_board_is_kept_the_longer(client: Client) -> None:
    """Half of the arena is used again and again while other blocks come: it stays."""
    for number in range(1, 12):
        assert loaded(client, KEYS) == [page(key) for key in KEYS]
        keys = chain(number)
        assert client.store(keys, [page(key) for key in keys]).refused == 0
    assert loaded(client, KEYS) == [page(key) for key in KEYS]
    assert client.stats()["evicted_host_blocks"] > 0


def test_after_the_agents_end_nothing_of_its_board_is_believed(
    agent: AgentProcess, client: Client
) -> None:
    agent.stop()
    assert loaded(client, KEYS) == []
    assert client.lookup(KEYS).ready == 0
    agent.start()
    assert soon(lambda: client.attached)
    assert loaded(client, KEYS) == []
    assert soon(lambda: client.store(KEYS, [page(key) for key in KEYS]).refused == 0)
    assert soon(lambda: shows(client, KEYS))
    assert loaded(client, KEYS) == [page(key) for key in KEYS]


@pytest.mark.parametrize(
    ("wait_s", "kind"),
    [("1", TypeError), (float("nan"), ValueError), (-1, ValueError), (-1.0, ValueError)],
)
def test_a_wrong_wait_raises_on_a_hit_as_on_a_miss(
    client: Client, wait_s: Any, kind: type[Exception]
) -> None:
    buffers = [bytearray(PAGE) for _ in KEYS]
    with pytest.raises(kind, match="wait_s is "):
        client.load(KEYS, buffers, wait_s=wait_s)
    assert client.load(KEYS, buffers, wait_s=30) == len(KEYS)
