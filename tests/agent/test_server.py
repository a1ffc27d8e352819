"""The socket under clients that are wrong, hostile, slow or many: others are undisturbed."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import SPACE, WAIT_S, AgentProcess, BareClient, chain, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi import Client, session
from onggi_core.wire.cut import Frame
from onggi_core.wire.frame import PAYLOAD_MAX_BYTES, Op, Status, frame
from onggi_core.wire.replies import StorePrepared
from onggi_core.wire.requests import (
    Hello,
    LoadPrepare,
    Lookup,
    StatsRequest,
    StoreComplete,
    StoreOutcome,
    StorePrepare,
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path_factory.mktemp("run"), "--memory", "16MiB", "--extent", "4MiB")
    process.wait_for("arena_ready")
    process.wait_for("listening")
    yield process
    assert process.end() == 0
    assert process.said("asyncio") == []
    process.clean_up()


@pytest.fixture(scope="module")
def bystander(agent: AgentProcess) -> Iterator[BareClient]:
    """A client that does nothing wrong and must notice nothing."""
    client = BareClient(agent)
    client.store(chain(3))
    yield client
    assert client.load(tuple(chain(3))) == list(chain(3).values())
    client.close()


def answers_to(agent: AgentProcess, raw: bytes, *, greet: bool) -> list[Frame]:
    """What the agent says to these bytes before it closes the stream or they are all answered."""
    client = BareClient(agent, greet=greet)
    with contextlib.suppress(BrokenPipeError):  # closed on us already: it did not wait to be asked
        client.socket.sendall(raw)
        client.socket.shutdown(socket.SHUT_WR)
    frames = []
    while (got := client.next_frame()) is not None:
        frames.append(got)
    client.close()
    return frames


def test_the_first_frame_must_be_hello(agent: AgentProcess, bystander: BareClient) -> None:
    (got,) = answers_to(agent, frame(Op.STATS, 0, 9, b""), greet=False)
    assert (got.op, got.status, got.request_id) == (Op.STATS, Status.HELLO_FIRST, 9)
    assert got.payload == b"STATS before HELLO"


def test_another_version_is_told_which_one_is_spoken(
    agent: AgentProcess, bystander: BareClient
) -> None:
    hello = Hello(1, "later", (SPACE,), version_min=7, version_max=9)
    (got,) = answers_to(agent, frame(Op.HELLO, 0, 1, hello.encode()), greet=False)
    assert got.status == Status.BAD_VERSION
    assert got.payload == b"client speaks protocol 7 to 9; this agent speaks 1"


def test_an_oversized_frame_is_refused_before_it_is_read(
    agent: AgentProcess, bystander: BareClient
) -> None:
    raw = struct.pack("<IHHQ", PAYLOAD_MAX_BYTES + 1, Op.LOOKUP, 0, 5)
    (got,) = answers_to(agent, raw, greet=True)
    assert got.status == Status.TOO_LARGE
    assert b"limit is 2097152" in got.payload


def test_an_unknown_operation_ends_that_stream_with_a_reason(
    agent: AgentProcess, bystander: BareClient
) -> None:
    (got,) = answers_to(agent, frame(999, 0, 5, b"x"), greet=True)
    assert (got.status, got.op) == (Status.BAD_FRAME, 999)
    assert got.payload == b"operation 999 is unknown; use 1 to %d" % max(Op)


def test_a_wrong_request_is_refused_and_the_stream_goes_on(
    agent: AgentProcess, bystander: BareClient
) -> None:
    raw = frame(Op.STORE_COMPLETE, 0, 1, StoreComplete(77, StoreOutcome.SEALED).encode())
    raw += frame(Op.STATS, 0, 2, b"")
    refused, stats = answers_to(agent, raw, greet=True)
    assert (refused.status, refused.request_id) == (Status.UNKNOWN_TICKET, 1)
    assert (stats.status, stats.request_id) == (Status.OK, 2)


def test_a_hello_that_cannot_be_met_is_refused(agent: AgentProcess, bystander: BareClient) -> None:
    spec = SPACE.__class__(b"w" * 16, 2**40, 16)
    (got,) = answers_to(agent, frame(1, 0, 1, Hello(1, "x", (spec,)).encode()), greet=False)
    assert got.status == Status.BAD_REQUEST
    assert b"page_bytes is 1099511627776" in got.payload


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.builds(
                frame,
                st.integers(0, 12),
                st.integers(0, 9),
                st.integers(0, 3),
                st.binary(max_size=99),
            ),
            st.sampled_from(
                [
                    frame(Op.LOOKUP, 0, 1, Lookup(tuple(chain(3))).encode()),
                    frame(Op.STATS, 0, 2, StatsRequest().encode()),
                    frame(Op.LOAD_PREPARE, 0, 3, LoadPrepare(1, tuple(chain(3))).encode()),
                    frame(
                        Op.STORE_PREPARE, 0, 4, StorePrepare(0, bytes(16), (b"k" * 16,)).encode()
                    ),
                    frame(Op.HELLO, 0, 5, Hello(1, "again", (SPACE,)).encode()),
                ]
            ),
        ),
        max_size=8,
    ),
    st.booleans(),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_garbage_is_answered_or_closed_and_disturbs_nobody(
    agent: AgentProcess, bystander: BareClient, pieces: list[bytes], greet: bool
) -> None:
    for got in answers_to(agent, b"".join(pieces), greet=greet):
        assert got.status == Status.OK or got.payload.decode()
    assert bystander.looked(*chain(3)) == (3, 3)
    assert agent.process.poll() is None


def test_what_garbage_held_is_released(agent: AgentProcess, bystander: BareClient) -> None:
    until("only the bystander to be there", lambda: bystander.stats()["sessions"] == 1)
    stats = bystander.stats()
    assert (stats["open_stores"], stats["open_loads"], stats["waiting_loads"]) == (0, 0, 0)


def test_a_client_that_reads_nothing_is_dropped(agent: AgentProcess, bystander: BareClient) -> None:
    slow = BareClient(agent)
    slow.socket.setblocking(False)
    asking = frame(Op.STATS, 0, 1, b"") * 1000

    def dropped() -> bool:
        with contextlib.suppress(BlockingIOError):
            slow.socket.send(asking)
        return bool(agent.said("client_dropped"))

    until("the slow client to be dropped", dropped)
    assert agent.wait_for("client_dropped")["unsent_bytes"] > 8 * 2**20
    slow.close()
    until("its session to end", lambda: bystander.stats()["sessions"] == 1)


def test_what_a_client_holds_stays_its_own_until_its_side_is_closed(
    agent: AgentProcess, bystander: BareClient
) -> None:
    """It may be copying into its page at this moment, whatever the agent thinks of it."""
    copying = BareClient(agent)
    held = copying.call(StorePrepare(0, bytes(16), (b"held" * 4,)))
    assert isinstance(held, StorePrepared)
    copying.socket.sendall(frame(999, 0, 9, b"garbage"))
    refused = copying.next_frame()
    assert refused is not None
    assert refused.status == Status.BAD_FRAME
    assert copying.next_frame() is None
    others = bystander.call(StorePrepare(0, bytes(16), tuple(chain(20, seed=7))))
    assert isinstance(others, StorePrepared)
    assert held.slots[0] not in others.slots
    assert bystander.stats()["open_stores"] == 2
    bystander.call(StoreComplete(others.ticket, StoreOutcome.ABANDONED))
    copying.close()
    until("its page to be free", lambda: bystander.stats()["open_stores"] == 0)


def test_one_client_more_than_the_limit_is_told_so(
    agent: AgentProcess,
    bystander: BareClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "ATTACH_DEADLINE_S", WAIT_S)
    idle = [BareClient(agent, greet=False) for _ in range(255)]
    (got,) = answers_to(agent, b"", greet=False)
    assert got.status == Status.TOO_MANY
    assert got.payload == b"256 clients are connected; close one"
    client = Client(agent.socket_path, spaces=[SPACE])
    assert not client.attached
    assert "closed the connection: 256 clients are connected; close one. Requests" in caplog.text
    for one in idle:
        one.close()
    until("it to find the agent again", lambda: client.attached)
    client.close()
    until("all of them to go", lambda: bystander.stats()["sessions"] == 1)


def test_a_path_that_somebody_answers_on_is_left_to_them(memory_folder: Path) -> None:
    """A server without our lock, such as another program's."""
    path = memory_folder / "agent.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        agent = AgentProcess(memory_folder)
        assert agent.wait() == 1
        assert "another process answers" in agent.said("start_refused")[0]["message"]
        agent.clean_up()
    assert path.is_socket()


def test_a_file_at_the_path_that_is_no_socket_is_kept(memory_folder: Path) -> None:
    path = memory_folder / "agent.sock"
    path.write_text("precious")
    agent = AgentProcess(memory_folder)
    assert agent.wait() == 1
    assert "is not a socket" in agent.said("start_refused")[0]["message"]
    assert path.read_text() == "precious"
    agent.clean_up()
