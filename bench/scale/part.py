"""What a controller costs in a cluster of 1,000 nodes and 10,000 agents, and what it asks of the
API server there."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Final

from bench.entries import AtMost, Entry, Row, Unit
from bench.scale.objects import Size
from bench.scale.run import Seen, Window, run
from bench.scale.site import running
from bench.scale.watching import growth_per_s
from bench.sizes import Sizes
from bench.timing import quantile

FULL: Final = Size(nodes=1000, pods=10_000, pools=100)
QUICK: Final = Size(nodes=20, pods=100, pools=5, pod_life_s=500.0)
PLAN_S: Final = 2.0
HEARTBEAT_CORES: Final = 0.5
CALLS_PER_S: Final = 20.0
GROWTH_MIB: Final = 16.0
"""In half an hour: as flat as can be told from a heap's own ups and downs."""

HALF_HOUR_S: Final = 1800.0
COMMAND: Final = "python -m bench scale"


def scales(sizes: Sizes) -> list[Entry]:
    size = QUICK if sizes.quick else FULL
    with (
        tempfile.TemporaryDirectory(prefix="onggi-bench-") as folder,
        running(Path(folder)) as site,
    ):
        seen = asyncio.run(run(site, size, sizes.scale_s, _say))
    return entries(size, sizes.scale_s, seen)


def _say(what: str) -> None:
    print(f"scale: {what}", flush=True)


def entries(size: Size, for_s: float, seen: Seen) -> list[Entry]:
    """Four figures that have a target, and what it takes beside them."""
    windows, how = seen.windows, _how(size, for_s, seen)
    return [
        Entry(
            Row("scale_plan_s", max(w.plan_s for w in windows), Unit.SECONDS),
            (AtMost(PLAN_S),),
            COMMAND,
            how,
            (Row("scale_plan_s/mean", mean(w.plan_s for w in windows), Unit.SECONDS),),
        ),
        Entry(
            Row("scale_heartbeat_cores", _cores(windows), Unit.CORES),
            (AtMost(HEARTBEAT_CORES),),
            COMMAND,
            how,
            _heartbeat_rows(for_s, seen),
        ),
        Entry(
            Row("scale_writes_per_s", _rate(windows), Unit.PER_SECOND),
            (AtMost(CALLS_PER_S),),
            COMMAND,
            how,
            _write_rows(windows),
        ),
        Entry(
            Row("scale_rss_growth_mib", _growth_mib(windows), Unit.MIB),
            (AtMost(GROWTH_MIB),),
            COMMAND,
            how,
        ),
        Entry(
            Row("scale_rss_mib", max(w.rss_mib for w in windows), Unit.MIB),
            (),
            COMMAND,
            how,
            tuple(Row(f"scale_rss_mib/{k}", v, Unit.MIB) for k, v in seen.rss_mib.items()),
        ),
    ]


def _cores(windows: Sequence[Window]) -> float:
    """All that is not planning: heartbeats, reviews of tokens, watches, writes."""
    return mean(w.cores - w.planning_cores for w in windows)


def _heartbeat_rows(for_s: float, seen: Seen) -> tuple[Row, ...]:
    name = "scale_heartbeat_cores"
    planning = mean(w.planning_cores for w in seen.windows)
    answered = seen.outcomes.get("200", 0)
    return (
        Row(f"{name}/planning", planning, Unit.CORES),
        Row(f"{name}/heartbeats", answered / for_s, Unit.PER_SECOND),
        Row(f"{name}/answer-median", quantile(seen.waited_s, 0.5), Unit.SECONDS),
        Row(f"{name}/answer-p99", quantile(seen.waited_s, 0.99), Unit.SECONDS),
    )


def _rate(windows: Sequence[Window]) -> float:
    return mean(sum(w.calls.values()) for w in windows)


def _write_rows(windows: Sequence[Window]) -> tuple[Row, ...]:
    kinds = sorted({kind for w in windows for kind in w.calls})
    name = "scale_writes_per_s"
    busiest = max(sum(w.calls.values()) for w in windows)
    rows = (
        Row(f"{name}/{kind}", mean(w.calls.get(kind, 0.0) for w in windows), Unit.PER_SECOND)
        for kind in kinds
    )
    return (Row(f"{name}/busiest-10-s", busiest, Unit.PER_SECOND), *rows)


def _growth_mib(windows: Sequence[Window]) -> float:
    return growth_per_s([(w.at_s, w.rss_mib) for w in windows]) * HALF_HOUR_S


def _how(size: Size, for_s: float, seen: Seen) -> str:
    lost = {what: count for what, count in seen.outcomes.items() if what != "200"}
    said = ", ".join(f"{count} {what}" for what, count in sorted(lost.items())) or "none"
    return (
        f"The chart's controller, as a process with the chart's rights, at a real API server with"
        f" {size.nodes:,} nodes, {size.pods:,} pods and as many agents in {size.pools} pools, for"
        f" {for_s / 60:.3g} minutes, after every agent was heard ({seen.ready_s:.0f} s) and every"
        f" node written once. Agents hold a TLS connection each, prove themselves by tokens bound"
        f" to their pods, and report as often as they are told; {seen.replaced} pods were replaced"
        f" meanwhile, kubelets reported, workloads and curves changed. API server, controller and"
        f" agents share the machine. Plan: from a round's first node to its last pool, answers to"
        f" agents in between included; the slowest 10 seconds. Cores: processor time of the"
        f" controller without planning, by the clock. Writes: what the API server counted of the"
        f" controller's, reviews of tokens included. Growth: slope of RSS, in half an hour."
        f" Reports that failed: {said}."
    )
