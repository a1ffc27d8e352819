"""What a token of a context that does not fit costs, and what of its transfer computing hides."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any, Final

from bench.children import ChildFailed
from bench.entries import Entry, Row, Unit
from bench.library.scenarios import DEVICE_PART, QUICK_SCALE, SCALE, SCENARIOS, Scenario
from bench.machine import ROOT
from bench.peers.venvs import python_of
from bench.sizes import Sizes

COMMAND: Final = "python -m bench library"
CHILD_S: Final = 1800.0
PLAIN: Final = "all of it on the device"
_MIB_ROWS: Final = {
    "context_mib": "needed-without-onggi",
    "budget_mib": "device-budget",
    "device_mib": "device-used",
    "host_mib": "host",
    "disk_mib": "disk",
    "brought_mib": "brought-a-token",
}


def libraries(sizes: Sizes) -> list[Entry]:
    scale = sizes.library_scale or (QUICK_SCALE if sizes.quick else SCALE)
    return [entry(scenario, scale, _run(scenario, scale)) for scenario in SCENARIOS]


def entry(scenario: Scenario, scale: int, seen: dict[str, Any]) -> Entry:
    """Seconds a token, and what lay and moved where."""
    name = f"library_{scenario.name}"
    plain = seen["plain_s"]
    rows = [Row(f"{name}/{words}", seen[field], Unit.MIB) for field, words in _MIB_ROWS.items()]
    return Entry(
        Row(
            name,
            seen["token_s"],
            Unit.SECONDS,
            {} if plain is None else {PLAIN: plain},
            {PLAIN: "it does not fit on this device"} if plain is None else {},
        ),
        (),
        COMMAND,
        _how(scale, seen["device"]),
        (
            *rows,
            Row(f"{name}/transfer-hidden", seen["hidden"], Unit.PART),
            Row(f"{name}/prefill", seen["prefill_s"], Unit.SECONDS),
        ),
    )


def _how(scale: int, device: str) -> str:
    shape = (
        "32 layers of 8 key heads of 128 in bfloat16"
        if scale == 1
        else ("4 layers of 2 key heads of 64 in float32")
    )
    size = "at full size" if scale == 1 else f"with 1/{scale} of the tokens that the name says"
    return (
        f"TieredContext over an agent in the same process, {size}, {shape}, on {device}. The"
        f" device's budget is 1/{DEVICE_PART} of the context, so without tiers it does not fit."
        " Torch has all cores but the one that brings pieces. Random keys, values and queries; one"
        " token's attention through all layers and nothing else of a model, so there is less to"
        " hide the transfer behind than in one. Median of 15 tokens after 10. Hidden: the part of"
        " the bringing in which computing did not wait. Full size:"
        " `python -m bench library --library-scale 1`, on a GPU."
    )


def _run(scenario: Scenario, scale: int) -> dict[str, Any]:
    """In a child, whose memory is its own. Raises ChildFailed."""
    here = importlib.util.find_spec("torch") is not None
    python = sys.executable if here else str(python_of("engine"))
    command = [python, "-m", "bench.library.run"]
    command += ["--scenario", scenario.name, "--scale", str(scale)]
    paths = [str(ROOT / "sidecar"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
        capture_output=True,
        text=True,
        timeout=CHILD_S,
    )
    if ended.returncode:
        raise ChildFailed(ended.stderr[-2000:])
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
