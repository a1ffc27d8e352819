"""What routers are told of the tier that a block is in: on a stand-in for the agent, and on one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_harness import AgentProcess, sent, soon
from grouped_engine import KINDS, GroupedEngine, spaces_of
from vllm_stand_ins import BLOCK, PAGE, SPACE, Request, Sides, step_output

from onggi import Client, block_keys
from onggi.connectors.vllm import sweep
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.metadata import Report, SaveJob
from onggi.connectors.vllm.sweep import AWAY_S, EVERY_S
from onggi.connectors.vllm.told import BlocksRemoved, BlocksStored
from onggi.outcomes import Looked
from onggi_core.wire.frame import Op
from onggi_core.wire.locate import At

pytestmark = pytest.mark.usefixtures("patient")

KIND = Kind((0,), BLOCK)
TOKENS = list(range(9 * BLOCK))


class Hashed(Request):
    """A request that carries the engine's own hashes, one a block."""

    @property
    def block_hashes(self) -> list[bytes]:
        return [name(n) for n in range(self.num_tokens // BLOCK)]


def name(number: int) -> bytes:
    return f"h{number}".encode()


def names(*numbers: int) -> tuple[bytes, ...]:
    return tuple(map(name, numbers))


class Asked:
    """An agent's client whose blocks are in a dict. answers: whether it answers by now."""

    def __init__(self) -> None:
        self.where: dict[bytes, At] = {}
        self.session_number, self.answers, self.now = 1, True, 0.0
        self.asked: list[list[bytes]] = []

    def now_s(self) -> float:
        return self.now

    def locate_begin(self, keys: list[bytes]) -> Any:
        if not self.session_number:
            return None
        self.asked.append(keys)
        said = bytes(self.where.get(key, At.NOWHERE) for key in keys)
        return SimpleNamespace(poll=lambda: said if self.answers else None)


class Router:
    """Counts on what it was told. Tells of a block twice, or of the end of what it was never told:
    fails."""

    def __init__(self) -> None:
        self.has: set[tuple[bytes, At]] = set()

    def hear(self, told: list[Any]) -> list[Any]:
        for event in told:
            named = {(one, event.at) for one in event.hashes}
            if isinstance(event, BlocksStored):
                assert not named & self.has
                assert len(event.token_ids) == len(event.hashes) * event.block_tokens
                self.has |= named
            else:
                assert named <= self.has
                self.has -= named
        return told


class Told:
    """Events with such a client, and a router."""

    def __init__(self) -> None:
        self.client, self.events, self.router = Asked(), Events(BLOCK), Router()
        self.events.follow(KIND, self.client)  # type: ignore[arg-type]
        self._jobs = iter(range(1, 1_000_000))

    def store(self, first: int, blocks: int) -> list[Any]:
        number, some = next(self._jobs), KEYS[first : first + blocks]
        job = SaveJob(number, "r", b"", tuple(some), tuple(range(blocks)))
        self.events.planned(job, Hashed("r", TOKENS), KIND, first)
        self.client.where.update(dict.fromkeys(some, At.HOST))
        self.events.reported(Report(saves_over={number: 1}, kept={number: blocks}))
        return self.heard()

    def move(self, at: At, *numbers: int) -> None:
        for number in numbers:
            self.client.where[KEYS[number]] = at

    def heard(self, steps: int = 1) -> list[Any]:
        taken: list[Any] = []
        for _ in range(steps):
            taken += self.router.hear(self.events.take())
            self.client.now += EVERY_S
        return taken


KEYS = block_keys(TOKENS, BLOCK)


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_move_is_told_as_coming_there_and_leaving_here(told: Told) -> None:
    told.store(0, 4)
    assert told.heard(3) == []
    told.move(At.DISK, 1, 2)
    first, second = told.heard(2)
    assert first == BlocksStored(
        groups=(0,),
        hashes=names(1, 2),
        parent=name(0),
        token_ids=tuple(range(BLOCK, 3 * BLOCK)),
        block_tokens=BLOCK,
        lora_id=None,
        lora_name=None,
        at=At.DISK,
    )
    assert second == BlocksRemoved((0,), names(1, 2), At.HOST)
    told.move(At.HOST, 2)
    told.move(At.NOWHERE, 3)
    back, left_host, left_disk = told.heard(2)
    assert (back.hashes, back.at) == (names(2), At.HOST)
    assert left_host == BlocksRemoved((0,), names(3), At.HOST)
    assert left_disk == BlocksRemoved((0,), names(2), At.DISK)
    told.events.missing(KIND, KEYS[1:2])
    assert told.heard() == [BlocksRemoved((0,), names(1), At.DISK)]
    assert told.store(1, 1)[0].at == At.HOST


def test_a_step_asks_about_a_part_and_waits_for_no_answer(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "LOCATE_KEYS_MAX", 2)
    told.store(0, 5)
    told.client.answers = False
    assert told.heard(5) == []
    assert told.client.asked == [KEYS[:2]], "one question at a time"
    told.client.answers = True
    told.heard(5)
    assert told.client.asked[1:] == [KEYS[2:4], KEYS[4:5], KEYS[:2], KEYS[2:4], KEYS[4:5]]
    asked = len(told.client.asked)
    for _ in range(10):
        told.events.take()  # steps that follow each other at once
    assert len(told.client.asked) == asked + 1


def test_what_is_told_anew_meanwhile_is_not_what_was_asked_about(told: Told) -> None:
    told.store(0, 2)
    told.move(At.NOWHERE, 0, 1)
    assert told.heard() == []
    told.client.answers = False
    told.store(0, 1)  # again, before anybody knew that it had gone
    told.client.answers = True
    assert told.heard() == [BlocksRemoved((0,), names(1), At.HOST)]
    told.move(At.HOST, 0)
    assert told.heard(4) == []


def test_what_a_lookup_finds_is_told_of_once(told: Told) -> None:
    request = Hashed("s", TOKENS)
    told.move(At.HOST, 0, 1)
    told.move(At.DISK, 2, 3, 4)
    told.events.found(request, KIND, 0, KEYS, Looked(2, 5))
    host, disk = told.router.hear(told.events.take())
    assert (host.hashes, host.parent, host.at) == (names(0, 1), None, At.HOST)
    assert (disk.hashes, disk.parent, disk.at) == (names(2, 3, 4), name(1), At.DISK)
    told.events.found(request, KIND, 0, KEYS, Looked(0, 5))
    told.events.found(request, KIND, 0, KEYS, Looked(0, 0))
    assert told.events.take() == []
    told.store(5, 1)
    told.events.missing(KIND, KEYS[3:5])
    told.events.found(request, KIND, 2, KEYS[2:], Looked(3, 3))
    gone, again = told.router.hear(told.events.take())
    assert gone == BlocksRemoved((0,), names(3, 4), At.DISK)
    assert (again.hashes, again.at) == (names(3, 4), At.HOST), "as was said of them now"
    assert [event.at for event in told.heard(3)] == [At.DISK, At.HOST], "and it was a guess"


def test_an_agent_that_is_away_for_long_has_nothing(told: Told) -> None:
    told.store(0, 3)
    told.heard(2)
    told.client.session_number = 0
    assert told.heard(int(AWAY_S / EVERY_S)) == []
    told.client.session_number = 2  # it only was restarted
    assert told.heard(3) == []
    told.client.session_number = 0
    gone = told.heard(int(AWAY_S / EVERY_S) + 3)
    assert gone == [BlocksRemoved((0,), names(0, 1, 2), At.HOST)]


def test_an_agent_that_cannot_be_asked_has_what_was_told(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.store(0, 3)
    monkeypatch.setattr(told.client, "locate_begin", lambda _: None)
    assert told.heard(int(AWAY_S / EVERY_S) + 3) == []


def test_whatever_happens_a_router_ends_with_what_is_there(told: Told) -> None:
    rng = random.Random(3)
    for _ in range(3000):
        told.client.answers = rng.random() < 0.7
        first, number = rng.randrange(9), rng.randrange(9)
        what = rng.random()
        if what < 0.2:
            told.store(first, rng.randint(1, 9 - first))
        elif what < 0.25:
            told.events.missing(KIND, KEYS[first:])
        elif what < 0.3:
            at = [told.client.where.get(key, At.NOWHERE) for key in KEYS[: first + 1]]
            if At.NOWHERE not in at:
                looked = Looked(first + 1, first + 1)
                told.events.found(Hashed("s", TOKENS), KIND, 0, KEYS, looked)
        else:
            told.move(rng.choice(list(At)), number)
        told.heard()
    told.client.answers = True
    told.heard(4)
    where = {(name(n), told.client.where.get(key, At.NOWHERE)) for n, key in enumerate(KEYS)}
    assert told.router.has <= where


# ---- on an agent


PIECE = BLOCK


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentProcess]:
    memory = getattr(request, "param", "16MiB")
    with AgentProcess(tmp_path, memory=memory, disk="128MiB") as agent:
        yield agent


def kinds_of(told: list[Any]) -> list[tuple[str, At]]:
    return [(type(event).__name__, event.at) for event in told]


TO_DISK = [("BlocksStored", At.DISK), ("BlocksRemoved", At.HOST)]
TO_HOST = [("BlocksStored", At.HOST), ("BlocksRemoved", At.DISK)]


def test_an_agents_blocks_are_followed_to_disk_and_back_and_to_their_end(
    agent: AgentProcess,
) -> None:
    sides = Sides(SimpleNamespace(socket_path=agent.socket), events=Events(PIECE))
    scheduler, request = sides.scheduler, Hashed("r", TOKENS)
    assert soon(lambda: scheduler._client.stats().get("arena_ready_bytes") == 16 << 20)
    scheduler.arrived(request)
    assert scheduler.matched(request, 0) == (0, False)
    table = list(range(9))
    scheduler.admitted(request, [table], 0)
    sides.worker.after_forward(scheduler.plan(step_output({"r": 9 * BLOCK}, {"r": table})))

    def stepped() -> list[Any]:
        sides.worker.finished()
        scheduler.reported(sides.worker.take_report(), ())
        return scheduler.events.take()

    (stored,) = soon(stepped)
    assert stored.hashes == names(*range(9))
    agent.push_out(16)
    assert kinds_of(soon(stepped)) == TO_DISK
    other = Client(agent.socket, spaces=[SPACE], deadline_s=10.0)
    assert other.load(KEYS, [bytearray(PAGE) for _ in KEYS], wait_s=20.0) == 9
    assert kinds_of(soon(stepped)) == TO_HOST
    assert other.discard(KEYS[5:]) == 4
    assert soon(stepped) == [BlocksRemoved((0,), names(5, 6, 7, 8), At.HOST)]
    other.close()
    again = Sides(SimpleNamespace(socket_path=agent.socket), events=Events(PIECE))
    assert again.scheduler.matched(Hashed("s", TOKENS), 0) == (5 * BLOCK, False)
    (found,) = again.scheduler.events.take()
    assert (found.hashes, found.at) == (names(*range(5)), At.HOST), "of an engine before this one"
    for one in (sides, again):
        one.close()


@pytest.mark.parametrize("agent", ["32MiB"], indirect=True)
def test_each_kind_of_blocks_is_followed(agent: AgentProcess) -> None:
    """An extent for pages of each kind."""
    engine = GroupedEngine(SimpleNamespace(socket_path=agent.socket), blocks=120, hashes=PIECE)
    assert soon(lambda: engine.scheduler._clients[0].stats().get("arena_ready_bytes") == 32 << 20)
    assert all(client.attached for client in engine.scheduler._clients)
    engine.add(Hashed("r", TOKENS[: 4 * BLOCK]), 1)
    while not engine.idle:
        engine.step()
    assert {event.groups for event in engine.scheduler.events.take()} == {k.groups for k in KINDS}
    for kind, space in zip(KINDS, spaces_of(0), strict=True):
        other = Client(agent.socket, spaces=[space], deadline_s=30.0)
        assert other.discard(KEYS[:4]) == 4
        assert soon(engine.scheduler.events.take) == [
            BlocksRemoved(kind.groups, names(0, 1, 2, 3), At.HOST)
        ]
        other.close()
    engine.close()


def test_where_blocks_are_is_asked_for_without_a_wait(agent: AgentProcess) -> None:
    client = Client(agent.socket, spaces=[SPACE], deadline_s=5.0)
    assert soon(lambda: client.store(KEYS, [bytes(PAGE)] * 9).refused == 0)
    asked = client.locate_begin([*KEYS[:2], bytes(16)])
    assert asked is not None
    assert soon(asked.poll) == bytes([At.HOST, At.HOST, At.NOWHERE])
    for wrong in ([], [bytes(16)] * 1025):
        with pytest.raises(ValueError, match="use 1 to 1024"):
            client.locate_begin(wrong)
    unanswered = client.locate_begin(KEYS)
    assert unanswered is not None
    client.close()
    assert unanswered.poll() == b""
    assert client.locate_begin(KEYS) is None


def test_an_agent_of_an_earlier_version_is_not_asked(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(agent.socket, spaces=[SPACE], deadline_s=5.0)
    assert soon(lambda: client.store(KEYS, [bytes(PAGE)] * 9).refused == 0)
    session, ops = client.showing(), sent(monkeypatch, client)
    assert session is not None
    monkeypatch.setattr(session.arena.board, "locates", False)
    assert client.locate_begin(KEYS) is None
    assert Op.LOCATE not in ops
    assert client.session_number == session.number
    client.close()
