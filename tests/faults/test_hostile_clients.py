"""Clients that flood, dawdle, talk nonsense or stop halfway: an honest one is served all the same,
and what they make the agent hold is bounded over all of them together."""

import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import MIB, SPACE, AgentProcess, BareClient, StartAgent, chain, ready, until

from onggi_core.wire.frame import Op, frame
from onggi_core.wire.requests import Hello, Lookup, StatsRequest
from onggi_sidecar.server import ALL_UNSENT_BYTES_MAX, ROOM_BYTES_MAX, SESSIONS_MAX

HOSTILE = SESSIONS_MAX - 6
GROWTH_BYTES_MAX = ROOM_BYTES_MAX + ALL_UNSENT_BYTES_MAX + 24 * MIB
"""What the server's bounds add up to, and some for what the allocator keeps."""
HEADER = struct.Struct("<IHHQ")
FRAME_BYTES = 2 * MIB
HELLO = frame(Op.HELLO, 0, 1, Hello(1, "hostile", (SPACE,)).encode())
BLOCKS = chain(20)


@pytest.fixture
def agent(start: StartAgent) -> AgentProcess:
    return start()


@pytest.fixture
def honest(agent: AgentProcess) -> Iterator[BareClient]:
    client = ready(agent)
    client.store(BLOCKS)
    yield client
    assert client.load(tuple(BLOCKS)) == list(BLOCKS.values())
    client.close()
    assert agent.end() == 0
    assert "Traceback" not in str(agent.lines)


@pytest.fixture
def sockets(agent: AgentProcess) -> Iterator[list[socket.socket]]:
    """To connect with `hostile`; closed at the end, so that the honest one is alone again."""
    opened: list[socket.socket] = []
    yield opened
    for one in opened:
        one.close()


def hostile(agent: AgentProcess, sockets: list[socket.socket], first: bytes = b"") -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sockets.append(one)
    until("room in the backlog", lambda: _connected(one, agent))
    one.settimeout(10)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # one too many just then
        one.sendall(first)
    one.setblocking(False)
    return one


def _connected(one: socket.socket, agent: AgentProcess) -> bool:
    try:
        one.connect(str(agent.socket_path))
    except BlockingIOError:
        return False
    return True


def resident_bytes(agent: AgentProcess) -> int:
    """Private memory of the agent: its arena is not in it."""
    for line in Path(f"/proc/{agent.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def push(one: socket.socket, raw: bytes) -> int:
    """Send what the agent takes now."""
    sent = 0
    while sent < len(raw):
        try:
            sent += one.send(raw[sent : sent + 64 * 1024])
        except BlockingIOError:
            break
        except (BrokenPipeError, ConnectionResetError):
            break
    return sent


def serves(honest: BareClient) -> None:
    assert honest.load(tuple(BLOCKS)) == list(BLOCKS.values())


def test_hundreds_of_half_frames_are_bounded_together(
    agent: AgentProcess, honest: BareClient, sockets: list[socket.socket]
) -> None:
    """Each announces the largest frame and stops one byte before its end: half a gigabyte."""
    before = resident_bytes(agent)
    begun = HEADER.pack(FRAME_BYTES, Op.LOOKUP, 0, 2)
    rest = bytes(FRAME_BYTES - 1)
    crowd = [hostile(agent, sockets, HELLO + begun) for _ in range(HOSTILE)]
    left = {one: len(rest) for one in crowd}
    for _ in range(10):
        for one in crowd:
            left[one] -= push(one, rest[: min(left[one], 256 * 1024)])
        serves(honest)
        assert resident_bytes(agent) - before < GROWTH_BYTES_MAX
    print(f"{(resident_bytes(agent) - before) / MIB:.1f} MiB more for {HOSTILE} half frames")


def test_replies_that_hundreds_do_not_read_are_bounded_together(
    agent: AgentProcess, honest: BareClient, sockets: list[socket.socket]
) -> None:
    before = resident_bytes(agent)
    asked = b"".join(frame(Op.STATS, 0, n, StatsRequest().encode()) for n in range(4000))
    for _ in range(60):
        push(hostile(agent, sockets, HELLO), asked)
        assert resident_bytes(agent) - before < GROWTH_BYTES_MAX
    serves(honest)
    print(f"{(resident_bytes(agent) - before) / MIB:.1f} MiB more for unread replies")


def test_a_flood_of_connections_is_refused_past_the_limit(
    agent: AgentProcess, honest: BareClient, sockets: list[socket.socket]
) -> None:
    """They come and go by the thousand; those past the limit are told so."""
    for _ in range(4):
        for _ in range(HOSTILE):
            hostile(agent, sockets, HELLO)
        serves(honest)
        while sockets:
            sockets.pop().close()
    until("them to go", lambda: honest.stats()["sessions"] == 1)


def test_a_client_that_sends_byte_by_byte_holds_up_nobody(
    agent: AgentProcess, honest: BareClient, sockets: list[socket.socket]
) -> None:
    """A slow-loris: fifty of them, in the middle of a frame all the time."""
    raw = HELLO + frame(Op.LOOKUP, 0, 2, Lookup(tuple(BLOCKS)).encode())
    crowd = [hostile(agent, sockets) for _ in range(50)]
    longest_s = 0.0
    for at in range(len(raw)):
        for one in crowd:
            push(one, raw[at : at + 1])
        if at % 20 == 0:
            begun_s = time.monotonic()
            serves(honest)
            longest_s = max(longest_s, time.monotonic() - begun_s)
    print(f"the honest client waited {longest_s * 1000:.1f} ms at most")
    until("their whole frames to be answered", lambda: all(map(_answered, crowd)))


def _answered(one: socket.socket) -> bool:
    try:
        return bool(one.recv(64 * 1024, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_garbage_from_many_is_refused_and_forgotten(
    agent: AgentProcess, honest: BareClient, sockets: list[socket.socket]
) -> None:
    """From a seed: random bytes, and well-formed frames with some of their bits flipped."""
    seed = int(os.environ.get("ONGGI_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}: replay with ONGGI_SEED={seed}")
    dice = random.Random(seed)
    sound = frame(Op.LOOKUP, 0, 7, Lookup(tuple(BLOCKS)).encode())
    for _ in range(300):
        raw = bytearray(HELLO + sound if dice.random() < 0.7 else dice.randbytes(500))
        for _ in range(dice.randrange(8)):
            raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
        hostile(agent, sockets, bytes(raw))
        if len(sockets) >= 100:
            serves(honest)
            while sockets:
                sockets.pop().close()
    while sockets:
        sockets.pop().close()
    until("them to go", lambda: honest.stats()["sessions"] == 1)
    stats = honest.stats()
    assert (stats["open_stores"], stats["open_loads"]) == (0, 0)
