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
from bench.library.scenarios import (
    DEVICE_PART,
    QUICK_SCALE,
    SCALE,
    SCENARIOS,
    Scenario,
    scaled,
)
from bench.machine import ROOT
from bench.peers.venvs import python_of
from bench.sizes import Sizes

COMMAND: Final = "python -m bench library"
CHILD_S: Final = 1800.0
PLAIN: Final = "all of it on the device"
STOCK: Final = "without Onggi within the budget"
COPY: Final = "a copy of what was brought"
DISK: Final = "reading what came from disk"
_LIMITS: Final = {PLAIN: "plain_s", COPY: "copy_s", DISK: "disk_s"}
_MIB_ROWS: Final = {
    "context_mib": "needed-without-onggi",
    "budget_mib": "device-budget",
    "device_mib": "device-used",
    "host_mib": "host",
    "disk_mib": "disk",
    "brought_mib": "brought-a-token",
    "read_mib": "read-from-disk-a-token",
    "queue_mib": "asked-for-ahead",
}


def libraries(sizes: Sizes) -> list[Entry]:
    scale = sizes.library_scale or (QUICK_SCALE if sizes.quick else SCALE)
    return [entry(scenario, scale, _measured(scenario, scale)) for scenario in SCENARIOS]


def entry(scenario: Scenario, scale: int, seen: dict[str, Any]) -> Entry:
    """Seconds a token, and what lay and moved where."""
    name = f"library_{scenario.name}"
    limits = {words: seen[field] for words, field in _LIMITS.items() if seen[field] is not None}
    absent = {STOCK: _stock_said(seen)}
    if seen["plain_s"] is None:
        absent[PLAIN] = "it does not fit on this device"
    rows = [Row(f"{name}/{words}", seen[field], Unit.MIB) for field, words in _MIB_ROWS.items()]
    return Entry(
        Row(name, seen["token_s"], Unit.SECONDS, limits, absent),
        (),
        COMMAND,
        _how(scale, seen["device"]),
        (
            *rows,
            Row(f"{name}/transfer-hidden", seen["hidden"], Unit.PART),
            Row(f"{name}/prefill", seen["prefill_s"], Unit.SECONDS),
        ),
    )


def _stock_said(seen: dict[str, Any]) -> str:
    within, whole = seen["stock_within"], seen["stock_whole"]
    needed = f"of {seen['context_mib']:.0f} MiB"
    control = "with all of it the same run ends well" if whole["fits"] else "nor does all of it"
    if within["fits"]:
        return f"it fits: {within['held_mib']:.0f} {needed} within {seen['budget_mib']:.0f} MiB"
    return (
        f"it does not fit: tried with {seen['budget_mib']:.0f} MiB, memory ended with "
        f"{within['layers']} layers, {within['held_mib']:.0f} {needed}; {control}"
    )


def _how(scale: int, device: str) -> str:
    shape = scaled(SCENARIOS[0], scale)[1]
    fewer = scale // SCALE
    size = f"1/{scale} of the full size in bytes" if scale > 1 else "at full size"
    tokens = "as many tokens as the name says" if fewer < 2 else f"1/{fewer} of the tokens"
    return (
        f"TieredContext over an agent in the same process, {size}: {tokens}, {shape.said}, on"
        f" {device}. The device's budget is 1/{DEVICE_PART} of the context. Torch has all cores but"
        " the one that brings pieces. Random keys, values and queries; one token's attention"
        " through all layers and nothing else of a model, so there is less to hide the transfer"
        " behind than in one. Median of 15 tokens after 10, in turn with its limits: the same"
        " attention with all of it on the device; a copy of as many bytes as a token brought, by"
        " one thread; O_DIRECT reads of as many as came from disk, by as many threads as the"
        " agent has. Without Onggi: a process whose memory is limited to the budget, and as control"
        " one that may have the whole context, fill tensors of just that size and compute a token."
        " Hidden: the part of the bringing in which computing did not wait. Full size:"
        f" `{COMMAND} --library-scale 1`, on a GPU."
    )


def _measured(scenario: Scenario, scale: int) -> dict[str, Any]:
    """Raises ChildFailed."""
    context, shape = scaled(scenario, scale)
    whole = context.context_bytes(shape)
    return child("run", scenario, scale) | {
        "stock_within": child("stock", scenario, scale, whole // DEVICE_PART),
        "stock_whole": child("stock", scenario, scale, whole),
    }


def child(module: str, scenario: Scenario, scale: int, nbytes: int = 0) -> dict[str, Any]:
    """In a process whose memory is its own. Raises ChildFailed."""
    here = importlib.util.find_spec("torch") is not None
    python = sys.executable if here else str(python_of("engine"))
    command = [python, "-m", f"bench.library.{module}"]
    command += ["--scenario", scenario.name, "--scale", str(scale)]
    command += ["--bytes", str(nbytes)] if nbytes else []
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
