"""One connection: replies in any order, late, unasked, cut or absurd."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onggi import channel as channel_module
from onggi.channel import Channel, ChannelClosed
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import PAYLOAD_MAX_BYTES, Status, frame, refusal

OP = 2
SOON = 20.0
LONG_S = 60.0
"""For what ends by itself, however little time a busy machine has for it."""


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(SOON)
    channel = Channel(ours)
    yield channel, theirs
    channel.close("the test is over")
    theirs.close()


def soon() -> float:
    return time.monotonic() + SOON


def later() -> float:
    return time.monotonic() + LONG_S


def test_replies_find_their_calls_in_any_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    calls = [channel.start(OP, bytes([n]), soon()) for n in range(5)]
    asked = Cutter().feed(theirs.recv(10_000))
    assert [one.payload for one in asked] == [bytes([n]) for n in range(5)]
    for one in reversed(asked):
        theirs.send(frame(OP, 0, one.request_id, one.payload * 2))
    for number, call in enumerate(calls):
        answer = channel.wait(call, soon())
        assert answer is not None
        assert answer.payload == bytes([number]) * 2
    assert channel.in_flight == 0


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=20), order=st.permutations(range(6)))
def test_replies_may_come_in_pieces_of_any_size(cuts: list[int], order: list[int]) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    calls = [channel.start(OP, b"", soon()) for _ in range(6)]
    stream = b"".join(frame(OP, 0, calls[n].request_id, bytes([n]) * n) for n in order)

    def send() -> None:
        rest = stream
        for number in range(1000):
            size = cuts[number % len(cuts)]
            theirs.sendall(rest[:size])
            rest = rest[size:]
            if not rest:
                return

    sender = threading.Thread(target=send)
    sender.start()
    for number, call in enumerate(calls):
        answer = channel.wait(call, soon())
        assert answer is not None
        assert answer.payload == bytes([number]) * number
    sender.join()
    channel.close("over")
    theirs.close()


def test_a_late_reply_goes_to_its_own_call_and_to_nobody_else(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    late: list[bytes] = []
    first = channel.start(OP, b"", soon())
    assert channel.wait(first, time.monotonic() + 0.02) is None
    channel.give_up(first, lambda one: late.append(one.payload))
    second = channel.start(OP, b"", soon())
    theirs.send(frame(OP, 0, first.request_id, b"first"))
    theirs.send(frame(OP, 0, second.request_id, b"second"))
    answer = channel.wait(second, soon())
    assert answer is not None
    assert (answer.payload, late) == (b"second", [b"first"])
    assert channel.in_flight == 0


def test_a_reply_that_came_before_it_was_given_up_is_late_too(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    late: list[bytes] = []
    call = channel.start(OP, b"", soon())
    theirs.send(frame(OP, 0, call.request_id, b"x"))
    channel.drain()
    channel.give_up(call, lambda one: late.append(one.payload))
    assert late == [b"x"]


def test_a_reply_to_nothing_is_dropped(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.send(frame(OP, 0, 999_999, b"?"))
    channel.drain()
    assert not channel.closed


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (None, "closed the connection"),
        (struct.pack("<IHHQ", PAYLOAD_MAX_BYTES + 1, OP, 0, 1), "the limit is"),
    ],
)
def test_the_end_of_a_stream_reaches_every_caller(
    ends: tuple[Channel, socket.socket], sent: bytes | None, said: str
) -> None:
    channel, theirs = ends
    raised: list[str] = []

    def call() -> None:
        try:
            channel.wait(channel.start(OP, b"", soon()), soon())
        except ChannelClosed as closed:
            raised.append(str(closed))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    if sent is None:
        theirs.shutdown(socket.SHUT_RDWR)
    else:
        theirs.send(sent)
    for thread in threads:
        thread.join()
    assert len(raised) == 4
    assert all(said in one for one in raised)
    with pytest.raises(ChannelClosed):
        channel.start(OP, b"", soon())


FULL = refusal(0, Status.TOO_MANY, 0, "256 clients are connected; close one")
WHY = "the agent closed the connection: 256 clients are connected; close one"


@pytest.mark.parametrize("unread", [False, True], ids=["all of it read", "reset"])
def test_what_the_agent_says_before_it_closes_is_why(
    ends: tuple[Channel, socket.socket], unread: bool
) -> None:
    """A stream that ends with bytes unread is reset on unix sockets, behind what was sent on it."""
    channel, theirs = ends
    call = channel.start(OP, b"", later())
    if not unread:
        theirs.recv(10_000)
    theirs.send(FULL)
    theirs.close()
    with pytest.raises(ChannelClosed, match=WHY):
        channel.wait(call, later())
    with pytest.raises(ChannelClosed, match=WHY):
        channel.start(OP, b"", later())


@pytest.mark.parametrize("nbytes", [0, PAYLOAD_MAX_BYTES], ids=["at once", "half way"])
def test_what_the_agent_says_is_why_where_sending_fails(
    ends: tuple[Channel, socket.socket], nbytes: int
) -> None:
    channel, theirs = ends
    theirs.sendall(frame(OP, 0, 999_999, b"late") * 1000 + FULL)
    if nbytes:
        closer = threading.Timer(0.05, theirs.close)
        closer.start()
    else:
        theirs.close()
    with pytest.raises(ChannelClosed, match=WHY):
        channel.start(OP, bytes(nbytes), later())
    assert channel.closed
    if nbytes:
        closer.join()


def test_who_cannot_send_leaves_the_reading_to_the_one_who_leads(
    ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, theirs = ends
    monkeypatch.setattr(channel_module, "_LOOK_S", LONG_S / 2)
    raised: list[str] = []
    call = channel.start(OP, b"", later())

    def wait() -> None:
        try:
            channel.wait(call, later())
        except ChannelClosed as closed:
            raised.append(str(closed))

    leader = threading.Thread(target=wait)
    leader.start()
    time.sleep(0.02)
    theirs.send(FULL)
    theirs.close()
    with pytest.raises(ChannelClosed, match=WHY):
        channel.start(OP, b"", later())
    leader.join()
    assert raised == [WHY]


def test_a_peer_that_sends_on_and_takes_nothing_in_is_not_read_for_ever(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    theirs.shutdown(socket.SHUT_RD)
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                theirs.send(frame(OP, 0, 999_999, bytes(60_000)))

    talker = threading.Thread(target=talk)
    talker.start()
    with pytest.raises(ChannelClosed, match="sending failed"):
        channel.start(OP, b"", later())
    stop.set()
    talker.join()


def test_of_a_peer_that_says_too_much_the_beginning_is_told(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    call = channel.start(OP, b"", later())
    theirs.send(frame(0, Status.TOO_MANY, 0, b"no " * 3000))
    theirs.close()
    with pytest.raises(ChannelClosed, match="no no no") as ended:
        channel.wait(call, later())
    assert len(str(ended.value)) < 4200


def test_a_close_wakes_a_caller_that_waits(ends: tuple[Channel, socket.socket]) -> None:
    channel, _ = ends
    raised: list[str] = []

    def call() -> None:
        try:
            channel.wait(channel.start(OP, b"", soon()), time.monotonic() + 60)
        except ChannelClosed as closed:
            raised.append(str(closed))

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.05)
    channel.close("enough")
    thread.join(SOON)
    assert raised == ["enough"]


def test_a_peer_that_reads_nothing_ends_the_connection_in_time(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, _ = ends
    began = time.monotonic()
    with pytest.raises(ChannelClosed, match="does not take in"):
        channel.start(OP, bytes(PAYLOAD_MAX_BYTES), time.monotonic() + 0.05)
    assert time.monotonic() - began < SOON


def test_replies_owed_are_bounded(
    ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _ = ends
    monkeypatch.setattr(channel_module, "IN_FLIGHT_MAX", 3)
    for _ in range(3):
        channel.start(OP, b"", soon())
    with pytest.raises(ChannelClosed, match="owes 3 replies"):
        channel.start(OP, b"", soon())


def test_the_leader_steps_down_for_a_follower(ends: tuple[Channel, socket.socket]) -> None:
    """The first caller reads for both, gets its own reply and leaves; the second reads on."""
    channel, theirs = ends
    slow, got = channel.start(OP, b"", soon()), []

    def wait() -> None:
        got.append(channel.wait(slow, soon()))

    quick = channel.start(OP, b"", soon())
    leader: Any = threading.Thread(target=lambda: channel.wait(quick, soon()))
    leader.start()
    time.sleep(0.02)
    follower = threading.Thread(target=wait)
    follower.start()
    time.sleep(0.02)
    theirs.send(frame(OP, 0, quick.request_id, b"q"))
    leader.join()
    theirs.send(frame(OP, 0, slow.request_id, b"s"))
    follower.join()
    assert got[0] is not None
    assert got[0].payload == b"s"


def test_a_late_reply_that_is_given_back_does_not_hang_a_send_that_fails(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    call, sent = channel.start(OP, b"", later()), []

    def give_back(answer: Frame) -> None:
        sent.append(answer)
        channel.start(OP, b"", later())

    channel.give_up(call, give_back)
    theirs.recv(10_000)
    theirs.send(frame(OP, 0, call.request_id, b"a pin") + FULL)
    theirs.close()

    def send() -> None:
        with pytest.raises(ChannelClosed, match=WHY):
            channel.start(OP, b"", later())

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(LONG_S)
    assert not sender.is_alive()
    assert not sent, "the end of the stream gives it back"


def test_a_peer_that_talks_on_holds_nobody_beyond_his_deadline(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends
    stop = threading.Event()

    def talk() -> None:
        until_s = later()
        while not stop.is_set() and time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                theirs.send(frame(0, Status.TOO_MANY, 0, b"no") * 1000)

    call = channel.start(OP, b"", later())
    talker = threading.Thread(target=talk)
    talker.start()
    assert channel.wait(call, time.monotonic() + 0.05) is None
    assert talker.is_alive(), "it was not waited for"
    stop.set()
    talker.join()
