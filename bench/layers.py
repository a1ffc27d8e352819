"""Time to the first token of a prompt that the agent has: loads whole, and layer by layer.

    PYTHONPATH=sidecar:. python -m bench.layers --socket /run/onggi/agent.sock --model FOLDER

One engine in one process, all ways by turns: the engine's own prefix cache, a load that is whole
before the forward pass begins, one layer by layer, one shared by two threads before it begins, and
one memmove of as many bytes. OMP_NUM_THREADS says whether the engine leaves a core alone. Prints
one line of JSON: for each way quartile and median in milliseconds.
"""

# ruff: noqa: SLF001 - the way is no setting that changes between two requests: this looks inside

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import time
from typing import Any

from bench.miss import engine

WAYS = ("whole", "layers", "shared")


def set_way(worker: Any, way: str) -> None:
    """Have the connector's worker load in this way from now on."""
    from onggi.connectors.vllm.worker import Worker

    names = {name: number for number, name in enumerate(worker.bench_layers)}
    worker._layers = {} if way == "whole" else names

    def load_shared(plan: Any) -> None:
        Worker.load(worker, plan)
        worker._waited = set(worker._layers)  # nobody needs to ask for what is there
        worker._end_loads()

    worker.__dict__.pop("load", None)
    if way == "shared":
        worker.load = load_shared


def measure(llm: Any, options: argparse.Namespace) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    worker = get_kv_transfer_group()._worker
    worker.bench_layers = worker._copier._pages.layers
    page_bytes = worker._page_bytes
    rng = random.Random(options.seed)
    sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    found: dict[str, list[float]] = {name: [] for name in (*WAYS, "engine", "memcpy")}

    def took(ids: list[int]) -> tuple[float, int]:
        began = time.perf_counter()
        (output,) = llm.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
        return time.perf_counter() - began, output.num_cached_tokens

    prompts = [[rng.randrange(500) for _ in range(options.tokens)] for _ in range(4)]
    for ids in prompts:
        took(ids)
    time.sleep(1.0)
    blocks = (options.tokens - 1) // options.block
    source, target = (ctypes.create_string_buffer(blocks * page_bytes) for _ in range(2))
    for _ in range(options.rounds):
        for ids in prompts:
            for way in rng.sample(WAYS, len(WAYS)):
                set_way(worker, way)
                llm.reset_prefix_cache()
                seconds, cached = took(ids)
                if cached == blocks * options.block:
                    found[way].append(seconds)
            found["engine"].append(took(ids)[0])
            began = time.perf_counter()
            ctypes.memmove(target, source, len(source))
            found["memcpy"].append(time.perf_counter() - began)
    return {
        name: [round(1e3 * part, 2) for part in statistics.quantiles(seconds, n=4)[:2]]
        for name, seconds in found.items()
        if len(seconds) > 1
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="warm first token, whole and by layers")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--model", required=True, help="a folder; 500 token ids or more")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=1900, help="of a prompt")
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    llm = engine(options, "OnggiConnector", "onggi.connectors.vllm")
    print(json.dumps(measure(llm, options)), flush=True)
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
