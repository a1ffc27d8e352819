"""The data plane by itself: nobody starves, what all clients hold together is bounded, and a bug
ends it in order."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import SPACE, until

from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Asked, Event, ExtentTouched, ModeSet, Tick
from onggi_core.engine.state import Facts
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import PAYLOAD_MAX_BYTES, Op, Status, frame
from onggi_core.wire.replies import Mode, StorePrepared
from onggi_core.wire.requests import (
    Hello,
    LoadPrepare,
    Lookup,
    StoreComplete,
    StoreOutcome,
    StorePrepare,
)
from onggi_sidecar import connection, server
from onggi_sidecar.connection import FRAMES_A_TURN
from onggi_sidecar.mailbox import EVENTS_A_TURN, Mailbox
from onggi_sidecar.plane import Plane, PlaneSilent
from onggi_sidecar.server import Server
from onggi_sidecar.shell import Shell
from onggi_sidecar.socketfile import claim_socket
from onggi_sidecar.tally import Tally

KIB = 1024
EXTENT_BYTES = 1024 * KIB


class NoExtents:
    """The one extent stays what it is."""

    def touch(self, extent: int) -> None:
        raise AssertionError(extent)

    release = touch


class Served:
    """An engine with one extent and no disk, served by a plane."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "agent.sock"
        self.engine = Engine(Facts(bytes(16), "arena", EXTENT_BYTES, 0, EXTENT_BYTES, 1))
        self.shell = Shell(self.engine, disk=None, toucher=NoExtents(), clock=time.monotonic)
        self.tally = Tally(time.perf_counter)
        self.mailbox = Mailbox()
        self.fell = threading.Event()
        self.plane = Plane(self.mailbox, step=self.shell.step, tick=self._tick, fell=self.fell.set)
        self.shell.wake_at, self.shell.when_idle = self.plane.wake_at, self.plane.when_idle
        self.server = Server(self.shell, self.tally, self.plane)
        self._claim = claim_socket(self.path)
        self._listening = self._claim.listen()
        self.server.start(self._listening)
        self.mailbox.post(ExtentTouched(0))
        self._clients: list[Guest] = []
        self.plane.start()

    def _tick(self) -> None:
        self.shell.step(Tick())
        self.server.tick()

    def guest(self, *, greet: bool = True) -> "Guest":
        self._clients.append(Guest(self.path))
        if greet:
            hello = Hello(1, "test", (SPACE,))
            assert self._clients[-1].ask(Op.HELLO, hello.encode()).status == Status.OK
        return self._clients[-1]

    def close(self) -> None:
        with contextlib.suppress(PlaneSilent):
            self.plane.call(self.server.close)
            self.plane.call(self.server.close_clients)
        assert self.plane.stop()
        if self.server.listening:  # the plane was ended by its test
            self._listening.close()
        for left in self.server._connections.values():
            left._socket.close()
        self._claim.release()
        for client in self._clients:
            client.socket.close()


class Guest:
    """A client that may do anything."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self._cutter = Cutter()

    def next(self) -> Frame | None:
        while (got := self._cutter.next()) is None:
            try:
                data = self.socket.recv(64 * KIB)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._cutter.add(data)
        return got

    def ask(self, op: int, payload: bytes = b"") -> Frame:
        self.socket.sendall(frame(op, 0, 1, payload))
        got = self.next()
        assert got is not None
        return got

    def send_what_goes(self, raw: bytes) -> int:
        """Until the kernel takes no more for a while."""
        self.socket.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(raw):
                sent += self.socket.send(raw[sent : sent + 64 * KIB])
        self.socket.settimeout(20)
        return sent


@pytest.fixture
def served(memory_folder: Path) -> Iterator[Served]:
    made = Served(memory_folder)
    yield made
    made.close()


def test_a_connection_without_a_hello_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """The limit is ten seconds; one tenth of one here."""
    monkeypatch.setattr(connection, "HELLO_WITHIN_S", 0.1)
    idle = served.guest(greet=False)
    got = idle.next()
    assert got is not None
    assert b"no HELLO within" in got.payload
    assert idle.next() is None


def test_a_frame_that_is_never_finished_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr(connection, "FRAME_WITHIN_S", 0.1)
    loris, idle = served.guest(), served.guest()
    loris.socket.sendall(frame(Op.LOOKUP, 0, 1, Lookup((b"k" * 16,)).encode())[:-1])
    got = loris.next()
    assert got is not None
    assert (got.status, got.op) == (Status.BAD_FRAME, 0)
    assert b"not finished within" in got.payload
    assert loris.next() is None
    assert idle.ask(Op.STATS).status == Status.OK  # who says nothing between frames may stay


def test_a_client_that_always_has_a_frame_under_way_is_not_slow(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """Each read ends within a frame, but another one each time."""
    monkeypatch.setattr(connection, "FRAME_WITHIN_S", 0.5)
    client, one = served.guest(), frame(Op.STATS, 0, 1, b"")
    client.socket.sendall(one[:7])
    end_s = time.monotonic() + 1.2
    while time.monotonic() < end_s:
        client.socket.sendall(one[7:] + one[:7])
        got = client.next()
        assert got is not None
        assert got.status == Status.OK


def test_unfinished_frames_of_all_clients_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """Each of 40 clients sends half of the largest frame there is; 255 of them held 562 MiB once.
    What is not read stays with its sender, and small requests of others are answered meanwhile."""
    monkeypatch.setattr(connection, "FRAME_WITHIN_S", 1.5)
    keys = tuple(n.to_bytes(16, "big") for n in range(65_536))
    large = frame(Op.LOOKUP, 0, 7, Lookup(keys).encode())
    clients = [served.guest() for _ in range(40)]
    bystander = served.guest()
    read = [client.send_what_goes(large[: len(large) // 2]) for client in clients[:20]]
    assert bystander.ask(Op.STATS).status == Status.OK

    def held() -> int:
        return sum(
            len(one._cutter._buffer) - one._cutter._at
            for one in served.server._connections.values()
        )

    most = server.ROOM_BYTES_MAX + len(clients) * 2 * connection.READ_BYTES
    assert served.plane.call(held) <= most
    assert sum(read) < 20 * len(large) // 2  # some were not read to the end
    until("those that do not go on to be parted from", lambda: bystander_sees(served) > 0)
    whole = served.guest()
    assert whole.ask(Op.LOOKUP, Lookup(keys).encode()).status == Status.OK


def bystander_sees(served: Served) -> int:
    return served.tally.faults.get("bad_frame", 0)


def test_replies_that_nobody_reads_are_bounded_for_all_together(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr(server, "ALL_UNSENT_BYTES_MAX", 1024 * KIB)
    asking = frame(Op.STATS, 0, 1, b"") * 500
    clients = [served.guest() for _ in range(8)]

    def dropped() -> bool:
        for client in clients:
            client.socket.setblocking(False)
            with contextlib.suppress(OSError):
                client.socket.send(asking)
        return served.tally.faults.get("slow_client", 0) >= 2

    until("the ones furthest behind to be dropped", dropped)
    assert served.plane.call(lambda: served.server._unsent_bytes) <= 1024 * KIB


def test_a_flood_of_one_client_does_not_keep_another_waiting(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """Requests are answered in turns: the other's before the flood, that came first, is over."""
    flood, other = served.guest(), served.guest()
    all_there, sound = threading.Event(), served.shell.ask
    before: list[int] = []

    def ask(asked: Asked) -> None:
        sound(asked)
        if asked.request.op == Op.STATS:
            before.append(served.tally.requests[Op.LOOKUP])

    monkeypatch.setattr(served.shell, "ask", ask)
    served.mailbox.send(lambda: all_there.wait(20))
    count = 20 * FRAMES_A_TURN
    lookup = frame(Op.LOOKUP, 0, 1, Lookup(tuple(bytes([n]) * 16 for n in range(20))).encode())
    flood.socket.sendall(lookup * count)
    for number in range(3):
        other.socket.sendall(frame(Op.STATS, 0, number, b""))
    all_there.set()
    assert all(other.next() is not None for _ in range(3))
    assert all(flood.next() is not None for _ in range(count))
    assert len(before) == 3
    assert before[-1] <= 2 * FRAMES_A_TURN


def test_replies_keep_the_order_of_requests(served: Served) -> None:
    client = served.guest()
    lookups = [frame(Op.LOOKUP, 0, n, Lookup((bytes(16),)).encode()) for n in range(200)]
    client.socket.sendall(b"".join(lookups))
    got = [client.next() for _ in lookups]
    assert [one.request_id for one in got if one is not None] == list(range(200))


def test_a_burst_of_events_lets_clients_in_between(served: Served) -> None:
    client = served.guest()
    seen: list[int] = []
    sound = served.shell.step

    def step(event: Event) -> None:
        sound(event)
        if isinstance(event, ModeSet):
            seen.append(served.tally.requests[Op.STATS])

    served.plane._step = step
    all_there = threading.Event()

    def hold_up() -> None:
        all_there.wait(20)

    served.mailbox.send(hold_up)
    count = EVENTS_A_TURN * 200
    for _ in range(count):
        served.mailbox.post(ModeSet(Mode.ACTIVE))
    client.socket.sendall(frame(Op.STATS, 0, 1, b""))
    all_there.set()
    assert client.next() is not None
    until("the burst to be over", lambda: len(seen) == count)
    assert seen.index(1) <= 2 * EVENTS_A_TURN


def test_a_load_that_waits_is_looked_at_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """And not at the next tick of the clock, which is a minute off here."""
    monkeypatch.setattr("onggi_sidecar.plane.TICK_S", 60.0)
    time.sleep(0.3)  # the tick that was due comes
    storing, loading = served.guest(), served.guest()
    storing.ask(Op.STORE_PREPARE, StorePrepare(0, bytes(16), (b"k" * 16,)).encode())
    got = loading.ask(Op.LOAD_PREPARE, LoadPrepare(40, (b"k" * 16,)).encode())
    assert got.status == Status.OK


def test_idle_work_is_done_at_once_and_only_between_turns_that_find_nothing(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """At once: the tick is a minute off. And with requests there, they go first."""
    monkeypatch.setattr("onggi_sidecar.plane.TICK_S", 60.0)
    time.sleep(0.3)  # the tick that was due comes
    client, done = served.guest(), threading.Event()
    seen: list[int] = []

    def learn() -> None:
        seen.append(served.tally.requests[Op.STATS])
        if len(seen) < 3:
            served.plane.when_idle(learn)
        else:
            done.set()

    def begin() -> None:
        served.plane.when_idle(learn)
        asking.wait(20)  # what comes meanwhile is found by the turn that this one ends in

    asking = threading.Event()
    served.mailbox.send(begin)
    client.socket.sendall(frame(Op.STATS, 0, 1, b"") * 20)
    asking.set()
    assert done.wait(20)
    assert seen == [20, 20, 20]


def test_a_prompt_is_shown_to_the_ghosts_before_the_next_tick(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr("onggi_sidecar.plane.TICK_S", 60.0)
    time.sleep(0.3)  # the tick that was due comes
    keys = tuple(n.to_bytes(16, "big") for n in range(4_000))
    assert served.guest().ask(Op.LOAD_PREPARE, LoadPrepare(0, keys).encode()).status == Status.OK
    until(
        "the ghosts to have seen it",
        lambda: served.plane.call(lambda: served.engine.stats()["curve"]),
    )


def test_calls_answer_raise_and_end_in_time(served: Served) -> None:
    assert served.plane.call(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        served.plane.call(lambda: 1 // 0)
    with pytest.raises(PlaneSilent, match="did not answer within"):
        served.plane.call(lambda: time.sleep(0.3), within_s=0.05)
    assert not served.fell.is_set()
    assert served.plane.stop()
    with pytest.raises(PlaneSilent, match="has ended"):
        served.plane.call(lambda: None)
    served.mailbox.post(Tick())  # a disk job that comes back late


def test_after_a_bug_clients_are_not_heard_but_the_end_is(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = served.guest()
    sound = served.engine.step

    def step(event: Event, now_s: float) -> Any:
        if isinstance(event, ModeSet):
            raise RuntimeError("deliberate")
        return sound(event, now_s)

    served.engine.step = step  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        served.mailbox.post(ModeSet(Mode.PAUSED))
        assert served.fell.wait(20)
    assert "a bug in the data plane" in caplog.text
    client.socket.sendall(frame(Op.STATS, 0, 1, b""))
    assert served.plane.call(lambda: served.engine.stats()["sessions"]) == 1
    assert served.tally.requests[Op.STATS] == 0


def test_a_second_bug_ends_the_plane(served: Served) -> None:
    def step(_event: Event) -> None:
        raise RuntimeError("deliberate")

    served.plane._step = step
    served.mailbox.post(ModeSet(Mode.PAUSED))
    assert served.fell.wait(20)
    served.mailbox.post(ModeSet(Mode.PAUSED))
    until("the thread to end", lambda: not served.plane._thread.is_alive())


def test_without_a_descriptor_nobody_is_accepted_for_a_while(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    first = served.guest()
    monkeypatch.setattr(server, "REST_S", 0.3)
    taken: Callable[..., Any] = socket.socket.accept
    refusals = [OSError(24, "Too many open files")]

    def accept(listening: socket.socket) -> Any:
        if refusals:
            raise refusals.pop()
        return taken(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)
    second = served.guest()  # waits in the backlog, and is taken in after the rest
    assert first.ask(Op.STATS).status == second.ask(Op.STATS).status == Status.OK
    assert served.tally.faults["out_of_descriptors"] == 1


def test_a_large_frame_comes_whole(served: Served) -> None:
    client = served.guest()
    keys = tuple(n.to_bytes(16, "big") for n in range(60_000))
    assert client.ask(Op.LOOKUP, Lookup(keys).encode()).status == Status.OK
    assert served.plane.call(lambda: served.server._room_bytes) == server.ROOM_BYTES_MAX
    client.socket.sendall(frame(Op.LOOKUP, 0, 1, bytes(PAYLOAD_MAX_BYTES))[: 100 * KIB])
    until(
        "room to be taken",
        lambda: served.plane.call(lambda: served.server._room_bytes) < server.ROOM_BYTES_MAX,
    )
    client.socket.close()
    until(
        "room to be given back",
        lambda: served.plane.call(lambda: served.server._room_bytes) == server.ROOM_BYTES_MAX,
    )


def test_what_a_client_sent_before_it_closed_is_still_done(served: Served) -> None:
    """Its answers can no longer be sent, but the store that it sealed last is there."""
    leaving, staying = served.guest(), served.guest()
    key = b"k" * 16
    got = leaving.ask(Op.STORE_PREPARE, StorePrepare(0, bytes(16), (key,)).encode())
    ticket = StorePrepared.decode(got.payload).ticket
    served.mailbox.send(lambda: time.sleep(0.2))  # the plane meets all of it at once, too late
    asking = frame(Op.STATS, 0, 2, b"") * 20
    seal = frame(Op.STORE_COMPLETE, 0, 3, StoreComplete(ticket, StoreOutcome.SEALED).encode())
    leaving.socket.sendall(asking + seal)
    leaving.socket.close()
    until(
        "the block to be there",
        lambda: staying.ask(Op.LOOKUP, Lookup((key,)).encode()).payload == b"\1\0\0\0" * 2,
    )
