"""What a scrape of the controller tells of pools, and that it tells nothing of pods."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from onggi_core.heartbeat import Lookups, TierBlocks, TierBytes
from onggi_operator.metrics import PoolMetrics
from onggi_operator.plan.status import plan_status


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


def scrape(world: Any) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(PoolMetrics(lambda: world.snapshot(now_s=100), lambda: 100))
    lines = generate_latest(registry).decode().splitlines()
    values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in values}


def test_a_pool_is_told_in_sizes_counters_and_conditions(kit: Any) -> None:
    world = kit.world(kit.pod("one"), kit.pod("two", kit.SKIPPED))
    world.hear(
        kit.beat(
            capacity=TierBytes(8, 16),
            used=TierBytes(4, 2),
            hits=TierBlocks(3, 1),
            lookups=Lookups(1, 6, 2),
            tokens_saved=64,
        ),
        now_s=99,
    )
    (pool,) = world.snapshot(now_s=100)
    status = plan_status(pool, now_s=100, now="2026-01-01T01:00:10Z", node_uids={}).whole()
    world.see_pool(kit.body(status=status))
    found = scrape(world)
    of = 'namespace="team-a",pool="chat"'
    assert {
        state: found[f'onggi_pool_pods{{{of},state="{state}"}}']
        for state in ("matched", "injected", "ready", "skipped", "missed")
    } == {"matched": 2, "injected": 1, "ready": 1, "skipped": 1, "missed": 0}
    assert found[f'onggi_pool_capacity_bytes{{{of},tier="disk"}}'] == 16
    assert found[f'onggi_pool_used_bytes{{{of},tier="host"}}'] == 4
    assert found[f'onggi_pool_hit_blocks_total{{{of},tier="host"}}'] == 3
    assert found[f"onggi_pool_miss_blocks_total{{{of}}}"] == 2
    assert found[f"onggi_pool_tokens_saved_total{{{of}}}"] == 64
    assert {
        kind: found[f'onggi_pool_condition{{{of},type="{kind}"}}']
        for kind in ("Accepted", "Injected", "Ready", "Effective", "Draining")
    } == {"Accepted": 1, "Injected": 0, "Ready": 1, "Effective": 1, "Draining": 0}


def test_before_anybody_has_looked_nothing_is_trouble(kit: Any) -> None:
    pending = [{"type": "Ready", "status": "Unknown", "reason": "Pending"}]
    world = kit.world(pool=kit.body(status={"conditions": pending}))
    assert scrape(world)['onggi_pool_condition{namespace="team-a",pool="chat",type="Ready"}'] == -1


def test_series_do_not_grow_with_pods_and_go_with_their_pool(kit: Any) -> None:
    """Series for each pod or timestamp never went away again (cilium/tetragon#1037,
    kyverno/kyverno#2099)."""
    few, many = (kit.world(*(kit.pod(f"p{i}") for i in range(count))) for count in (1, 200))
    assert scrape(few).keys() == scrape(many).keys()
    assert not any("p1" in name for name in scrape(many))
    many.lose_pool(("team-a", "chat"))
    assert scrape(many) == {}


def test_a_quota_is_told_where_there_is_one(kit: Any) -> None:
    quota = {"hard": {"memoryBytes": 64}, "used": {"memoryBytes": 48}}
    found = scrape(kit.world(pool=kit.body(status={"quota": quota})))
    of = 'namespace="team-a",pool="chat",tier="host"'
    assert found[f"onggi_pool_quota_bytes{{{of}}}"] == 64
    assert found[f"onggi_pool_quota_used_bytes{{{of}}}"] == 48
    assert not [name for name in found if "quota" in name and 'tier="disk"' in name]
    assert not [name for name in scrape(kit.world(pool=kit.body())) if "quota" in name]
