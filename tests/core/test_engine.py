"""What the engine does, one sentence a test."""

from __future__ import annotations

import pytest
from shell import PAGE, Shell, chain, spec

from onggi_core.engine.actions import Refuse
from onggi_core.engine.events import (
    ExtentTouched,
    ModeSet,
    SessionOpened,
    Tick,
)
from onggi_core.engine.state import LEASE_S
from onggi_core.identity import ROOT
from onggi_core.wire.frame import Status
from onggi_core.wire.replies import Looked, Mode, Slot
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    Lookup,
    Prefetch,
    StoreComplete,
    StoreOutcome,
)

A, B = spec("a"), spec("b")
KEYS = chain("prompt", 4)


def test_a_block_is_a_hit_only_once_its_store_is_sealed() -> None:
    shell = Shell()
    client = shell.open(A)
    ticket = shell.prepare(client, KEYS).ticket
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 4)
    shell.fill(ticket)
    shell.complete(ticket)
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(4, 4)


def test_an_abandoned_store_leaves_nothing() -> None:
    shell = Shell()
    client = shell.open(A)
    shell.complete(shell.prepare(client, KEYS).ticket, StoreOutcome.ABANDONED)
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 0)
    assert shell.stats()["host_pages"] == 0


def test_a_client_that_dies_frees_what_it_reserved_and_pinned() -> None:
    shell = Shell(extents=1)
    first, second = shell.open(A), shell.open(A)
    shell.store(first, KEYS[:2])
    assert shell.load(first, KEYS[:2]).blocks == 2
    shell.prepare(first, KEYS[2:], KEYS[1])
    assert shell.prepare(second, chain("other", 4)).slots == (Slot.NO_ROOM,) * 4
    shell.end_jobs()
    shell.close(first)
    assert shell.store(second, chain("other", 4)) == 4


def test_lookup_gives_the_longest_consecutive_run() -> None:
    shell = Shell()
    client = shell.open(A)
    shell.store(client, KEYS[:1])
    shell.store(client, KEYS[2:3], KEYS[1])
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(1, 1)
    assert shell.load(client, KEYS).blocks == 1


def test_a_block_counts_only_when_every_rank_has_it() -> None:
    shell = Shell()
    both = shell.open(A, B)
    shell.store(both, KEYS[:2], space=0)
    assert shell.ask(both, Lookup(tuple(KEYS))) == Looked(0, 0)
    shell.store(both, KEYS[:1], space=1)
    assert shell.ask(both, Lookup(tuple(KEYS))) == Looked(1, 1)
    reply = shell.load(both, KEYS)
    assert [len(row) for row in reply.offsets] == [1, 1]
    assert reply.offsets[0] != reply.offsets[1]


def test_another_fingerprint_never_hits() -> None:
    shell = Shell()
    shell.store(shell.open(A), KEYS)
    assert shell.ask(shell.open(B), Lookup(tuple(KEYS))) == Looked(0, 0)


def test_storing_again_says_exists_and_while_it_is_filled_busy() -> None:
    shell = Shell()
    client = shell.open(A)
    ticket = shell.prepare(client, KEYS[:1]).ticket
    assert shell.prepare(client, KEYS[:1]).slots == (Slot.BUSY,)
    shell.fill(ticket)
    shell.complete(ticket)
    assert shell.prepare(client, KEYS[:1]).slots == (Slot.EXISTS,)


def test_eviction_takes_the_coldest_chain_from_its_end() -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    shell.store(client, KEYS[:2])
    warm = chain("warm", 2)
    shell.store(client, warm)
    shell.ask(client, Lookup(tuple(KEYS[:2])))
    shell.store(client, chain("new", 1))
    assert shell.ask(client, Lookup(tuple(warm))) == Looked(1, 1)
    assert shell.ask(client, Lookup(tuple(KEYS[:2]))) == Looked(2, 2)


def test_a_store_never_evicts_its_own_parents() -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    shell.store(client, KEYS[:3])
    reply = shell.prepare(client, [*KEYS[:3], *chain("tail", 2)])
    assert reply.slots[:3] == (Slot.EXISTS,) * 3
    assert reply.slots[4] is Slot.NO_ROOM or reply.slots[4] == Slot.NO_ROOM


def test_a_chain_that_replaces_another_lies_in_one_run() -> None:
    """Freed one by one, leaves first, and taken at once, its pages would come in backward order:
    a copy a block instead of one for all."""
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    for name in ("old", "new", "newer"):
        reply = shell.prepare(client, chain(name, shell.pages_each))
        assert reply.slots == (0, PAGE, 2 * PAGE, 3 * PAGE)
        shell.fill(reply.ticket)
        shell.complete(reply.ticket)


def test_a_pinned_page_is_never_evicted() -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    shell.store(client, KEYS)
    ticket = shell.load(client, KEYS).ticket
    assert shell.prepare(client, chain("new", 1)).slots == (Slot.NO_ROOM,)
    shell.finish(ticket)
    assert shell.store(client, chain("new", 1)) == 1


def test_a_store_whose_lease_ends_keeps_its_pages_from_others_until_the_client_is_done() -> None:
    shell = Shell(extents=1, segments=0)
    slow, other = shell.open(A), shell.open(A)
    ticket = shell.prepare(slow, KEYS).ticket
    shell.now_s += LEASE_S
    shell.step(Tick())
    assert shell.ask(other, Lookup(tuple(KEYS))) == Looked(0, 0)
    assert shell.prepare(other, KEYS).slots == (Slot.NO_ROOM,) * 4
    shell.fill(ticket)
    assert shell.complete(ticket).sealed == 0
    assert shell.store(other, KEYS) == 4


def test_a_load_whose_lease_ends_is_released_and_its_ticket_unknown() -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    shell.store(client, KEYS)
    ticket = shell.load(client, KEYS).ticket
    shell.now_s += LEASE_S
    shell.step(Tick())
    shell.loads.clear()
    assert shell.store(client, chain("new", 4)) == 4
    late = shell.ask(client, LoadComplete(ticket, LoadOutcome.LOADED, 4))
    assert isinstance(late, Refuse)
    assert late.status is Status.UNKNOWN_TICKET
    assert shell.stats()["tokens_saved"] == 0


def test_another_page_size_gets_a_region_that_lies_idle() -> None:
    shell = Shell(extents=1, segments=0)
    shell.store(shell.open(A), KEYS)
    big = spec("big", page_bytes=2 * PAGE)
    client = shell.open(big)
    reply = shell.prepare(client, chain("big", 2))
    assert reply.slots == (0, 2 * PAGE)


@pytest.mark.parametrize(
    ("spaces", "sentence"),
    [
        ((spec("a", page_bytes=0),), "page_bytes is 0"),
        ((spec("a", page_bytes=5 * PAGE),), "page_bytes is 20480"),
        ((spec("a", block_tokens=0),), "block_tokens is 0"),
        ((A, A), "spaces is 2; each rank needs a fingerprint of its own"),
    ],
)
def test_a_hello_that_cannot_be_right_is_refused_with_the_field(spaces, sentence) -> None:
    shell = Shell()
    shell.step(SessionOpened(99))
    refused = shell.ask(99, Hello(1, "test", spaces))
    assert isinstance(refused, Refuse)
    assert refused.status is Status.BAD_REQUEST
    assert sentence in refused.sentence


def test_a_known_fingerprint_with_another_page_size_is_refused() -> None:
    shell = Shell()
    shell.open(A)
    shell.step(SessionOpened(99))
    refused = shell.ask(99, Hello(1, "test", (spec("a", page_bytes=2 * PAGE),)))
    assert isinstance(refused, Refuse)
    assert refused.status is Status.BAD_REQUEST


def test_before_hello_everything_else_is_refused_and_the_stream_closed() -> None:
    shell = Shell()
    shell.step(SessionOpened(99))
    refused = shell.ask(99, Lookup(()))
    assert isinstance(refused, Refuse)
    assert refused.status is Status.HELLO_FIRST


def test_a_ticket_of_another_session_is_unknown() -> None:
    shell = Shell()
    first, second = shell.open(A), shell.open(A)
    ticket = shell.prepare(first, KEYS).ticket
    refused = shell.ask(second, StoreComplete(ticket, StoreOutcome.SEALED))
    assert isinstance(refused, Refuse)
    assert refused.status is Status.UNKNOWN_TICKET


def test_a_paused_pool_answers_miss_and_stores_nothing() -> None:
    shell = Shell()
    client = shell.open(A)
    shell.store(client, KEYS)
    shell.step(ModeSet(Mode.PAUSED))
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 0)
    assert shell.prepare(client, chain("x", 1)).slots == (Slot.NO_ROOM,)
    shell.step(ModeSet(Mode.ACTIVE))
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(4, 4)


def test_extents_are_offered_only_once_they_are_touched() -> None:
    shell = Shell(extents=1, touched=0, segments=0)
    client = shell.open(A)
    assert shell.prepare(client, KEYS[:1]).slots == (Slot.NO_ROOM,)
    shell.step(ExtentTouched(0))
    assert shell.store(client, KEYS) == 4


def test_the_same_key_twice_in_a_load_ends_the_run() -> None:
    shell = Shell()
    client = shell.open(A)
    shell.store(client, KEYS[:1])
    ticket = shell.load(client, [KEYS[0], KEYS[0]]).ticket
    shell.finish(ticket)
    assert shell.stats()["hit_host_blocks"] == 1
    assert ROOT not in KEYS


def test_a_prompt_is_counted_once_whether_announced_or_only_loaded() -> None:
    shell = Shell()
    announcing, loading = shell.open(A), shell.open(A)
    shell.store(announcing, KEYS[:2])
    shell.ask(announcing, Prefetch(tuple(KEYS)))
    for _ in range(2):
        shell.finish(shell.load(announcing, KEYS[:2]).ticket)
    shell.finish(shell.load(loading, KEYS).ticket)
    stats = shell.stats()
    assert (stats["lookup_requests"], stats["lookup_blocks"], stats["miss_blocks"]) == (2, 8, 4)
