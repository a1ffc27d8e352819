"""The cache follows lists and watches, and keeps what it last saw while the API server is away."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onggi_operator.kube.client import Busy, Expired, Unreachable
from onggi_operator.kube.reflector import RESUMES_MAX, Reflector


def item(name: str, version: int, kept: str = "x") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)},
        "kept": kept,
    }


def event(kind: str, name: str, version: int, kept: str = "x") -> dict[str, Any]:
    return {"type": kind, "object": item(name, version, kept)}


class ScriptedApi:
    """Plays lists (each a list of pages) and watches (each a list of events or faults) in order,
    then stands still."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.versions: list[str] = []
        self.done = asyncio.Event()

    async def pages(self, path: str, params: Any) -> AsyncIterator[dict[str, Any]]:
        assert (path, params) == ("/things", {})
        for page in self.lists.pop(0):
            if isinstance(page, Exception):
                raise page
            yield {"metadata": {"resourceVersion": "10"}, "items": page}

    async def watch(self, path: str, params: Any, version: str) -> AsyncIterator[dict[str, Any]]:
        self.versions.append(version)
        if not self.watches:
            self.done.set()
            await asyncio.Event().wait()
        for one in self.watches.pop(0):
            if isinstance(one, Exception):
                raise one
            yield one


async def follow(api: ScriptedApi) -> Reflector[str]:
    """Run until the script is over; the waits between tries are loop time."""
    found: Reflector[str] = Reflector(
        api,  # type: ignore[arg-type]
        "/things",
        lambda body: body["kept"] or None,
    )
    task = asyncio.create_task(found.run())
    await asyncio.wait_for(api.done.wait(), 600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


pytestmark = pytest.mark.looptime


async def test_pages_and_events_make_the_cache() -> None:
    api = ScriptedApi(
        [[[item("a", 1)], [item("b", 2), item("unkept", 3, "")]]],
        [
            [
                event("ADDED", "c", 11),
                event("MODIFIED", "a", 12, "y"),
                event("DELETED", "b", 13),
                event("MODIFIED", "c", 14, ""),
                event("BOOKMARK", "", 20),
            ]
        ],
    )
    found = await follow(api)
    assert found.items == {("ns", "a"): "y"}
    assert found.synced.is_set()
    assert api.versions == ["10", "20"]


async def test_a_version_that_is_too_old_means_a_new_list_into_the_same_mapping() -> None:
    api = ScriptedApi([[[item("a", 1)]], [[item("b", 2)]]], [[Expired(410, "Expired", "too old")]])
    found: Reflector[str] = Reflector(
        api,  # type: ignore[arg-type]
        "/things",
        lambda body: str(body["kept"]),
    )
    held = found.items
    task = asyncio.create_task(found.run())
    await asyncio.wait_for(api.done.wait(), 600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert held == {("ns", "b"): "x"}
    assert api.versions == ["10", "10"]


async def test_what_was_seen_is_kept_while_the_server_is_away() -> None:
    away = Unreachable("away")
    api = ScriptedApi(
        [[away], [away], [[item("a", 1)]]], [[away], [event("ADDED", "b", 12), away], [away]]
    )
    found = await follow(api)
    assert found.items == {("ns", "a"): "x", ("ns", "b"): "x"}
    assert api.versions == ["10", "10", "12", "12"], "it goes on where it was, without a list"


async def test_a_server_that_never_knows_the_version_is_listed_anew_in_the_end() -> None:
    """One whose data were restored from a backup says only that it is too busy."""
    busy = Busy("504 Timeout: Too large resource version", 0.0)
    api = ScriptedApi([[[item("a", 1)]], [[item("b", 2)]]], [[busy]] * RESUMES_MAX)
    found = await follow(api)
    assert found.items == {("ns", "b"): "x"}


async def test_a_server_that_asks_for_time_is_given_it() -> None:
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    api = ScriptedApi([[[item("a", 1)]]], [[Busy("429 TooManyRequests: later", 40.0)]])
    await follow(api)
    assert 40.0 <= loop.time() - before_s <= 60.0
