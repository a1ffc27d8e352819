"""Room granted ahead of stores, a sentence a test."""

from __future__ import annotations

import pytest
from shell import PAGE, Shell, chain, spec
from walker import check

from onggi_core.engine.actions import Refuse, ReleaseExtent
from onggi_core.engine.events import BudgetSet, ModeSet, Stopping, Tick
from onggi_core.engine.session import TICKETS_MAX
from onggi_core.engine.state import LEASE_S, RoomBounds
from onggi_core.errors import IllegalMove
from onggi_core.identity import ROOT
from onggi_core.region import ROOM
from onggi_core.slab import Slab
from onggi_core.wire.frame import Status
from onggi_core.wire.replies import Looked, Mode, Slot, StoreCompleted, StoreFilled
from onggi_core.wire.requests import (
    LoadPrepare,
    Lookup,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
)

A, B, WIDE = spec("a"), spec("b"), spec("wide", page_bytes=PAGE + 1)
KEYS = chain("prompt", 4)
NOTHING = StoreFilled(0, 0, 0, ())


def big(**changes: object) -> Shell:
    """64 pages: 32 for rooms, 8 a session."""
    return Shell(extents=4, segments=0, pages_each=16, **changes)  # type: ignore[arg-type]


def test_blocks_written_to_a_room_are_hits_once_it_is_said_which_they_are() -> None:
    shell = big()
    client = shell.open(A)
    room = shell.ask_room(client, 4)
    assert (room.sealed, room.existing, len(room.offsets)) == (0, 0, 4)
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 0)
    filled = shell.store_to(room.ticket, KEYS, wanted=4)
    assert (filled.sealed, filled.existing, len(filled.offsets)) == (4, 0, 4)
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(4, 4)
    shell.finish(shell.load(client, KEYS).ticket)
    assert shell.stats()["stored_blocks"] == 4
    check(shell.engine)


def test_a_block_that_is_there_gives_its_page_back() -> None:
    shell = big()
    client, other = shell.open(A), shell.open(A)
    room = shell.ask_room(client, 4)
    shell.store(other, KEYS[:1])
    waits = shell.prepare(other, KEYS[1:2], KEYS[0])
    filled = shell.store_to(room.ticket, KEYS)
    assert (filled.sealed, filled.existing) == (2, 2)
    assert shell.stats()["host_pages"] == 4
    check(shell.engine)
    shell.fill(waits.ticket)
    shell.complete(waits.ticket)
    shell.finish(shell.load(client, KEYS).ticket)


def test_a_chain_that_names_a_block_twice_seals_it_once() -> None:
    shell = big()
    room = shell.ask_room(shell.open(A), 4)
    filled = shell.store_to(room.ticket, [KEYS[0], KEYS[1], KEYS[0]])
    assert (filled.sealed, filled.existing) == (2, 1)
    check(shell.engine)


def test_pages_that_are_left_over_are_free_again() -> None:
    shell = big()
    client = shell.open(A)
    room = shell.ask_room(client, 4)
    assert shell.stats()["room_bytes"] == 4 * PAGE
    shell.store_to(room.ticket, KEYS[:1])
    assert shell.stats()["room_bytes"] == 0
    assert shell.stats()["open_stores"] == 0
    assert len(shell.prepare(client, chain("all", 63)).slots) == 63
    check(shell.engine)


def test_a_room_is_given_back_as_a_store_is_abandoned_and_seals_nothing() -> None:
    shell = big()
    client = shell.open(A)
    for outcome in StoreOutcome:
        room = shell.ask_room(client, 4)
        assert shell.complete(room.ticket, outcome) == StoreCompleted(0)
        assert shell.stats()["room_bytes"] == 0
    check(shell.engine)


def test_what_a_client_may_have_is_bounded_and_so_is_what_all_have() -> None:
    shell = big()
    first, second = shell.open(A), shell.open(A)
    rooms = [len(shell.ask_room(first, 100).offsets) for _ in range(3)]
    assert rooms == [4, 4, 0], "half of its 8 pages each"
    for _ in range(3):
        shell.open(A)
    sessions = [second, *list(shell.sessions)[2:]]
    granted = [len(shell.ask_room(session, 100).offsets) for session in sessions for _ in range(2)]
    assert sum(granted) + 8 == 32, "half of the 64 pages there are"
    assert shell.ask_room(shell.open(A), 1) == NOTHING


def test_a_room_that_is_not_worth_its_request_is_none() -> None:
    bounds = RoomBounds(session_bytes=8 * PAGE, share=2, worth_bytes=5 * PAGE)
    shell = big(rooms=bounds)
    client = shell.open(A)
    assert shell.ask_room(client, 6) == NOTHING
    assert len(shell.ask_room(client, 3).offsets) == 3


def test_a_room_takes_the_place_of_the_coldest_and_never_of_its_own_store() -> None:
    shell = Shell(extents=2, segments=0)
    client = shell.open(A)
    shell.store(client, chain("cold", 4))
    shell.store(client, chain("warm", 2))
    room = shell.ask_room(client, 2)
    filled = shell.store_to(room.ticket, KEYS[:2], wanted=2)
    assert filled.sealed == 2
    assert len(filled.offsets) == 2
    assert shell.ask(client, Lookup(tuple(chain("cold", 4)))).ready == 2
    assert shell.ask(client, Lookup(tuple(chain("warm", 2)))).ready == 2
    assert shell.ask(client, Lookup(tuple(KEYS[:2]))).ready == 2


def test_rooms_leave_extents_for_other_page_sizes() -> None:
    shell = Shell(extents=2, segments=0)
    small, large = shell.open(A), shell.open(WIDE)
    assert shell.store(small, chain("full", 8)) == 8
    assert len(shell.ask_room(small, 2).offsets) == 2
    assert shell.store(large, KEYS[:2]) == 2
    assert shell.ask_room(large, 1) == NOTHING
    check(shell.engine)


def test_one_extent_holds_no_room() -> None:
    shell = Shell(extents=1, segments=0)
    assert shell.ask_room(shell.open(A), 1) == NOTHING
    check(shell.engine)


def test_a_lapsed_room_rests_until_its_client_ends_it_and_seals_nothing() -> None:
    shell = Shell(extents=2, segments=0)
    client, other = shell.open(A), shell.open(A)
    ticket = shell.ask_room(client, 2).ticket
    shell.now_s = LEASE_S + 1
    shell.step(Tick())
    check(shell.engine)
    assert shell.stats()["errors"] == {}, "a client that stores no more is no fault"
    assert shell.prepare(other, chain("other", 8)).slots.count(Slot.NO_ROOM) == 2
    assert shell.store_to(ticket, KEYS[:1]) == NOTHING
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 0)
    assert shell.stats()["room_bytes"] == 0
    check(shell.engine)


def test_silent_clients_hold_no_more_than_the_share_for_however_long() -> None:
    """Nobody can tell a client that sleeps from one that was stopped in a copy. What their lapsed
    rooms take up stays bounded, and the others store as they would without rooms."""
    shell = big()
    silent = [shell.open(A) for _ in range(8)]
    for _ in range(3):
        for client in silent:
            shell.ask_room(client, 4)
        shell.now_s += LEASE_S + 1
        shell.step(Tick())
        check(shell.engine)
        assert shell.stats()["room_bytes"] == 32 * PAGE, "half of the 64 pages there are"
    other = shell.open(A)
    assert shell.ask_room(other, 1) == NOTHING
    for number in range(4):
        assert shell.store(other, chain(f"other{number}", 30)) == 30
    for client in silent:
        shell.close(client)
    assert shell.stats()["room_bytes"] == 0
    assert len(shell.ask_room(other, 4).offsets) == 4


@pytest.mark.parametrize("lapsed", [False, True])
def test_a_client_that_dies_frees_its_rooms(lapsed) -> None:
    shell = Shell(extents=2, segments=0)
    client = shell.open(A)
    assert shell.ask_room(client, 2).ticket
    if lapsed:
        shell.now_s = LEASE_S + 1
        shell.step(Tick())
    shell.close(client)
    assert shell.stats()["room_bytes"] == 0
    assert Slot.NO_ROOM not in shell.prepare(shell.open(A), chain("all", 8)).slots


@pytest.mark.parametrize("how", ["filled", "given back", "its client dies"])
def test_a_shrink_waits_for_a_room_and_no_longer(how) -> None:
    shell = Shell(extents=2, segments=0)
    client = shell.open(A)
    room = shell.ask_room(client, 1)
    shell.step(BudgetSet(0, 0))
    assert shell.stats()["arena_leaving_bytes"] == 4 * PAGE
    if how == "filled":
        filled = shell.store_to(room.ticket, KEYS[:1], wanted=1)
        assert (filled.sealed, filled.ticket) == (1, 0), "nothing is granted where nothing is left"
    elif how == "given back":
        shell.complete(room.ticket, StoreOutcome.ABANDONED)
    else:
        shell.close(client)
    assert ReleaseExtent(0) in shell.step(Tick())
    check(shell.engine)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PAUSED])
def test_a_pool_that_does_not_store_grants_none_and_keeps_what_was_written(mode) -> None:
    shell = big()
    client = shell.open(A)
    room = shell.ask_room(client, 4)
    shell.step(ModeSet(mode))
    filled = shell.store_to(room.ticket, KEYS, wanted=4)
    assert (filled.sealed, filled.ticket) == (4, 0)
    assert shell.ask_room(client, 4) == NOTHING


def test_an_agent_that_ends_grants_none() -> None:
    shell = big()
    client = shell.open(A)
    shell.step(Stopping())
    assert shell.ask_room(client, 4) == NOTHING


def test_who_has_all_the_tickets_there_are_gets_no_room() -> None:
    shell = big()
    client = shell.open(A)
    state = shell.engine._state
    state.sessions[client].loads.update(range(-TICKETS_MAX, 0))
    assert shell.ask_room(client, 1) == NOTHING
    state.sessions[client].loads.clear()


def test_what_cannot_be_right_is_refused_and_changes_nothing() -> None:
    shell = big()
    client, other = shell.open(A, B), shell.open(A)
    room = shell.ask_room(client, 2).ticket
    store = shell.prepare(client, chain("store", 1)).ticket
    before = shell.stats()
    for session, asked, status, words in (
        (client, StoreFill(room, 0, 0, ROOT, tuple(KEYS)), Status.BAD_REQUEST, "has 2 pages"),
        (client, StoreFill(room, 1, 0, ROOT, ()), Status.BAD_REQUEST, "another space"),
        (client, StoreFill(room, 2, 0, ROOT, ()), Status.BAD_REQUEST, "2 spaces, from 0"),
        (client, StoreFill(0, 0, 9, ROOT, tuple(KEYS)), Status.BAD_REQUEST, "without a room"),
        (client, StoreFill(store, 0, 9, ROOT, ()), Status.UNKNOWN_TICKET, "no room"),
        (other, StoreFill(room, 0, 9, ROOT, ()), Status.UNKNOWN_TICKET, "no room"),
        (client, StoreFill(999, 0, 9, ROOT, ()), Status.UNKNOWN_TICKET, "no room 999 is open"),
    ):
        said = shell.ask(session, asked)
        assert isinstance(said, Refuse)
        assert said.status is status
        assert words in said.sentence
        assert shell.stats() == before
        check(shell.engine)


def test_a_load_that_waits_for_a_block_gets_it_from_the_store_that_has_it() -> None:
    shell = big()
    storing, waiting = shell.open(A), shell.open(A)
    room = shell.ask_room(storing, 2)
    reserved = shell.ask(storing, StorePrepare(0, ROOT, tuple(KEYS[:1])))
    assert shell.ask(waiting, LoadPrepare(1000, tuple(KEYS[:2]))) is None
    assert shell.store_to(room.ticket, KEYS[:2]).existing == 1
    shell.arena[reserved.slots[0]] = A.fingerprint + KEYS[0]
    shell.ask(storing, StoreComplete(reserved.ticket, StoreOutcome.SEALED))
    (load,) = shell.loads.values()
    assert load.reply.blocks == 1


def test_a_page_in_no_room_cannot_be_named() -> None:
    slab = Slab(4 * PAGE)
    slab.add_region(0)
    place, _ = slab.take(PAGE, (ROOM, 5))
    with pytest.raises(IllegalMove):
        slab.pass_on(place, (1, 2))
    slab.pass_on(place, (1,))
    with pytest.raises(IllegalMove):
        slab.pass_on(place, (1,))
    assert list(slab.owners_in(0)) == [1, 5, -1, -1]
