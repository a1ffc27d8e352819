"""What was asked for, and how often, outlives the agent that was asked."""

from __future__ import annotations

import pytest
from shell import PAGE, Shell, chain, checksum, spec

from onggi_core.engine import uses
from onggi_core.engine.events import Adopted, Tick
from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT
from onggi_core.policy.choosers import Chooser, LeastRecent, S3Fifo
from onggi_core.wire.replies import Looked
from onggi_core.wire.requests import Lookup, SpaceSpec

A, B = spec("a"), spec("b")
OFTEN, ONCE, NEW = chain("often", 4), chain("once", 4), chain("new", 4)


def load(shell: Shell, client: int, keys: list[bytes]) -> None:
    shell.load(client, keys, wait_ms=100)
    shell.end_jobs()
    for ticket in tuple(shell.loads):
        shell.finish(ticket)


def next_life(first: Shell, chooser: Chooser) -> Shell:
    """Disk and page table stay, as they were told; the arena does not."""
    second = Shell(extents=1, disk=first.disk, journal=dict(first.journal))
    rows = first.journal
    second.step(
        Adopted(
            A,
            keys=[key for _, key, _ in rows.values()],
            parents=[parent for _, _, parent in rows.values()],
            places=list(rows),
            checksums=[checksum(first.disk[place]) for place in rows],
            counts=bytes(first.counts.get(place, 0) for place in rows),
        )
    )
    second.engine._state.disk.ranking.chooser = chooser
    return second


def asked_often_then_stored_once() -> Shell:
    first = Shell(extents=1)
    client = first.open(A)
    first.store(client, OFTEN)
    first.end_jobs()
    for _ in range(3):
        load(first, client, OFTEN)
    first.step(Tick())
    first.store(client, ONCE)
    first.end_jobs()
    return first


@pytest.mark.parametrize(
    ("chooser", "goes", "stays"), [(S3Fifo(), ONCE, OFTEN), (LeastRecent(), OFTEN, ONCE)]
)
def test_after_a_restart_a_policy_knows_what_was_asked_for_often(
    chooser: Chooser, goes: list[bytes], stays: list[bytes]
) -> None:
    second = next_life(asked_often_then_stored_once(), chooser)
    client = second.open(A)
    second.store(client, NEW)
    second.end_jobs()
    assert second.ask(client, Lookup(tuple(stays))).pending == 4
    assert second.ask(client, Lookup(tuple(goes))).pending == 0


def test_the_page_table_hears_of_each_page_how_often_it_was_asked_for() -> None:
    first = asked_often_then_stored_once()
    by_key = {key: first.counts.get(place, 0) for place, (_, key, _) in first.journal.items()}
    assert [by_key[key] for key in OFTEN] == [1, 1, 1, 3]
    assert [by_key[key] for key in ONCE] == [0] * 4


def test_what_waits_for_the_page_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uses, "RUNS_MAX", 2)
    shell = Shell(extents=2)
    client = shell.open(A)
    for name in "abcd":
        shell.store(client, chain(name, 2))
    shell.end_jobs()
    shell.step(Tick())
    shell.counts.clear()
    for name in "abcd":
        load(shell, client, chain(name, 2))
    shell.step(Tick())
    places = {key: place for place, (_, key, _) in shell.journal.items()}
    assert shell.counts.keys() == {places[key] for name in "cd" for key in chain(name, 2)}


def test_a_block_that_went_before_the_tick_is_not_noted() -> None:
    shell = Shell(extents=1, segments=1)
    client = shell.open(A)
    shell.store(client, OFTEN)
    shell.end_jobs()
    load(shell, client, OFTEN)
    shell.store(client, chain("more", 1))
    shell.end_jobs()
    shell.step(Tick())
    assert all(place in shell.journal for place in shell.counts)


def test_spaces_of_one_age_are_given_up_in_step() -> None:
    """Ranks of one engine: what one holds alone is worth nothing."""
    shell = Shell(extents=1, segments=4)
    client = shell.open(A, B)
    for space, segment in ((A, 0), (B, 2)):
        places = [segment * 4 * PAGE + at * PAGE for at in range(8)]
        keys = [*chain("old", 4), *chain("young", 4)]
        shell.disk |= dict.fromkeys(places, b"")
        parents = [ROOT, *keys[:3], ROOT, *keys[4:7]]
        shell.step(adopted(space, keys, parents, places, ages=[4, 8]))
    for number in (0, 1):
        shell.store(client, NEW, space=number)
        shell.end_jobs()
    assert shell.ask(client, Lookup(tuple(chain("young", 4)))) == Looked(0, 4)
    assert shell.ask(client, Lookup(tuple(chain("old", 4)))) == Looked(0, 0)


def adopted(
    space: SpaceSpec, keys: list[bytes], parents: list[bytes], places: list[int], ages: list[int]
) -> Adopted:
    return Adopted(space, keys, parents, places, [checksum(b"")] * len(keys), ages=ages)


@pytest.mark.parametrize(("counts", "ages"), [(bytes([8, 0]), ()), (b"\0", ()), (b"", (1,))])
def test_uses_that_cannot_be_are_refused_and_nothing_is_adopted(
    counts: bytes, ages: tuple[int, ...]
) -> None:
    shell = Shell()
    keys = chain("two", 2)
    with pytest.raises(BadRequest):
        shell.step(Adopted(A, keys, [ROOT, keys[0]], [0, PAGE], keys, counts, ages))
    assert shell.stats()["disk_pages"] == 0
