"""Clients that get no session: told in the log, counted, and what the doctor says of them."""

import json
import logging
import subprocess
import sys

import pytest
from agent_process import PAGE_BYTES, REPOSITORY, SPACE, BareClient, StartAgent

from onggi_core.wire.frame import Op, Status
from onggi_core.wire.requests import Hello, SpaceSpec
from onggi_sidecar.refusals import SAID_AT_ONCE, SAID_EVERY_S, Refusals
from onggi_sidecar.tally import SENTENCE_CHARS_MAX, Tally

SENTENCE = f"page_bytes, block_tokens is ({2 * PAGE_BYTES}, 16); this fingerprint is known with"


def doctor(port: int, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onggi_sidecar", "doctor", "--port", str(port), *flags],
        env={"PYTHONPATH": str(REPOSITORY / "sidecar"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_client_with_another_page_size_is_told_in_the_log_and_by_the_doctor(
    start: StartAgent,
) -> None:
    agent = start()
    agent.wait_for("listening")
    port = agent.wait_for("http_listening")["port"]
    first = BareClient(agent)
    second = BareClient(agent, greet=False)
    second.post(Hello(7, "other", (SpaceSpec(SPACE.fingerprint, 2 * PAGE_BYTES, 16),)))
    got = second.next_frame()
    assert got is not None
    assert got.status == Status.BAD_REQUEST
    said = agent.wait_for("client_refused")
    assert said["level"] == "warning"
    assert said["status"] == "BAD_REQUEST"
    assert said["message"] == got.payload.decode()
    assert said["message"].startswith(SENTENCE)
    first.close()
    second.close()
    found = json.loads(doctor(port, "--json").stdout)["figures"]
    assert found["errors"]["bad_request"] == 1
    assert found["refused_clients"] == 1
    told = doctor(port)
    assert told.returncode == 1
    assert f"[wrong] a client was refused once, last: {SENTENCE}" in told.stdout
    assert agent.end() == 0


def test_what_is_logged_of_refusals_is_bounded_and_what_is_counted_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    tally = Tally(lambda: 0.0)
    refusals = Refusals(tally, lambda: now_s)
    with caplog.at_level(logging.WARNING, logger="onggi"):
        for number in range(SAID_AT_ONCE + 5):
            refusals.count(Op.HELLO, Status.BAD_REQUEST, f"number {number}", session=number)
        assert len(caplog.records) == SAID_AT_ONCE
        now_s = SAID_EVERY_S
        refusals.count(Op.HELLO, Status.BAD_VERSION, "x" * 10_000, session=99)
    assert len(caplog.records) == SAID_AT_ONCE + 1
    assert caplog.records[-1].onggi_fields["unsaid"] == 5  # type: ignore[attr-defined]
    assert tally.faults == {"bad_request": SAID_AT_ONCE + 5, "bad_frame": 1}
    assert tally.refused_clients == SAID_AT_ONCE + 6
    assert tally.last_refusal == "x" * SENTENCE_CHARS_MAX


@pytest.mark.parametrize(
    ("op", "status", "clients"),
    [
        (0, Status.TOO_MANY, 1),
        (Op.HELLO, Status.BAD_VERSION, 1),
        (Op.STATS, Status.HELLO_FIRST, 0),
        (0, Status.BAD_FRAME, 0),
        (Op.LOOKUP, Status.BAD_REQUEST, 0),
    ],
)
def test_a_wrong_request_or_a_stranger_is_no_refused_client(
    op: int, status: Status, clients: int
) -> None:
    tally = Tally(lambda: 0.0)
    Refusals(tally, lambda: 0.0).count(op, status, "no", session=1)
    assert tally.refused_clients == clients
    assert sum(tally.faults.values()) == 1
