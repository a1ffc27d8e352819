"""What share of a public trace's blocks each policy would have found, by the size of the tier.

The trace is not part of the repository: ONGGI_TRACE names it, or it lies in a folder `traces`
beside one of the folders above this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench.entries import Against, AtLeastPeerLess, Entry, NotHere, Row, Target, Unit
from bench.machine import ROOT
from bench.sizes import Sizes

TRACE: Final = "mooncake_conversation.jsonl"
ADAPTIVE: Final = "adaptive"
LIMIT: Final = "belady"
REPLAY_S: Final = 900.0
MARGIN: Final = 0.01
"""How far adaptive may be under the best fixed policy at a size: a point."""
QUICK_FLAGS: Final = ("--sizes", "0.94M", "--policies", "adaptive,lru,arc")
HOW: Final = (
    "`onggi replay` of a public conversation trace, 512-token blocks: the adaptive policy's hit "
    "rate with room for so many tokens; best_fixed: the best policy at that size that never "
    "changes; belady: who knows the future. replay_sum: over all sizes, against the best fixed "
    "policy's sum."
)


def trace() -> Path:
    """Raises NotHere."""
    if named := os.environ.get("ONGGI_TRACE"):
        if Path(named).is_file():
            return Path(named)
        raise NotHere(f"ONGGI_TRACE names {named}, which is no file")
    for folder in ROOT.parents:
        for found in sorted(folder.glob(f"*/traces/{TRACE}")):
            return found
    raise NotHere(f"no {TRACE}; name one in ONGGI_TRACE")


def replays(sizes: Sizes) -> list[Entry]:
    """replay_0.94m and so on, and replay_sum. Raises NotHere, RuntimeError."""
    command = [sys.executable, "-m", "onggi_sidecar", "replay", str(trace()), "--json"]
    command += QUICK_FLAGS if sizes.quick else ()
    done = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_S)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-600:])
    return entries_of(json.loads(done.stdout))


def entries_of(report: dict[str, Any]) -> list[Entry]:
    """From what `onggi replay --json` prints."""
    rates: dict[str, list[float]] = report["hit_rate"]
    entries = [
        _entry(
            f"replay_{tokens / 1e6:g}m",
            {name: by_size[position] for name, by_size in rates.items()},
            AtLeastPeerLess("best_fixed", MARGIN),
        )
        for position, tokens in enumerate(report["capacity_tokens"])
    ]
    sums = {name: sum(by_size) for name, by_size in rates.items()}
    return [*entries, _entry("replay_sum", sums, Against("best_fixed", 1.0))]


def _entry(name: str, rates: dict[str, float], target: Target) -> Entry:
    peers = {policy: rate for policy, rate in rates.items() if policy != ADAPTIVE}
    best = max(rate for policy, rate in peers.items() if policy != LIMIT)
    row = Row(name, rates[ADAPTIVE], Unit.SHARE, {"best_fixed": best, **peers})
    return Entry(row, (target,), "python -m bench replay", HOW)
