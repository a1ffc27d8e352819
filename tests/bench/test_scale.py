"""The controller under load, with a cluster so small that it says nothing about time."""

from __future__ import annotations

import asyncio

import pytest
from bench import servers
from bench.scale.objects import Size, place, pools
from bench.scale.part import entries
from bench.scale.run import Seen, run
from bench.scale.site import running
from bench.scale.watching import growth_per_s, parsed, total

from onggi_operator.plan.nodes import STRUCTURE_INTERVAL_S as NODE_WRITES_S
from onggi_operator.plan.writes import STRUCTURE_INTERVAL_S as POOL_WRITES_S

SMALL = Size(nodes=4, pods=20, pools=4, pod_life_s=60.0)
FOR_S = 12.0
ROUNDING = 0.001


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    if reason := servers.load_apiserver().missing():
        pytest.skip(reason)
    with running(tmp_path_factory.mktemp("scale")) as site:
        return asyncio.run(run(site, SMALL, FOR_S, print))


@pytest.mark.cluster
@pytest.mark.timeout(180)  # an API server starts, on a busy machine
def test_every_agent_is_heard_and_reports_go_on_over_the_connections_that_are_there(
    seen: Seen,
) -> None:
    assert seen.windows[-1].ready >= SMALL.pods - 2  # some have just come
    assert seen.replaced >= 2
    assert seen.outcomes["200"] >= SMALL.pods
    assert seen.outcomes.keys() == {"200"}
    assert seen.connections <= seen.replaced  # of those that came; nobody else made one anew


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_the_controller_writes_little_and_asks_about_no_token_twice(seen: Seen) -> None:
    kinds = {kind for window in seen.windows for kind in window.calls}
    assert {"kvcachepools", "kvcachenodes", "tokenreviews"} <= kinds
    counted = {
        kind: sum(w.calls.get(kind, 0.0) * w.seconds for w in seen.windows) for kind in kinds
    }
    watched_s = sum(window.seconds for window in seen.windows)
    assert counted["tokenreviews"] <= seen.replaced + ROUNDING
    assert counted["kvcachenodes"] <= SMALL.nodes * (1 + watched_s / NODE_WRITES_S)
    assert counted["kvcachepools"] <= SMALL.pools * (1 + watched_s / POOL_WRITES_S)


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_there_is_a_figure_for_each_target(seen: Seen) -> None:
    found = {one.row.name: one for one in entries(SMALL, FOR_S, seen)}
    assert {name: len(one.targets) for name, one in found.items()} == {
        "scale_plan_s": 1,
        "scale_heartbeat_cores": 1,
        "scale_writes_per_s": 1,
        "scale_rss_growth_mib": 1,
        "scale_rss_mib": 0,
    }
    assert found["scale_plan_s"].row.value > 0
    assert found["scale_heartbeat_cores"].row.value > 0
    assert f"{seen.replaced} pods were replaced" in found["scale_plan_s"].how


def test_a_cluster_is_spread_evenly() -> None:
    places = [place(SMALL, number) for number in range(SMALL.pods)]
    assert {len([p for p in places if p.node == f"node-{n:04d}"]) for n in range(4)} == {5}
    in_pools = {(p.namespace, p.pool) for p in places}
    assert in_pools == {(space, body["metadata"]["name"]) for space, body in pools(SMALL)}
    assert len({p.name for p in places}) == SMALL.pods


def test_metrics_are_read_with_their_labels() -> None:
    text = '# HELP onggi_a b\nonggi_a{x="1",y="p q"} 2.0\nonggi_a{x="2"} 3\nother 9\nonggi_b 1e3\n'
    lines = list(parsed(text))
    assert total(lines, "onggi_a") == 5
    assert total(lines, "onggi_a", x="1") == 2
    assert total(lines, "onggi_b") == 1000
    assert total(lines, "other") == 0


def test_growth_is_the_slope_and_not_the_last_sample() -> None:
    assert growth_per_s([(0, 10), (10, 20), (20, 30)]) == pytest.approx(1.0)
    assert growth_per_s([(0, 10), (10, 12), (20, 8), (30, 10)]) == pytest.approx(-0.04)
    assert growth_per_s([(0, 10)]) == 0.0
