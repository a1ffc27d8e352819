"""What clients let go of is taken apart in parts: no step does more than its own."""

from __future__ import annotations

import itertools

import pytest
from shell import Shell, chain, spec
from walker import check

from onggi_core.engine import leaving
from onggi_core.engine.events import GoOn, SessionClosed, Tick
from onggi_core.engine.state import LEASE_S
from onggi_core.wire.replies import Looked, Slot
from onggi_core.wire.requests import Lookup, StoreComplete, StoreOutcome

A = spec("a")
PARTS = 3
PAGES = PARTS * leaving.PART
LONG = chain("long", PAGES)
PINS_A_STEP = leaving.PART * leaving.PINS_A_PAGE


@pytest.fixture
def shell() -> Shell:
    return Shell(extents=1, segments=0, pages_each=PAGES + leaving.PART)


def go_on(shell: Shell) -> list[int]:
    """Until there is nothing left; the pages in use after each step."""
    used = [shell.stats()["host_pages"]]
    while shell.engine.busy:
        shell.step(GoOn())
        used.append(shell.stats()["host_pages"])
        check(shell.engine)
    return used


def most_in_a_step(used: list[int]) -> int:
    return max(before - after for before, after in itertools.pairwise(used))


@pytest.mark.parametrize("how", ["its stream ends", "it gives it up"])
def test_a_long_store_that_is_over_goes_in_parts_and_others_are_answered_between(
    shell: Shell, how: str
) -> None:
    client, other = shell.open(A), shell.open(A)
    assert shell.store(other, chain("short", 4)) == 4
    ticket = shell.prepare(client, LONG).ticket
    used = [shell.stats()["host_pages"]]
    if how == "its stream ends":
        shell.close(client)
    else:
        shell.complete(ticket, StoreOutcome.ABANDONED)
    assert shell.stats()["open_stores"] == 0
    assert shell.ask(other, Lookup(tuple(chain("short", 4)))) == Looked(4, 4)
    used += go_on(shell)
    assert most_in_a_step(used) == leaving.PART
    assert used[-1] == 4
    assert shell.store(shell.open(A), LONG) == PAGES


def test_a_lease_that_ends_on_a_long_store_is_a_part_a_step_and_so_is_its_end(
    shell: Shell,
) -> None:
    client = shell.open(A)
    ticket = shell.prepare(client, LONG).ticket
    shell.now_s += LEASE_S
    used = [PAGES]
    shell.step(Tick())
    used += go_on(shell)
    assert most_in_a_step(used) == leaving.PART
    assert used[-1] == 0
    other = shell.prepare(shell.open(A), chain("else", PAGES))  # what rests is not for others
    assert other.slots.count(Slot.NO_ROOM) == PAGES - leaving.PART
    shell.complete(other.ticket, StoreOutcome.ABANDONED)
    assert shell.complete(ticket).sealed == 0
    assert len(go_on(shell)) == PARTS


def test_a_store_that_ends_while_its_lease_is_ending_gives_back_every_page(shell: Shell) -> None:
    client = shell.open(A)
    ticket = shell.prepare(client, LONG).ticket
    shell.now_s += LEASE_S
    shell.step(Tick())
    shell.step(GoOn())
    assert shell.engine.busy
    assert shell.complete(ticket).sealed == 0
    go_on(shell)
    assert shell.store(client, LONG) == PAGES


def test_pins_of_many_loads_go_in_parts_when_their_client_does(shell: Shell) -> None:
    client, other = shell.open(A), shell.open(A)
    shell.store(other, LONG)
    for _ in range(2 * PINS_A_STEP // PAGES + 2):
        shell.load(client, LONG)
    pins = shell.engine._state.host.pages.pins
    held = [sum(pins)]
    shell.close(client)
    assert shell.stats()["open_loads"] == 0
    held.append(sum(pins))
    while shell.engine.busy:
        shell.step(GoOn())
        held.append(sum(pins))
        check(shell.engine)
    assert held[-1] == 0
    assert len(held) > 3
    assert most_in_a_step(held) <= PINS_A_STEP


def test_a_load_whose_client_is_gone_is_answered_to_nobody(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a block that another client is storing, which is sealed before the load's turn
    to be taken apart comes."""
    writer, client = shell.open(A), shell.open(A)
    short = LONG[:20]
    ticket = shell.prepare(writer, short).ticket
    for _ in range(3):
        assert shell.load(client, short, wait_ms=1000) is None
    monkeypatch.setattr(leaving, "PART", 1)
    monkeypatch.setattr(leaving, "PINS_A_PAGE", 1)
    shell.asked_loads.clear()
    del shell.sessions[client]
    shell.step(SessionClosed(client))
    shell.fill(ticket)
    assert shell.ask(writer, StoreComplete(ticket, StoreOutcome.SEALED)).sealed == 20
    shell.stores.clear()
    go_on(shell)
    assert not any(shell.engine._state.host.pages.pins)
    assert not shell.engine._state.waiting
