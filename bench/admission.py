"""How long a pod waits for its admission, at fifty pods a second.

The webhook is the real one, as a process, with a real API server behind it. Pods come at fixed
moments, whether those before are answered or not, and the time of each counts from its moment: a
webhook that falls behind cannot slow down those who ask.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.control_plane import HOST, TEAM, ControlPlane, running
from bench.entries import AtMost, Entry, Row, Unit
from bench.sizes import Sizes
from bench.timing import quantile

PODS_PER_S: Final = 50
TARGET_MS: Final = 50.0
CONNECTIONS: Final = 16
"""The API server holds a few to each webhook too."""

HOW: Final = (
    "AdmissionReviews of a pod with three containers (6 KiB) over HTTPS to one webhook process, 50 "
    "a second at fixed moments, from another process; the time counts from the moment. Rows: the "
    "median, and dry-run creations of that pod at a real API server, which calls the webhook, in "
    "turns with the same pod without an annotation of Onggi's."
)


def admissions(sizes: Sizes) -> list[Entry]:
    """The 99th percentile at the webhook alone, and of creations at the API server."""
    count = 100 if sizes.quick else 3000
    with (
        tempfile.TemporaryDirectory(prefix="onggi-bench-") as folder,
        running(Path(folder)) as there,
    ):
        direct, plain, asked = asyncio.run(_measure(there, count))
    name = "admission_p99"
    through = _ms(asked, 0.99)
    return [
        Entry(
            Row(name, _ms(direct, 0.99), Unit.MILLISECONDS),
            (AtMost(TARGET_MS),),
            "python -m bench admission",
            HOW,
            (
                Row(f"{name}/median", _ms(direct, 0.5), Unit.MILLISECONDS),
                Row(
                    f"{name}/at-the-api-server",
                    through,
                    Unit.MILLISECONDS,
                    {"without an annotation": _ms(plain, 0.99)},
                ),
            ),
        )
    ]


def _ms(samples_s: Sequence[float], share: float) -> float:
    return round(quantile(samples_s, share) * 1000, 3)


def _pod(annotated: bool) -> dict[str, Any]:  # noqa: FBT001 - one of two pods
    variables = [{"name": f"SETTING_{n}", "value": "x" * 40} for n in range(25)]
    container = {"image": "serving:1", "env": variables, "volumeMounts": []}
    metadata: dict[str, Any] = {"generateName": "chat-6d5f7c-", "labels": {"app": "chat"}}
    if annotated:
        metadata["annotations"] = {"onggi.dev/pool": "chat-7", "onggi.dev/container": "engine"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "serviceAccountName": "default",
            "containers": [{"name": name, **container} for name in ("log", "engine", "proxy")],
        },
    }


async def _measure(there: ControlPlane, count: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each: the webhook alone, plain pods at the API server, annotated ones there."""
    import aiohttp

    trusted = ssl.create_default_context(cadata=there.ca_pem)
    api = ssl.create_default_context(cafile=str(there.server.ca_file))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def review(number: int) -> None:
            request = {"uid": str(number), "namespace": TEAM, "object": _pod(annotated=True)}
            body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            data = json.dumps({**body, "request": request}).encode()
            async with session.post(
                there.webhook_url, data=data, ssl=trusted, server_hostname=HOST
            ) as answer:
                response = (await answer.json())["response"]
            _expect("patch" in response, response)

        def create(annotated: bool) -> Callable[[int], Awaitable[None]]:  # noqa: FBT001
            data = json.dumps(_pod(annotated)).encode()
            headers = {
                "Authorization": f"Bearer {there.admin_token}",
                "Content-Type": "application/json",
            }
            url = f"{there.server.url}/api/v1/namespaces/{TEAM}/pods?dryRun=All"

            async def created(_: int) -> None:
                async with session.post(url, data=data, headers=headers, ssl=api) as answer:
                    made = await answer.json()
                _expect(bool(made.get("spec", {}).get("initContainers")) == annotated, made)

            return created

        await _until_effective(create(annotated=True))
        either = create(annotated=False), create(annotated=True)

        async def in_turns(number: int) -> None:
            await either[number % 2](number)

        await _paced(review, PODS_PER_S)
        await _paced(in_turns, PODS_PER_S)
        alone = await _paced(review, count)
        there_s = await _paced(in_turns, count)
        return alone, there_s[::2], there_s[1::2]


class UnexpectedAnswer(Exception):
    """An answer that is not what was asked for, so its time says nothing."""


def _expect(right: bool, answer: object) -> None:  # noqa: FBT001 - the condition itself
    if not right:
        raise UnexpectedAnswer(str(answer)[:500])


async def _until_effective(create: Callable[[int], Awaitable[None]]) -> None:
    """A configuration of webhooks takes effect a moment after it is written."""
    deadline = time.monotonic() + 30
    while True:
        try:
            await create(0)
            return
        except UnexpectedAnswer:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def _paced(ask: Callable[[int], Awaitable[None]], count: int) -> list[float]:
    """Seconds from the moment at which each was due to its answer."""
    begin_s = time.perf_counter()

    async def one(number: int) -> float:
        due_s = begin_s + number / PODS_PER_S
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await ask(number)
        return time.perf_counter() - due_s

    return list(await asyncio.gather(*(one(number) for number in range(count))))
