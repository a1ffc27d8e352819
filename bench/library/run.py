"""Measures one scenario with torch, and prints one line of JSON.

    PYTHONPATH=sidecar:. python -m bench.library.run --scenario 32k_x4 --scale 32

--scale 1 measures it at full size, with the shape of an 8B model; meant for a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch

from bench.library.limits import Computing, Copying, Reading, seconds_for
from bench.library.options import context_of, parser
from bench.library.scenarios import DEVICE_PART, MIB, Scenario, Shape
from bench.timing import Contestant, interleaved, median
from onggi_library.context.context import TieredContext
from onggi_library.context.report import Flow, Tiers
from onggi_library.in_process import InProcessAgent

CHUNK: Final = 2048
"""Tokens appended at a time, as a prefill in chunks does."""
WARM_UP: Final = 10
TOKENS: Final = 15
EXTENT: Final = 16 * MIB
SCRATCH: Final = "ONGGI_BENCH_SCRATCH"
"""Where the disk tier goes; the folder for temporary files if it is not set."""


def main() -> None:
    scenario, shape = context_of(parser("one context that does not fit").parse_args())
    with tempfile.TemporaryDirectory(prefix="onggi-bench-", dir=os.environ.get(SCRATCH)) as folder:
        print(json.dumps(measure(scenario, shape, Path(folder))), flush=True)


def measure(scenario: Scenario, shape: Shape, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))  # one core brings pieces
    whole = scenario.context_bytes(shape)
    room = (whole + whole // 4) // EXTENT * EXTENT + 4 * EXTENT
    tiers: dict[str, Any] = {"memory": room}
    if scenario.on_disk:
        tiers = {"memory": max(4 * EXTENT, whole // 8 // EXTENT * EXTENT)}
        tiers |= {"disk": room, "disk_path": folder / "tier"}
    with ExitStack() as stack:
        agent = InProcessAgent(extent=EXTENT, policy="lru", **tiers)
        stack.callback(agent.close)
        context = TieredContext(
            agent.socket,
            layers=shape.layers,
            device_bytes=whole // DEVICE_PART,
            sinks=scenario.sinks,
            recent=scenario.recent,
        )
        stack.enter_context(context)
        run = _Run(scenario, shape, context)
        prefill_s = run.prefill()
        limits = run.limits(folder, stack)
        times = interleaved([run.token, *limits.values()], rounds=TOKENS, warm_up=WARM_UP)
        return run.seen(dict(zip(("token", *limits), times, strict=True))) | {
            "context_mib": whole / MIB,
            "prefill_s": prefill_s,
        }


class _Run:
    def __init__(self, scenario: Scenario, shape: Shape, context: TieredContext) -> None:
        self._scenario = scenario
        self._shape = shape
        self._context = context
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._before: tuple[Flow, Tiers] | None = None
        self._tokens = 0

    def prefill(self) -> float:
        """Seconds of appending alone."""
        took_s = 0.0
        for done in range(0, self._scenario.tokens, CHUNK):
            for layer in range(self._shape.layers):
                chunk = self._noise(min(CHUNK, self._scenario.tokens - done))
                begin_s = time.perf_counter()
                self._context.append(layer, *chunk)
                self._end()
                took_s += time.perf_counter() - begin_s
        return took_s

    def limits(self, folder: Path, stack: ExitStack) -> dict[str, Contestant]:
        found: dict[str, Contestant] = {"copy": Copying(self._device)}
        if self._scenario.on_disk:
            reading = Reading(folder)
            stack.callback(reading.close)
            found["disk"] = reading
        with contextlib.suppress(RuntimeError):  # torch's word for no memory
            found["plain"] = Computing(self._scenario, self._shape, self._device)
        return found

    def token(self, number: int) -> float:
        """One token's attention, through all layers; its seconds."""
        if number == WARM_UP:
            self._before = self._context.report().flow, self._context.tiers()
        shape = self._shape
        keys, values = self._noise(1)
        queries = keys.repeat_interleave(shape.heads // shape.kv_heads, dim=1)
        begin_s = time.perf_counter()
        for layer in range(shape.layers):
            self._context.append(layer, keys, values)
            self._context.attend(layer, queries)
        self._end()
        return time.perf_counter() - begin_s

    def seen(self, times: dict[str, list[float]]) -> dict[str, Any]:
        assert self._before is not None, "it is set with the first token that counts"
        report, tiers = self._context.report(), self._context.tiers()
        before, tiers_before = self._before
        after = report.flow
        brought = (after.brought_bytes - before.brought_bytes) / TOKENS
        read = (tiers.read_bytes - tiers_before.read_bytes) / TOKENS
        busy, waited = after.busy_s - before.busy_s, after.waited_s - before.waited_s
        return {
            "token_s": median(times["token"]),
            "plain_s": median(times["plain"]) if "plain" in times else None,
            "copy_s": seconds_for(brought, times["copy"], median),
            "disk_s": seconds_for(read, times["disk"], median) if "disk" in times else None,
            "hidden": max(0.0, 1.0 - waited / busy) if busy else 1.0,
            "budget_mib": report.device_budget_bytes / MIB,
            "device_mib": report.device_bytes_peak / MIB,
            "host_mib": tiers.host_bytes / MIB,
            "disk_mib": tiers.disk_bytes / MIB,
            "brought_mib": brought / MIB,
            "read_mib": read / MIB,
            "queue_mib": report.queue_bytes_peak / MIB,
            "sureness": report.sureness,
            "device": self._device,
        }

    def _noise(self, count: int) -> tuple[Any, Any]:
        shape = self._shape
        size = (self._scenario.batch, shape.kv_heads, count, shape.head_size)
        kind = {"dtype": getattr(torch, shape.dtype), "device": self._device}
        return torch.randn(size, **kind), torch.randn(size, **kind)

    def _end(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
