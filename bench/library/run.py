"""Measures one scenario with torch, and prints one line of JSON.

    PYTHONPATH=sidecar:. python -m bench.library.run --scenario 32k_x4 --scale 4

--scale 1 measures it at full size, with the shape of an 8B model; meant for a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch

from bench.library.scenarios import DEVICE_PART, LARGE, MIB, SCENARIOS, SMALL, Scenario, Shape
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.tiles import Asking, contribution
from onggi_library.attention.visible import Visibility
from onggi_library.context.context import TieredContext
from onggi_library.in_process import InProcessAgent

CHUNK: Final = 2048
"""Tokens appended at a time, as a prefill in chunks does."""
WARM_UP: Final = 10
TOKENS: Final = 15
EXTENT: Final = 16 * MIB


def main() -> None:
    parser = argparse.ArgumentParser(description="one context that does not fit")
    parser.add_argument("--scenario", required=True, choices=[each.name for each in SCENARIOS])
    parser.add_argument("--scale", type=int, required=True)
    options = parser.parse_args()
    (scenario,) = [each for each in SCENARIOS if each.name == options.scenario]
    shape = LARGE if options.scale == 1 else SMALL
    with tempfile.TemporaryDirectory(prefix="onggi-bench-") as folder:
        print(json.dumps(measure(scenario.scaled(options.scale), shape, Path(folder))), flush=True)


def measure(scenario: Scenario, shape: Shape, folder: Path) -> dict[str, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))  # one core brings pieces
    whole = scenario.context_bytes(shape)
    room = (whole + whole // 4) // EXTENT * EXTENT + 4 * EXTENT
    tiers: dict[str, Any] = {"memory": room}
    if scenario.on_disk:
        tiers = {"memory": max(4 * EXTENT, whole // 8 // EXTENT * EXTENT)}
        tiers |= {"disk": 2 * room, "disk_path": folder}
    agent = InProcessAgent(extent=EXTENT, policy="lru", **tiers)
    try:
        context = TieredContext(
            agent.socket,
            layers=shape.layers,
            device_bytes=whole // DEVICE_PART,
            sinks=scenario.sinks,
            recent=scenario.recent,
        )
        with context:
            return _measure(scenario, shape, context, device, whole)
    finally:
        agent.close()


def _measure(
    scenario: Scenario, shape: Shape, context: TieredContext, device: str, whole: int
) -> dict[str, Any]:
    begun = time.perf_counter()
    for done in range(0, scenario.tokens, CHUNK):
        for layer in range(shape.layers):
            count = min(CHUNK, scenario.tokens - done)
            context.append(layer, *_noise(scenario, shape, count, device))
    prefill_s = time.perf_counter() - begun
    for _ in range(WARM_UP):
        _token(scenario, shape, context, device)
    before = context.report().flow
    times = [_token(scenario, shape, context, device) for _ in range(TOKENS)]
    report = context.report()
    after = report.flow
    assert context._held is not None  # noqa: SLF001  the agent's own figures are not in a report
    tiers = context._held.store.stats()  # noqa: SLF001
    busy = after.busy_s - before.busy_s
    waited = after.waited_s - before.waited_s
    return {
        "tokens": scenario.tokens,
        "context_mib": whole / MIB,
        "budget_mib": report.device_budget_bytes / MIB,
        "device_mib": report.device_bytes_peak / MIB,
        "host_mib": tiers["host_used_bytes"] / MIB,
        "disk_mib": tiers["disk_used_bytes"] / MIB,
        "brought_mib": (after.brought_bytes - before.brought_bytes) / TOKENS / MIB,
        "token_s": statistics.median(times),
        "plain_s": _plain(scenario, shape, device),
        "prefill_s": prefill_s,
        "hidden": max(0.0, 1.0 - waited / busy) if busy else 1.0,
        "sureness": report.sureness,
        "device": device,
    }


def _noise(scenario: Scenario, shape: Shape, count: int, device: str) -> tuple[Any, Any]:
    size = (scenario.batch, shape.kv_heads, count, shape.head_size)
    kind = {"dtype": getattr(torch, shape.dtype), "device": device}
    return torch.randn(size, **kind), torch.randn(size, **kind)


def _token(scenario: Scenario, shape: Shape, context: TieredContext, device: str) -> float:
    """One token's attention, through all layers; its seconds."""
    keys, values = _noise(scenario, shape, 1, device)
    queries = keys.repeat_interleave(shape.heads // shape.kv_heads, dim=1)
    begun = time.perf_counter()
    for layer in range(shape.layers):
        context.append(layer, keys, values)
        context.attend(layer, queries)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _plain(scenario: Scenario, shape: Shape, device: str) -> float | None:
    """The same attention where everything is on the device; None: it does not fit there."""
    try:
        keys, values = _noise(scenario, shape, scenario.tokens, device)
    except RuntimeError:  # torch's word for no memory
        return None
    queries = _noise(scenario, shape, 1, device)[0]
    queries = queries.repeat_interleave(shape.heads // shape.kv_heads, dim=1)
    at = Span(scenario.tokens - 1, 1)
    asking = Asking(queries, at, shape.head_size, shape.head_size**-0.5, Visibility())
    piece = Piece(Span(0, scenario.tokens), keys, values)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(shape.layers):
            contribution(asking, piece)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    main()
