"""Calls to the API server. Every call has a time limit, every answer a size, and the library's
errors are turned into a few of our own, a class only for what somebody handles."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from onggi_operator.kube.access import ApiAccess

CALL_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 32
"""Watches hold three; the rest carry calls, and callers beyond wait in line."""

PAGE_ITEMS: Final = 200
"""About 2 MiB of pods at a time, some 20 MiB once parsed, so that a list of a large cluster need
not fit into memory."""

WATCH_S: Final = 290
"""The server ends a watch after this; a little under common idle limits of load balancers."""

WATCH_SILENCE_S: Final = WATCH_S + 30
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""An object is at most 1.5 MiB in etcd; JSON of it fits into twice that."""

BUSY: Final = (429, 503, 504)

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Params = Mapping[str, str]


class ApiError(Exception):
    """The API server refused. `status` is the HTTP status, `reason` the server's own word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class NotFound(ApiError):
    """The object does not exist."""


class Conflict(ApiError):
    """The object exists already, or changed since it was read."""


class Expired(ApiError):
    """The resource version is too old to go on from: list again."""


class Unreachable(Exception):
    """No answer: network, time limit, or something that is no API server."""


class Busy(Unreachable):
    """The API server, or what stands before it, wants to be asked later: too many calls (429), or
    not ready to serve (503, 504). `retry_after_s` is what it asks for, 0 where it does not say."""

    def __init__(self, told: str, retry_after_s: float) -> None:
        super().__init__(told)
        self.retry_after_s = retry_after_s


class NotAllowed(Unreachable):
    """This program may not write now: another may be doing it."""


class ApiClient:
    """One session for the process. Use as an async context manager."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._left_s: Callable[[], float] | None = None
        self._wait_s: Callable[[], float] | None = None

    def fenced(
        self, left_s: Callable[[], float], wait_s: Callable[[], float] | None = None
    ) -> "ApiClient":
        """The same session for somebody who may write as long as `left_s()` is more than 0, and no
        longer: a write that is not answered by then is given up. Each write waits for `wait_s()`
        first."""
        assert self._session is not None, "use ApiClient as an async context manager"
        fenced = ApiClient(self._access)
        fenced._session, fenced._left_s, fenced._wait_s = self._session, left_s, wait_s
        return fenced

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=CONNECTIONS_MAX, ssl=self._access.tls(), ttl_dns_cache=60
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            read_bufsize=LINE_BYTES_MAX // 2,
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            headers={"User-Agent": "onggi"},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, *, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """One object. Raises NotFound, ApiError, Unreachable."""
        return await self._call("GET", path, timeout_s=timeout_s)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create. Raises Conflict, ApiError, Unreachable."""
        return await self._call("POST", path, body=body)

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        kind: str = MERGE_PATCH,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Change. Raises NotFound, Conflict, ApiError, Unreachable."""
        return await self._call("PATCH", path, body=body, content_type=kind, timeout_s=timeout_s)

    async def pages(self, path: str, params: Params) -> AsyncIterator[dict[str, Any]]:
        """A list in pages, so that no more than one is held at a time. Raises Expired when the
        list grew too old on the way, ApiError, Unreachable."""
        onward = ""
        while True:
            query = {**params, "limit": str(PAGE_ITEMS)}
            if onward:
                query["continue"] = onward
            page = await self._call("GET", path, params=query)
            yield page
            onward = page["metadata"].get("continue") or ""
            if not onward:
                return

    async def watch(self, path: str, params: Params, version: str) -> AsyncIterator[dict[str, Any]]:
        """Events from `version` on, until the server ends the watch. Raises as `pages` does."""
        query = {
            **params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        limits = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_TIMEOUT_S, sock_read=WATCH_SILENCE_S
        )
        try:
            async with self._open().get(
                self._access.server + path, params=query, headers=self._headers(), timeout=limits
            ) as answer:
                await _raise_for(answer)
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(int(event["object"].get("code", 500)), event["object"])
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
            raise Unreachable(_told(fault)) from fault

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Params | None = None,
        content_type: str = "application/json",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        headers = self._headers()
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        if method != "GET" and self._wait_s is not None:
            await asyncio.sleep(self._wait_s())
        if method != "GET" and self._left_s is not None:
            timeout_s = min(timeout_s, self._left_s())
            if timeout_s <= 0:
                raise NotAllowed("this operator does not lead now")
        limits = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            async with self._open().request(
                method,
                self._access.server + path,
                params=params,
                data=data,
                headers=headers,
                timeout=limits,
            ) as answer:
                await _raise_for(answer)
                parsed: dict[str, Any] = await answer.json(content_type=None)
                return parsed
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
            raise Unreachable(_told(fault)) from fault

    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use ApiClient as an async context manager"
        return self._session

    def _headers(self) -> dict[str, str]:
        try:
            token = self._access.token()
        except OSError as fault:
            raise Unreachable(_told(fault)) from fault
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}


async def _raise_for(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400:
        return
    try:
        body = await answer.json(content_type=None)
    except ValueError:
        body = None
    if answer.status in BUSY:
        asked = answer.headers.get("Retry-After", "")
        told = str(_error(answer.status, body if isinstance(body, dict) else {}))
        raise Busy(told, float(asked) if asked.isdecimal() and len(asked) < 6 else 0.0)
    raise _error(answer.status, body if isinstance(body, dict) else {})


def _error(status: int, body: Mapping[str, Any]) -> ApiError:
    kinds: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Expired}
    kind = kinds.get(status, ApiError)
    return kind(status, str(body.get("reason", "")), str(body.get("message", "no message")))


def _told(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
