"""What goes wrong most often is said once, with what to do about it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onggi import Client, SpaceSpec, advice, fingerprint
from onggi.patience import BACKOFF_FIRST_S
from onggi_core.wire import requests
from onggi_core.wire.frame import Status

MIB = 1 << 20
SPACE = SpaceSpec(fingerprint({"model": "m"}), 8192, 16)
KEY = [b"k" * 16]


def said_to(client: Client, caplog: pytest.LogCaptureFixture) -> str:
    """The one line that a client without its agent logs, however often it is asked."""
    for _ in range(3):
        assert client.lookup(KEY).ready == 0
    assert not client.attached
    (record,) = caplog.records
    return record.getMessage()


def test_an_agent_of_another_protocol(
    agent: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "VERSION", 2)  # as the agent reads it
    said = said_to(Client(agent.socket_path, spaces=[SPACE]), caplog)
    assert "client speaks protocol 1 to 1; this agent speaks 2; client and agent are of" in said
    assert "fill the engine's folder again with the agent's own `onggi install-client FOLD" in said


def test_an_arena_of_another_version(
    agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "arena").open("r+b") as file:
        file.seek(8)
        file.write((9).to_bytes(4, "little"))
    said = said_to(Client(agent.socket_path, spaces=[SPACE]), caplog)
    assert "arena version is 9 with 72 header bytes, should be 3 with 72; client and agent" in said


def test_another_geometry_under_the_same_fingerprint(
    agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = Client(agent.socket_path, spaces=[SPACE])
    assert first.attached
    said = said_to(Client(agent.socket_path, spaces=[replace(SPACE, page_bytes=4096)]), caplog)
    assert (
        "page_bytes, block_tokens is (4096, 16); this fingerprint is known with (8192, 16)" in said
    )
    assert "what shapes a page (dtype, layers, block size) belongs into its fields" in said
    first.close()


def test_a_page_larger_than_the_agent_takes(agent: Any, caplog: pytest.LogCaptureFixture) -> None:
    said = said_to(Client(agent.socket_path, spaces=[replace(SPACE, page_bytes=2 * MIB)]), caplog)
    assert f"page_bytes is {2 * MIB}; this agent holds pages of 1 to {MIB} bytes" in said
    assert "give it a larger extent, or the engine smaller blocks" in said


FULL = "256 clients are connected; close one"


def test_an_agent_that_takes_no_one_more(agent: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It says so in a frame that answers no request, before or after it has heard of one."""
    agent.full, now_s = FULL, [1000.0]
    client = Client(agent.socket_path, spaces=[SPACE], clock=lambda: now_s[0])
    said = said_to(client, caplog)
    assert f"{agent.socket_path}: the agent closed the connection: {FULL}. Requests go on" in said
    assert agent.accepted == 1  # the back-off: what was refused is not asked for each time
    agent.full = ""
    assert not client.attached
    now_s[0] += BACKOFF_FIRST_S
    assert client.attached
    assert caplog.records[-1].getMessage().endswith("answers now, after one failure")
    client.close()


@pytest.mark.parametrize("status", [Status.TOO_MANY, Status.BAD_FRAME, Status.STOPPING])
def test_an_agent_that_has_had_enough_of_a_client(
    agent: Any, caplog: pytest.LogCaptureFixture, status: Status
) -> None:
    """Whatever the status, the connection is over, and tried again after the back-off."""
    now_s = [1000.0]
    client = Client(agent.socket_path, spaces=[SPACE], clock=lambda: now_s[0])
    assert client.attached
    agent.dismiss(status, "a frame was begun and not finished within 5 s")
    assert client.stats() == {}
    (record,) = caplog.records
    assert (
        "connection lost: the agent closed the connection: a frame was begun and not finished "
        "within 5 s. Requests go on" in record.getMessage()
    )
    assert not client.attached
    assert agent.accepted == 1
    now_s[0] += BACKOFF_FIRST_S
    assert client.attached
    client.close()


def test_no_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = said_to(Client(tmp_path / "none.sock", spaces=[SPACE]), caplog)
    assert said == (
        f"onggi: agent at {tmp_path}/none.sock: no agent there: No such file or directory: start "
        "`onggi agent` with this path as its socket, or name its own to the engine. Requests go on "
        "without it; trying again quietly."
    )


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_what_is_no_socket_is_told_to_be_none(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "onggi"
    if what == "a folder":
        place.mkdir()
        right = f"that is a folder: name the socket in it, such as {place}/agent.sock"
    else:
        place.write_text("")
        right = "that is a file and no socket: name an Onggi agent's socket (ONGGI_SOCKET)"
    said = said_to(Client(place, spaces=[SPACE]), caplog)
    assert said.startswith(f"onggi: agent at {place}: no agent there: {right}. Requests go on ")


def test_a_socket_that_may_not_be_used() -> None:
    said = advice.on_connecting(PermissionError(13, "Permission denied"), "/none")
    assert said == (
        f"Permission denied for uid {os.geteuid()} and gid {os.getegid()}: run engine and agent as "
        "one user, or in one group"
    )


def test_a_page_of_another_size(agent: Any) -> None:
    client = Client(agent.socket_path, spaces=[SPACE])
    right = r"pages\[0\] has 4096 bytes; a page of this space has 8192: hand in what page_bytes"
    with pytest.raises(ValueError, match=right):
        client.store(KEY, [bytes(4096)])
    client.close()


def test_a_tensor_of_another_dtype(agent: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    client = Client(agent.socket_path, spaces=[SPACE])
    page = torch.zeros(16, 128, dtype=torch.bfloat16)
    right = r"\(16, 128\) of torch.bfloat16; a page of this space has 8192: hand in the shape and"
    with pytest.raises(ValueError, match=right):
        client.store(KEY, [page])
    client.close()
