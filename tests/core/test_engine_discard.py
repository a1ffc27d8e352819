"""DISCARD: what is named goes, before anything else does and at no reader's cost."""

from __future__ import annotations

import itertools

import pytest
from shell import Shell, chain, spec
from walker import check

from onggi_core.engine import leaving
from onggi_core.engine.events import GoOn, Tick
from onggi_core.wire.replies import Discarded, Looked
from onggi_core.wire.requests import Discard, LoadComplete, LoadOutcome, Lookup, StoreOutcome

A, B = spec("a"), spec("b")
ONE, TWO = chain("one", 4), chain("two", 4)


@pytest.fixture
def shell() -> Shell:
    return Shell(extents=2, segments=4, pages_each=4)


def discard(shell: Shell, session: int, keys: list[bytes]) -> int:
    reply = shell.ask(session, Discard(tuple(keys)))
    assert isinstance(reply, Discarded)
    return reply.found


def settle(shell: Shell) -> dict[str, int]:
    while shell.engine.busy:
        shell.step(GoOn())
    check(shell.engine)
    return shell.stats()


def test_pages_in_memory_and_on_disk_go_and_their_records_with_them(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.end_jobs()
    assert len(shell.journal) == 4
    assert discard(shell, client, ONE) == 4
    stats = settle(shell)
    assert stats["host_pages"] == stats["disk_pages"] == stats["blocks"] == stats["dead_pages"] == 0
    assert not shell.journal, "a restart would bring them back"
    assert stats["discarded_blocks"] == 4
    assert shell.ask(client, Lookup(tuple(ONE))) == Looked(0, 0)


def test_it_is_for_all_spaces_of_the_session_and_no_others(shell: Shell) -> None:
    both, one = shell.open(A, B), shell.open(B)
    shell.store(both, ONE[:2], space=0)
    shell.store(both, ONE[:2], space=1)
    shell.end_jobs()
    assert discard(shell, one, ONE) == 2
    settle(shell)
    alone = shell.open(A)
    assert shell.ask(alone, Lookup(tuple(ONE))) == Looked(2, 2)
    assert discard(shell, both, ONE) == 2
    assert settle(shell)["host_pages"] == 0


def test_only_what_is_named_goes_and_what_follows_comes_back_with_it(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.end_jobs()
    discard(shell, client, ONE[1:2])
    assert settle(shell)["host_pages"] == 3
    assert shell.ask(client, Lookup(tuple(ONE))) == Looked(1, 1)
    shell.store(client, ONE[1:2], parent=ONE[0])
    assert shell.ask(client, Lookup(tuple(ONE))) == Looked(4, 4)


def test_the_dead_make_room_before_the_coldest_does(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.store(client, TWO)  # all 8 pages of the arena
    shell.end_jobs()
    leave_to_later = leaving.PART
    leaving.PART = 0  # type: ignore[misc]
    try:
        discard(shell, client, TWO)
        assert shell.stats()["dead_pages"] == 8
        assert shell.store(client, chain("three", 4)) == 4
    finally:
        leaving.PART = leave_to_later  # type: ignore[misc]
    assert shell.ask(client, Lookup(tuple(ONE))) == Looked(4, 4)
    assert settle(shell)["dead_pages"] == 0


def test_a_page_that_is_read_goes_when_that_ends(shell: Shell) -> None:
    reader, other = shell.open(A), shell.open(A)
    shell.store(reader, ONE)
    shell.end_jobs()
    load = shell.load(reader, ONE)
    assert load is not None
    discard(shell, other, ONE)
    stats = settle(shell)
    assert (stats["host_pages"], stats["disk_pages"]) == (4, 0)
    shell.check_bytes(shell.loads[load.ticket])
    shell.finish(load.ticket)
    assert settle(shell)["host_pages"] == 0


def test_a_page_on_its_way_to_disk_goes_when_it_is_there(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    (write,) = shell.jobs.values()
    discard(shell, client, ONE)
    assert settle(shell)["host_pages"] == len(write.keys) < 4
    shell.end_jobs()
    stats = settle(shell)
    assert stats["host_pages"] == stats["disk_pages"] == 0
    assert not shell.journal


def test_a_page_on_its_way_from_disk_goes_when_its_reader_is_done(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.end_jobs()
    shell.store(client, TWO)
    shell.store(client, chain("three", 4))
    shell.end_jobs()
    assert shell.load(client, ONE, wait_ms=1000) is None
    discard(shell, client, ONE)
    shell.end_jobs()
    (ticket,) = shell.loads
    shell.finish(ticket)
    stats = settle(shell)
    assert stats["dead_pages"] == 0
    assert shell.ask(client, Lookup(tuple(ONE))) == Looked(0, 0)


def test_a_store_under_way_is_sealed_and_goes(shell: Shell) -> None:
    client, other = shell.open(A), shell.open(A)
    ticket = shell.prepare(client, ONE).ticket
    assert discard(shell, other, ONE) == 4
    shell.fill(ticket)
    assert shell.complete(ticket, StoreOutcome.SEALED).sealed == 4  # type: ignore[union-attr]
    stats = settle(shell)
    assert (stats["host_pages"], stats["dirty_blocks"]) == (0, 0)


def test_whoever_stores_it_again_keeps_it(shell: Shell) -> None:
    client, other = shell.open(A), shell.open(A)
    shell.store(client, ONE)
    shell.end_jobs()
    load = shell.load(client, ONE)
    assert load is not None
    discard(shell, client, ONE)
    settle(shell)
    assert shell.store(other, ONE) == 0  # all are there
    shell.ask(client, LoadComplete(load.ticket, LoadOutcome.LOADED, 4))
    shell.step(Tick())
    assert settle(shell)["host_pages"] == 4
    shell.end_jobs()
    assert settle(shell)["disk_pages"] == 4, "and it is written down again"
    assert shell.ask(other, Lookup(tuple(ONE))) == Looked(4, 4)


def test_a_long_chain_goes_in_parts_and_others_are_answered_between() -> None:
    pages = 3 * leaving.PART
    shell = Shell(extents=1, segments=0, pages_each=pages + 8)
    client = shell.open(A)
    long, short = chain("long", pages), chain("short", 4)
    shell.store(client, short)
    shell.store(client, long)
    used = [shell.stats()["host_pages"]]
    discard(shell, client, long)
    used.append(shell.stats()["host_pages"])
    assert shell.ask(client, Lookup(tuple(short))) == Looked(4, 4)
    while shell.engine.busy:
        shell.step(GoOn())
        used.append(shell.stats()["host_pages"])
        check(shell.engine)
    assert used[-1] == 4
    assert max(before - after for before, after in itertools.pairwise(used)) == leaving.PART


def test_names_that_nobody_knows_and_names_twice_are_no_matter(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.end_jobs()
    assert discard(shell, client, [*TWO, *ONE, *ONE, bytes(16)]) == 4
    assert discard(shell, client, []) == 0
    assert settle(shell)["host_pages"] == 0
