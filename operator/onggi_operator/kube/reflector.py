"""A cache of one kind of object, kept by a paged list and a watch.

It holds projections, not objects: a pod is 5 to 50 KiB of JSON and a few hundred bytes of what is
asked of it here. While the API server is away the cache keeps what it last saw, and then goes on
with the watch where it was: only a server that no longer knows that far back is asked for a list.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from onggi_operator.kube.backoff import Backoff
from onggi_operator.kube.client import ApiClient, ApiError, Busy, Expired, Unreachable

ITEMS_MAX: Final = 50_000
"""Five times the largest cluster planned for; past it objects are left out, and it is said."""

RESUMES_MAX: Final = 8
"""After so many failures in a row everything is listed: a server whose data were restored from a
backup does not know the version yet, and says nothing but to try again."""

BETWEEN_WATCHES_S: Final = 0.1

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name."""

View = TypeVar("View")


class Reflector(Generic[View]):
    """`project` turns an object into what is kept, or None to keep nothing of it."""

    def __init__(
        self,
        api: ApiClient,
        path: str,
        project: Callable[[Mapping[str, Any]], View | None],
        *,
        params: Mapping[str, str] | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._project = project
        self._params = dict(params or {})
        self._backoff = Backoff(dice or random.Random())  # noqa: S311 - spreads calls, hides nothing
        self.items: dict[Key, View] = {}
        self.synced = asyncio.Event()
        """Set once the first list is complete, and never cleared."""

    async def run(self) -> None:
        """Follow the API until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async for seen in self._watch(version):
                    version = seen
                    self._backoff.succeeded()
                self._backoff.succeeded()
                # A server that ends watches at once must not be asked in a tight loop.
                await asyncio.sleep(BETWEEN_WATCHES_S)
            except Expired:
                version = ""
                await asyncio.sleep(self._backoff.failed())
            except (ApiError, Unreachable) as fault:
                asked_s = fault.retry_after_s if isinstance(fault, Busy) else 0.0
                wait_s = self._backoff.failed(asked_s=asked_s)
                log.warning("lost touch with %s: %s", self._path, fault, extra={"retry_s": wait_s})
                await asyncio.sleep(wait_s)
                if self._backoff.failures % RESUMES_MAX == 0:
                    version = ""

    async def _list(self) -> str:
        fresh: dict[Key, View] = {}
        version = ""
        async for page in self._api.pages(self._path, self._params):
            for item in page.get("items") or ():
                self._keep(fresh, item)
            version = page["metadata"]["resourceVersion"]
        # In place and without an await between, so that readers may hold on to the mapping.
        self.items.clear()
        self.items.update(fresh)
        self.synced.set()
        return version

    async def _watch(self, version: str) -> AsyncIterator[str]:
        """The version after each event."""
        async for event in self._api.watch(self._path, self._params, version):
            item = event["object"]
            version = item["metadata"]["resourceVersion"]
            match event["type"]:
                case "ADDED" | "MODIFIED":
                    self._keep(self.items, item)
                case "DELETED":
                    self.items.pop(key_of(item), None)
            yield version

    def _keep(self, into: dict[Key, View], item: Mapping[str, Any]) -> None:
        key = key_of(item)
        view = self._project(item)
        if view is None:
            into.pop(key, None)
        elif key in into or len(into) < ITEMS_MAX:
            into[key] = view
        else:
            log.error("more than %d objects under %s; %s is left out", ITEMS_MAX, self._path, key)


def key_of(item: Mapping[str, Any]) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
