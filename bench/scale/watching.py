"""What is read off the controller, from outside: its process, its metrics, and what the API server
counted of its calls."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from bench.scale.cluster import Cluster
from bench.scale.site import Site

KIB_PER_MIB: Final = 1024
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE", "APPLY"})
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

_LINE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


@dataclass(frozen=True)
class Reading:
    """At one moment. Seconds and counts are since the processes began."""

    at_s: float
    cpu_s: float
    planning_cpu_s: float
    planning_s: float
    rounds: float
    ready: int
    calls: Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """Of a metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


class Watcher:
    """`calls` of a Reading are by kind: what the controller alone calls, since nobody else here
    writes objects of these kinds."""

    def __init__(self, site: Site, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self._site = site
        self._cluster = cluster
        self._session = session

    async def read(self) -> Reading:
        lines = await self.own_metrics()
        calls = await self._calls()
        return Reading(
            at_s=time.monotonic(),
            cpu_s=_cpu_s(self._site.pid),
            planning_cpu_s=total(lines, "onggi_operator_planning_cpu_seconds_total"),
            planning_s=total(lines, "onggi_operator_round_seconds_sum"),
            rounds=total(lines, "onggi_operator_round_seconds_count"),
            ready=int(total(lines, "onggi_pool_pods", state="ready")),
            calls=calls,
        )

    async def own_metrics(self) -> list[Line]:
        async with self._session.get(f"{self._site.health_url}/metrics") as answer:
            return list(parsed(await answer.text()))

    async def pods(self, state: str) -> int:
        """As the controller counts them."""
        lines = await self.own_metrics()
        return int(total(lines, "onggi_pool_pods", state=state))

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self._site.pid}/status").read_text()
        match = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) / KIB_PER_MIB

    async def _calls(self) -> dict[str, float]:
        calls: dict[str, float] = defaultdict(float)
        for line in parsed(await self._cluster.text("/metrics"), only="apiserver_request_total"):
            if kind := _kind(line.labels):
                calls[kind] += line.value
        return dict(calls)


def _kind(labels: Mapping[str, str]) -> str | None:
    """Of a call that only the controller makes; None for another's."""
    if labels.get("verb") not in WRITES:
        return None
    resource = labels.get("resource", "")
    if labels.get("group") == "onggi.dev" or resource in ("events", "tokenreviews", "leases"):
        return resource
    if labels.get("subresource") in ("eviction", "resize"):
        return str(labels["subresource"])
    return None


def parsed(text: str, *, only: str = "") -> Iterable[Line]:
    for line in text.splitlines():
        if line.startswith(only or "onggi") and (match := _LINE.match(line)):
            yield Line(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3]))


def total(lines: Iterable[Line], name: str, **labels: str) -> float:
    return sum(
        line.value
        for line in lines
        if line.name == name and all(line.labels.get(k) == v for k, v in labels.items())
    )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth_per_s(samples: Sequence[tuple[float, float]]) -> float:
    """The slope of a line through samples of (seconds, value), by least squares."""
    count = len(samples)
    if count < 2:
        return 0.0
    middle_s = sum(at_s for at_s, _ in samples) / count
    middle = sum(value for _, value in samples) / count
    spread = sum((at_s - middle_s) ** 2 for at_s, _ in samples)
    return sum((at_s - middle_s) * (value - middle) for at_s, value in samples) / spread
