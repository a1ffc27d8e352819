"""What wakes this operator: every kopf handler, each a filter and one call. kopf is only here.

Only event handlers, so kopf adds no finalizer and writes nothing: a pool can be deleted, and its
namespace with it, while no operator lives.
"""

import asyncio
import concurrent.futures
from typing import Any, Final

import kopf

from onggi_operator.kube.access import ApiAccess
from onggi_operator.names import GROUP, PLURAL, VERSION
from onggi_operator.observe.world import World

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


Handlers = kopf.OperatorRegistry


def registry_for(access: ApiAccess, world: World) -> Handlers:
    """The handlers, bound to what they change."""
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
            world.lose_pool((body["metadata"]["namespace"], body["metadata"]["name"]))
        else:
            world.see_pool(body)

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


async def follow_pools(registry: Handlers, stop: asyncio.Event) -> None:
    """Run kopf until `stop` is set. kopf takes over the signals that end a process, so its end is
    passed on."""
    await kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=stop)
    stop.set()
