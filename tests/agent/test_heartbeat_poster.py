"""Reports to an operator that answers, fails and comes back."""

import asyncio
import datetime as dt
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from stand_in_operator import run, serving

from onggi_core.heartbeat import (
    Directive,
    Heartbeat,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
    dump_directive,
)
from onggi_sidecar.config import AgentConfig, load_config
from onggi_sidecar.heartbeat import (
    BACKOFF_S_MAX,
    ELSEWHERE_LAST_MAX,
    ELSEWHERE_MAX,
    HeartbeatPoster,
)

BEAT = Heartbeat(
    pool="chat",
    namespace="team-a",
    pod="chat-0",
    pod_uid="uid",
    node="n1",
    epoch="ab" * 16,
    mode=Mode.ACTIVE,
    capacity=TierBytes(1, 2),
    used=TierBytes(0, 0),
    arena_ready_bytes=1,
    hits=TierBlocks(0, 0),
    lookups=Lookups(0, 0, 0),
    tokens_saved=0,
    evictions=0,
    errors={},
    fingerprints=(),
    clients=0,
)


def config_for(port: int, **more: str) -> AgentConfig:
    url = f"http://127.0.0.1:{port}"
    names = {"pool": "chat", "namespace": "team-a", "pod_name": "chat-0"}
    return load_config({"operator_url": url, **names} | more, {})


class Clockless:
    """Dice that answer the middle, and a poster whose pauses are noted."""

    def __init__(self, config: AgentConfig) -> None:
        self.obeyed: list[Directive] = []
        self.poster = HeartbeatPoster(
            config, report=lambda: BEAT, obey=self.obeyed.append, dice=random.Random(1)
        )


async def run_until(poster: HeartbeatPoster, done: Callable[[], Awaitable[object]]) -> None:
    running = asyncio.create_task(poster.run())
    await asyncio.wait_for(done(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_report_carries_the_token_and_its_answer_is_obeyed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")

    async def scene() -> None:
        async with serving(mode=Mode.PAUSED) as operator:
            bench = Clockless(config_for(operator.port, token_file=str(token)))
            obeyed = asyncio.Event()
            bench.poster._obey = lambda directive: (bench.obeyed.append(directive), obeyed.set())[0]
            await run_until(bench.poster, obeyed.wait)
            assert operator.tokens[0] == "Bearer secret"
            assert operator.beats[0] == replace(BEAT, confirms="")
            assert bench.obeyed[0] == Directive(Mode.PAUSED, 1.0)

    run(scene())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"bad token"),
        (500, b""),
        (200, b"hello"),
        (200, b'{"version":1,"mode":"Sideways","interval_s":5}'),
        (200, b'{"version":2,"mode":"Active","interval_s":5}'),
    ],
)
def test_an_answer_that_is_none_changes_nothing_and_is_said_once(
    status: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with serving(web.Response(status=status, body=body)) as operator:
            bench = Clockless(config_for(operator.port))
            noted = asyncio.Event()
            note = bench.poster._pause_s
            bench.poster._pause_s = lambda s: (noted.set(), note(s))[1]  # type: ignore[method-assign]
            await run_until(bench.poster, noted.wait)
            assert bench.obeyed == []

    run(scene())
    assert len([r for r in caplog.records if "present mode stays" in r.message]) == 1


@pytest.mark.parametrize(
    "more",
    [{}, {"host_bytes": 7, "shed": {"share": 0.5}, "peers": ["n2"]}],
    ids=["before", "later"],
)
def test_an_operator_of_another_time_is_obeyed_as_far_as_it_is_understood(
    more: dict[str, Any],
) -> None:
    """The first one said mode and interval alone, and an agent under it keeps its sizes."""

    async def scene() -> None:
        told = {"version": 1, "mode": "Observe", "interval_s": 5, **more}
        async with serving(web.json_response(told)) as operator:
            bench = Clockless(config_for(operator.port))
            obeyed = asyncio.Event()
            bench.poster._obey = lambda directive: (bench.obeyed.append(directive), obeyed.set())[0]
            await run_until(bench.poster, obeyed.wait)
            assert bench.obeyed[0] == Directive(Mode.OBSERVE, 5.0, more.get("host_bytes"))

    run(scene())


def test_an_operator_that_does_not_lead_is_asked_again_at_once_and_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def elsewhere(count: int) -> list[web.Response]:
        found = [web.Response(status=421, body=b"another operator leads") for _ in range(count)]
        for one in found:
            one.force_close()
        return found

    async def scene() -> None:
        for refusals, obeyed in ((ELSEWHERE_MAX - 1, 1), (ELSEWHERE_MAX, 0)):
            async with serving(*elsewhere(refusals)) as operator:
                bench = Clockless(config_for(operator.port))
                paused = asyncio.Event()
                note = bench.poster._pause_s
                bench.poster._pause_s = (  # type: ignore[method-assign]
                    lambda s, note=note, paused=paused: (paused.set(), note(s))[1]
                )
                await run_until(bench.poster, paused.wait)
                assert len(bench.obeyed) == obeyed
                assert len(operator.beats) == ELSEWHERE_MAX

    run(scene())
    told = [r.message for r in caplog.records if "present mode stays" in r.message]
    assert len(told) == 1
    assert "answered 421: another operator leads" in told[0]


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context for 127.0.0.1 and the certificate, its own authority, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "operator")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    (folder / "cert.pem").write_text(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, pem


def test_the_operator_is_believed_by_the_authority_handed_in_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls, pem = certificate(tmp_path)

    async def scene() -> None:
        async with serving(tls=tls) as operator:
            url = f"https://127.0.0.1:{operator.port}"
            for trusted, beats in (({}, 0), ({"operator_ca": pem}, 1)):
                bench = Clockless(config_for(operator.port, operator_url=url, **trusted))
                noted = asyncio.Event()
                note = bench.poster._pause_s
                bench.poster._pause_s = (  # type: ignore[method-assign]
                    lambda s, note=note, noted=noted: (noted.set(), note(s))[1]
                )
                await run_until(bench.poster, noted.wait)
                assert len(operator.beats) == beats

    run(scene())
    assert "cannot reach the operator" in caplog.text


@pytest.mark.parametrize(
    "where", [{"operator_ca": "no certificate"}, {"operator_ca_file": "/nowhere/ca.pem"}]
)
def test_certificates_that_cannot_be_read_are_told_and_nothing_is_posted(
    where: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    run(Clockless(config_for(1, **where)).poster.run())
    assert "cannot read the operator's certificates" in caplog.text


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_token_that_cannot_be_read_is_told_and_tried_again(
    content: bytes | None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)

    async def scene() -> None:
        async with serving() as operator:
            bench = Clockless(config_for(operator.port, token_file=str(token)))
            noted = asyncio.Event()
            note = bench.poster._pause_s
            bench.poster._pause_s = lambda s: (noted.set(), note(s))[1]  # type: ignore[method-assign]
            await run_until(bench.poster, noted.wait)
            assert operator.beats == []

    run(scene())
    assert str(token) in caplog.text


def test_pauses_double_to_a_minute_and_are_spread() -> None:
    bench = Clockless(config_for(1))
    pauses = []
    for failures in range(10):
        bench.poster._failures = failures
        pauses.append(bench.poster._pause_s(5.0))
    assert 4.0 <= pauses[0] <= 6.0
    assert 8.0 <= pauses[1] <= 12.0
    assert max(pauses) <= BACKOFF_S_MAX * 1.2
    assert len(set(pauses)) == 10


def test_the_end_is_one_report_more_to_whoever_answers() -> None:
    """Also where nobody took the one before: of a pod that lives for seconds it is all there is."""

    async def reports(*answers: web.Response) -> int:
        async with serving(*answers) as operator:
            bench = Clockless(config_for(operator.port))
            running = asyncio.create_task(bench.poster.run())
            await asyncio.wait_for(operator.heard.wait(), 10)
            bench.poster.end()
            await asyncio.wait_for(running, 10)
            return len(operator.beats)

    async def scene() -> None:
        elsewhere = [web.Response(status=421) for _ in range(ELSEWHERE_MAX + ELSEWHERE_LAST_MAX)]
        assert await reports() == 2
        assert await reports(web.Response(status=503)) == 2
        assert await reports(*elsewhere[:-1]) == len(elsewhere)

    run(scene())


def test_an_end_without_an_operator_is_an_end() -> None:
    async def scene() -> None:
        async with serving() as gone:
            bench = Clockless(config_for(gone.port))
        asked: asyncio.Queue[Heartbeat] = asyncio.Queue()
        bench.poster._report = lambda: (asked.put_nowait(BEAT), BEAT)[1]
        running = asyncio.create_task(bench.poster.run())
        await asyncio.wait_for(asked.get(), 10)
        bench.poster.end()
        await asyncio.wait_for(running, 10)
        assert asked.qsize() == 1

    run(scene())


def test_a_doubted_report_is_followed_at_once_by_one_that_repeats_the_mark() -> None:
    async def scene() -> None:
        doubt = web.Response(body=dump_directive(Directive(Mode.PAUSED, 60.0, confirm="a-1")))
        async with serving(doubt, interval_s=60.0) as operator:
            bench = Clockless(config_for(operator.port))
            obeyed = asyncio.Event()
            bench.poster._obey = lambda directive: (bench.obeyed.append(directive), obeyed.set())[0]
            await run_until(bench.poster, obeyed.wait)
            assert [beat.confirms for beat in operator.beats] == ["", "a-1"]
            assert [told.mode for told in bench.obeyed] == [Mode.ACTIVE], "the second answer counts"

    run(scene())
