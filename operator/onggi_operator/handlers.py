"""What wakes this operator: every kopf handler, each a filter and one call. kopf is only here.

Only event handlers, so kopf adds no finalizer and writes nothing: a pool can be deleted, and its
namespace with it, while no operator lives.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import kopf

from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.reflector import Key
from onggi_operator.names import GROUP, PLURAL, VERSION

WORKERS_MAX: Final = 20
"""Pools handled at once; a handler is one plain call, so more would only cost memory."""

THREADS_MAX: Final = 1
"""Every handler is a coroutine; kopf's thread pool stays empty."""

PAGE_ITEMS: Final = 200
REQUEST_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 5.0
WATCH_S: Final = 290
EXIT_S: Final = 5.0
RETRIES_S: Final = (1, 2, 5, 10, 30)

log = logging.getLogger(__name__)

Handlers = kopf.OperatorRegistry


class Pools(Protocol):
    """Who is told of pools."""

    def see_pool(self, body: Mapping[str, Any]) -> None: ...

    def lose_pool(self, key: Key) -> None: ...


def registry_for(access: ApiAccess, pools: Pools, loop: asyncio.AbstractEventLoop) -> Handlers:
    """The handlers, bound to what they change, on the loop that it lives on."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def limits(settings: kopf.OperatorSettings, **_: Any) -> None:
        set_limits(settings)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server, ca_path=str(access.ca_file), scheme="Bearer", token=access.token()
        )

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def pool(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            key = body["metadata"]["namespace"], body["metadata"]["name"]
            loop.call_soon_threadsafe(pools.lose_pool, key)
        else:
            loop.call_soon_threadsafe(pools.see_pool, body)

    return registry


def set_limits(settings: kopf.OperatorSettings) -> None:
    """Every limit that kopf has: some of its defaults are none."""
    settings.process.ultimate_exiting_timeout = EXIT_S * 2
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = WATCH_S + 10
    settings.watching.connect_timeout = CONNECT_TIMEOUT_S
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = PAGE_ITEMS
    settings.queueing.worker_limit = WORKERS_MAX
    settings.queueing.idle_timeout = 5.0
    settings.queueing.exit_timeout = EXIT_S
    settings.queueing.error_delays = RETRIES_S
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.networking.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.error_backoffs = RETRIES_S
    settings.execution.executor = concurrent.futures.ThreadPoolExecutor(max_workers=THREADS_MAX)
    settings.background.instant_exit_timeout = 1.0


async def follow_pools(registry: Handlers) -> None:
    """Run kopf until cancelled, in a thread and on a loop of its own: it takes over the signals of
    the loop that it is on, and at its end cancels every task there that began after it."""
    stop = threading.Event()

    def follow() -> None:
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(teller(stop))
            runner.run(
                kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=stop)
            )

    thread = asyncio.create_task(asyncio.to_thread(follow))
    try:
        await asyncio.shield(thread)
    finally:
        stop.set()
        await asyncio.wait([thread], timeout=EXIT_S)


def teller(stop: threading.Event) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What a loop does with faults that nobody awaits. At the end a watch of kopf's may be closed
    in the middle of its answer, and Python calls that a fault of the watch: it is none of ours."""

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if stop.is_set() and "asyncgen" in context:
            log.debug("at the end: %s", context["message"])
        else:
            loop.default_exception_handler(context)

    return tell
