"""Running aiohttp applications and background tasks together until told to stop.

A task that ends with a fault ends the program: a half of it that is dead and a half that looks
healthy is worse than a restart.
"""

import asyncio
import asyncio.sslproto
import signal
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

DRAIN_S: Final = 5.0
"""For answers that are being written when the end is asked for; under the pod's grace period."""

KEPT_IDLE_S: Final = 90.0
"""A connection without a request. Agents hold theirs from one report to the next (a handshake is
three times the work of a report), and let go of it sooner than this by themselves."""

TLS_READ_BYTES: Final = 16 * 1024
"""asyncio gives each TLS connection a buffer of this size for as long as it lives, 256 KiB if not
told otherwise: 10,000 agents would hold 2.5 GiB of it. A record is no longer than this."""


@asynccontextmanager
async def serving(
    app: web.Application, host: str | None, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while inside; yields the port, which is the system's choice for port 0."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=DRAIN_S, keepalive_timeout=KEPT_IDLE_S
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls, reuse_address=True)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def stop_event() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def run_until(stop: asyncio.Event, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run `work` until `stop` is set. Raises what the first of them to end with a fault raised, and
    RuntimeError when one ends without: none of them is meant to."""
    tasks = [asyncio.create_task(one) for one in work]
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            task.result()
            if stop.is_set():
                return
            raise RuntimeError(f"{task.get_coro()} ended")
    finally:
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)


async def run_all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run `work` until cancelled. Raises as `run_until` does."""
    await run_until(asyncio.Event(), work)
