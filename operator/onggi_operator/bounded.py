"""A bound on what callers can make a server hold: requests at once, and the time of each.

Both HTTPS ports are open to every pod of the cluster. A caller that sends its body a byte a minute,
or a thousand of them, costs a connection each and nothing more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

IN_FLIGHT_MAX: Final = 512
"""With bodies at their largest a few of these would fill the memory, but a body is only read as far
as its caller sends it, and for as long as a request may take."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def bounded(*, time_s: float, in_flight_max: int = IN_FLIGHT_MAX) -> Middleware:
    """Answers 503 beyond `in_flight_max`, and 408 when a request takes longer than `time_s`."""
    in_flight = 0

    @web.middleware
    async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_flight
        if in_flight >= in_flight_max:
            return web.Response(status=503, headers={"Retry-After": "5"}, text="busy\n")
        in_flight += 1
        try:
            async with asyncio.timeout(time_s):
                return await handler(request)
        except TimeoutError:
            return web.Response(status=408, text=f"not done within {time_s:g} seconds\n")
        finally:
            in_flight -= 1

    return bound
