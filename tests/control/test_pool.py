"""A pool's object as a value: everything is read, and what cannot be is told by name."""

from typing import Any

import pytest

from onggi_operator.durations import duration_s
from onggi_operator.pool import EngineKind, PoolUnreadable, read_pool


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h0m1s", 3601), ("30s1m", 90)],
)
def test_a_time_is_the_sum_of_its_parts(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1.5h", "-5s", "5 m", "1d", "5m ", "\u0665m"])
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 30s, 5m or 1h30m"):
        duration_s(text)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("vLLM", EngineKind.VLLM), ("vllm", EngineKind.VLLM), ("SGLang", EngineKind.SGLANG)],
)
def test_an_engine_has_one_kind_however_it_is_spelt(
    kit: Any, kind: str, expected: EngineKind
) -> None:
    engine = {"kind": kind, "configure": "Auto"}
    assert read_pool(kit.body(spec={"engine": engine})).engine.kind is expected


@pytest.mark.parametrize("field", ["mode", "tiers", "injection"])
def test_what_every_schema_has_and_is_missing_is_named(kit: Any, field: str) -> None:
    body = kit.body()
    del body["spec"][field]
    with pytest.raises(PoolUnreadable, match=r"KVCachePool chat: the field '\w+' is missing"):
        read_pool(body)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mode": "Turbo"}, "'Turbo' is not a valid Mode"),
        ({"engine": {"kind": "tgi", "configure": "Auto"}}, "'tgi' is not a valid EngineKind"),
        ({"tiers": [{"type": "Memory", "memory": {"max": "1GB", "hugepages": "Auto"}}]}, "1GB"),
        ({"lifecycle": {"rampUp": "soon", "drain": {"deadline": "1s"}}}, "'soon' is not a time"),
    ],
)
def test_a_value_of_a_later_version_is_named(kit: Any, spec: Any, problem: str) -> None:
    with pytest.raises(PoolUnreadable, match="KVCachePool chat: ") as told:
        read_pool(kit.body(spec=spec))
    assert problem in str(told.value)


def test_a_status_that_nobody_expects_does_not_make_a_pool_unreadable(kit: Any) -> None:
    nodes = [{"node": "n1", "folders": 2, "agents": 1}, {"node": "n2", "folders": 1, "agents": 1}]
    assert read_pool(kit.body(status={"nodes": nodes})).warm_nodes == ("n1",)
    assert read_pool(kit.body(status=None)).warm_nodes == ()
