"""Pools come from the cache, else from one bounded look, else the pod is skipped and told why."""

import asyncio
from typing import Any

import pytest

from onggi_operator.inject.outcome import Skipped
from onggi_operator.kube.client import ApiError, NotFound, Unreachable
from onggi_operator.pool import Pool
from onggi_operator.webhook.sources import LOOKS_MAX, Sources, project_pool


class OnePool:
    """Answers a look with what it was made with."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, path: str, *, timeout_s: float) -> Any:
        assert path == "/apis/onggi.dev/v1alpha1/namespaces/team-a/kvcachepools/chat"
        assert timeout_s <= 1
        self.asked += 1
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def sources(api: OnePool) -> Sources:
    return Sources(api)  # type: ignore[arg-type]


async def test_a_cached_pool_needs_no_call(status_kit: Any) -> None:
    api = OnePool(Unreachable("away"))
    found = sources(api)
    found.pools.items["team-a", "chat"] = project_pool(status_kit.body())
    pool = await found.pool("team-a", "chat")
    assert isinstance(pool, Pool)
    assert api.asked == 0


async def test_a_pool_that_is_too_new_for_the_cache_is_looked_up(status_kit: Any) -> None:
    pool = await sources(OnePool(status_kit.body())).pool("team-a", "chat")
    assert isinstance(pool, Pool)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NotFound(404, "NotFound", "none"), "UnknownPool"),
        (Unreachable("TimeoutError"), "ApiUnreachable"),
        (ApiError(403, "Forbidden", "no"), "ApiUnreachable"),
    ],
)
async def test_what_cannot_be_had_is_a_skip(fault: Exception, reason: str) -> None:
    answer = await sources(OnePool(fault)).pool("team-a", "chat")
    assert isinstance(answer, Skipped)
    assert answer.reason.value == reason


async def test_a_pool_of_a_later_version_is_a_skip_with_what_is_strange(status_kit: Any) -> None:
    api = OnePool(status_kit.body(spec={"mode": "Turbo"}))
    answer = await sources(api).pool("team-a", "chat")
    assert answer == Skipped(
        answer.reason,  # type: ignore[union-attr]
        "KVCachePool chat: 'Turbo' is not a valid Mode",
    )


async def test_a_thousand_pods_of_an_unknown_pool_are_not_a_thousand_calls() -> None:
    api = OnePool(NotFound(404, "NotFound", "none"))
    api.gate.clear()
    found = sources(api)
    asked = [asyncio.create_task(found.pool("team-a", "chat")) for _ in range(1000)]
    for task in asked[LOOKS_MAX:]:
        await task
    assert api.asked == LOOKS_MAX
    api.gate.set()
    answers = await asyncio.gather(*asked)
    assert {answer.reason.value for answer in answers if isinstance(answer, Skipped)} == {
        "UnknownPool",
        "ApiUnreachable",
    }
