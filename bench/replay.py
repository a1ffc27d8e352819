"""The adaptive policy against the best fixed one, at five sizes, on a public trace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.entries import Against, AtLeastPeerLess, Entry, Row, Unit
from bench.machine import ROOT
from bench.sizes import Sizes
from onggi_core.policy.names import PolicyName
from onggi_core.replay.report import COMBINED, LIMIT, Report
from onggi_sidecar.replay_command import BLOCK_TOKENS, POLICIES, report_of, sizes_of

TRACE: Final = "mooncake_conversation.jsonl"
SIZES: Final = "0.94M,1.9M,4.7M,9.4M,18.7M"
COMMAND: Final = "python -m bench replay"
MARGIN: Final = 0.01
HOW: Final = (
    "Share of the blocks asked for that lie in the longest run of their prompt's first blocks in "
    "the tier; the agent's own policies over an hour of a chat service's requests. best_fixed: of "
    "the fixed policies the best one at this size, and by name below."
)
SUM_HOW: Final = (
    "The five hit rates added up. best_fixed: of the policies of one rule each (lru, arc, s3-fifo, "
    "second-sight, hazard) the best one in the sum; those that combine two are peers of their own."
)


class NoTrace(Exception):
    """The public trace is not on this machine."""


def replays(sizes: Sizes) -> list[Entry]:
    """A figure a size, and their sum. Raises NoTrace where the trace is missing."""
    wanted = sizes_of(SIZES, BLOCK_TOKENS)
    tokens = wanted[:1] if sizes.quick else wanted
    report = report_of(trace(), tokens, (LIMIT, *POLICIES), BLOCK_TOKENS, os.cpu_count() or 1)
    return [*[_at(report, position) for position in range(len(tokens))], _sum(report)]


def trace() -> Path:
    folders = [found for each in ROOT.parents for found in sorted(each.glob("*/traces"))]
    for folder in (Path(os.environ.get("ONGGI_TRACES", "/nowhere")), *folders):
        if (folder / TRACE).exists():
            return folder / TRACE
    raise NoTrace(f"{TRACE} is in no folder */traces beside the repository, nor in ONGGI_TRACES")


def _at(report: Report, position: int) -> Entry:
    name = f"replay_{report.tokens[position] / 1e6:g}m".replace(".", "_")
    rates = {each: row[position] for each, row in report.rates.items()}
    adaptive = rates.pop(PolicyName.ADAPTIVE.value)
    peers = {"best_fixed": report.best_fixed(position)[1], **rates}
    row = Row(name, adaptive, Unit.SHARE, peers)
    return Entry(row, (AtLeastPeerLess("best_fixed", MARGIN),), COMMAND, HOW)


def _sum(report: Report) -> Entry:
    sums = {name: sum(rates) for name, rates in report.rates.items()}
    adaptive = sums.pop(PolicyName.ADAPTIVE.value)
    one_rule = [total for name, total in sums.items() if name not in {LIMIT, *COMBINED}]
    row = Row("replay_sum", adaptive, Unit.SHARE, {"best_fixed": max(one_rule), **sums})
    return Entry(row, (Against("best_fixed", 1.0),), COMMAND, SUM_HOW)
