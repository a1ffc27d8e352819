"""LOCATE: in which tier each block is, and no use of any."""

from __future__ import annotations

import pytest
from shell import Shell, chain, spec
from walker import check

from onggi_core.board.layout import SLOTS_MIN, Layout
from onggi_core.board.reader import BoardReader
from onggi_core.engine.events import ModeSet, Stopping
from onggi_core.wire.frame import LOCATE_KEYS_MAX, Op, WireError
from onggi_core.wire.locate import At, Locate, Located
from onggi_core.wire.replies import Mode, decode_reply
from onggi_core.wire.requests import Discard, decode_request

A, B = spec("a"), spec("b")
ONE, TWO = chain("one", 4), chain("two", 4)
NOWHERE, DISK, HOST = (bytes([at]) for at in At)


@pytest.fixture
def shell() -> Shell:
    """A host tier of four pages, and a disk of sixteen."""
    return Shell(extents=1, segments=4, pages_each=4)


def locate(shell: Shell, session: int, keys: list[bytes]) -> bytes:
    reply = shell.ask(session, Locate(tuple(keys)))
    assert isinstance(reply, Located)
    check(shell.engine)
    return reply.tiers


def test_a_block_is_followed_to_disk_and_back_and_to_its_end(shell: Shell) -> None:
    client = shell.open(A)
    assert locate(shell, client, ONE) == NOWHERE * 4
    ticket = shell.prepare(client, ONE).ticket
    assert locate(shell, client, ONE) == NOWHERE * 4, "nobody can have it yet"
    shell.fill(ticket)
    shell.complete(ticket)
    assert locate(shell, client, ONE) == HOST * 4
    shell.end_jobs()
    assert locate(shell, client, ONE) == HOST * 4, "on disk too, and the nearer one counts"
    shell.store(client, TWO)
    shell.end_jobs()
    assert locate(shell, client, [*TWO, *ONE]) == HOST * 4 + DISK * 4
    shell.load(client, ONE, wait_ms=1000)
    assert locate(shell, client, ONE) == DISK * 4, "it has not come yet"
    shell.end_jobs()
    assert locate(shell, client, ONE) == HOST * 4
    (ticket,) = shell.loads
    shell.finish(ticket)
    shell.ask(client, Discard(tuple(ONE)))
    assert locate(shell, client, ONE) == NOWHERE * 4


def test_of_several_ranks_the_farthest_counts(shell: Shell) -> None:
    both, one = shell.open(A, B), shell.open(A)
    shell.store(both, ONE[:3], space=0)
    shell.store(both, ONE[:1], space=1)
    assert locate(shell, one, ONE) == HOST * 3 + NOWHERE
    assert locate(shell, both, ONE) == HOST + NOWHERE * 3
    shell.end_jobs()
    shell.store(shell.open(spec("c")), TWO[:3])
    assert locate(shell, one, ONE) == DISK * 3 + NOWHERE
    assert locate(shell, both, ONE)[1:] == NOWHERE * 3


def test_blocks_are_named_in_any_order_and_behind_a_gap(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.ask(client, Discard((ONE[1],)))
    assert locate(shell, client, [ONE[3], TWO[0], ONE[1], ONE[0]]) == HOST + NOWHERE * 2 + HOST
    assert locate(shell, client, []) == b""


def test_asking_keeps_nothing_and_counts_nothing(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE[:2])
    shell.store(client, TWO[:2])
    before = shell.stats()
    assert locate(shell, client, ONE[:2]) == HOST * 2
    assert shell.stats() == before
    shell.end_jobs()
    shell.store(client, chain("three", 2))
    assert locate(shell, client, [ONE[0], TWO[0]]) == DISK + HOST, "what was stored first went"


def test_a_paused_pool_has_nothing_and_an_agent_that_ends_has_what_it_has(shell: Shell) -> None:
    client = shell.open(A)
    shell.store(client, ONE)
    shell.step(ModeSet(Mode.PAUSED))
    assert locate(shell, client, ONE) == NOWHERE * 4
    shell.step(ModeSet(Mode.ACTIVE))
    shell.step(Stopping())
    assert locate(shell, client, ONE) == HOST * 4


def test_too_many_keys_and_tiers_that_are_none_are_refused() -> None:
    many = tuple(number.to_bytes(16, "big") for number in range(LOCATE_KEYS_MAX + 1))
    with pytest.raises(WireError, match="LOCATE has 1025 keys; the limit is 1024"):
        decode_request(Op.LOCATE, Locate(many).encode())
    with pytest.raises(WireError, match="LOCATE has tier 3; use 0 to 2"):
        decode_reply(Op.LOCATE, Located(bytes([2, 3, 1])).encode())


def test_the_board_says_whether_the_agent_knows_it(shell: Shell) -> None:
    shown = shell.engine._state.board
    assert BoardReader(shown.buffer.obj, shown.layout.slots).locates
    before = bytearray(Layout(SLOTS_MIN).nbytes)  # as agents that did not, left these bytes
    assert not BoardReader(before, SLOTS_MIN).locates
