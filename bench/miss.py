"""What Onggi costs an engine when nothing hits: the same engine with and without it, by turns.

Run with an interpreter that has vLLM, the client on PYTHONPATH and an agent behind --socket:

    PYTHONPATH=sidecar:. python -m bench.miss --socket /run/onggi/agent.sock --model FOLDER

One engine in one process. Its connector is Onggi's in one half of the turns and answers "nothing"
at once in the other half, which is an always-miss connector; so both halves have the same memory,
the same threads and the same noise. Prompts are random and never come twice: all is looked up,
missed, computed and (with Onggi) stored. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

NOTHING: dict[str, Callable[[], Any]] = {
    "handle_preemptions": lambda: None,
    "start_load_kv": lambda: None,
    "wait_for_layer_load": lambda: None,
    "wait_for_save": lambda: None,
    "get_finished": lambda: (None, None),
    "get_block_ids_with_load_errors": set,
    "build_connector_worker_meta": lambda: None,
    "on_new_request": lambda: None,
    "get_num_new_matched_tokens": lambda: (0, False),
    "update_state_after_alloc": lambda: None,
    "get_external_cache_hit_sources": dict,
    "request_finished": lambda: (False, None),
    "request_finished_all_groups": lambda: (False, None),
    "update_connector_output": lambda: None,
    "get_kv_connector_stats": lambda: None,
}
"""The hooks of an always-miss connector. build_connector_meta is made in switchable()."""


SETTINGS: dict[str, str] = {
    # vLLM keeps a core for a connector where it places its threads itself
    "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) - 1)),
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_PLUGINS": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Of the engine's process, where they are not set already."""


class Switch:
    """Whether the turn is Onggi's."""

    on = True
    hooks_s = 0.0
    """Time spent in Onggi's hooks."""


def switchable() -> type:
    """OnggiConnector, whose hooks look at the switch first."""
    from onggi.connectors.vllm.carried import OnggiStep
    from onggi.connectors.vllm.connector import OnggiConnector
    from onggi.connectors.vllm.metadata import StepPlan

    answers = {**NOTHING, "build_connector_meta": lambda: OnggiStep(StepPlan())}

    def hook(name: str, nothing: Callable[[], Any]) -> Callable[..., Any]:
        def switched(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not Switch.on:
                return nothing()
            began = time.perf_counter()
            try:
                return getattr(OnggiConnector, name)(self, *args, **kwargs)
            finally:
                Switch.hooks_s += time.perf_counter() - began

        return switched

    hooks = {name: hook(name, nothing) for name, nothing in answers.items()}
    return type("SwitchedConnector", (OnggiConnector,), hooks)


def __getattr__(name: str) -> Any:
    """vLLM imports this file by its module name and asks for the connector."""
    if name == "SwitchedConnector":
        return switchable()
    raise AttributeError(name)


def prompt(rng: random.Random, tokens: int) -> dict[str, Any]:
    return {"prompt_token_ids": [rng.randrange(500) for _ in range(tokens)]}


def engine(options: argparse.Namespace, connector: str, module: str) -> Any:
    """One engine in this process, with a connector of this name and agent `options.socket`."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    cut: dict[str, Any] = {}
    if options.layers:  # the folder's weights are those of all its layers
        cut = {"hf_overrides": {"num_hidden_layers": options.layers}, "load_format": "dummy"}
    return LLM(
        **cut,
        model=options.model,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        block_size=options.block,
        max_model_len=2048,
        max_num_seqs=8,
        enforce_eager=True,
        num_gpu_blocks_override=options.blocks,
        kv_transfer_config={
            "kv_connector": connector,
            "kv_connector_module_path": module,
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": options.socket},
        },
    )


def measure(llm: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Pairs of turns, with and without, in changing order: a machine that slows down for a second
    then slows both of a pair."""
    from vllm import SamplingParams

    rng = random.Random(options.seed)

    def took(count: int, new_tokens: int) -> float:
        sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        prompts = [prompt(rng, options.tokens) for _ in range(count)]
        began = time.perf_counter()
        llm.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - began

    def pairs(rounds: int, count: int, new_tokens: int) -> list[tuple[float, float, float]]:
        """(with, without, in the hooks) for each round; the first one warms up."""
        found = []
        for number in range(rounds + 1):
            seconds = {}
            for on in (number % 2 == 0, number % 2 == 1):
                Switch.on, Switch.hooks_s = on, 0.0
                seconds[on] = took(count, new_tokens)
                if on:
                    hooks_s = Switch.hooks_s
                    time.sleep(options.rest)  # the last blocks are saved beside nobody's turn
                    took(1, 1)  # a step in which those saves are reported
            found.append((seconds[True], seconds[False], hooks_s))
        return found[1:]

    batches = pairs(options.rounds, 8, options.new_tokens) if options.rounds else []
    singles = pairs(options.singles, 1, 1) if options.singles else []
    return {
        "ratio": middle([without / on for on, without, _ in batches]),
        "extra_ms": middle([(on - without) * 1e3 for on, without, _ in singles]),
        "hooks_ms": middle([hooks_s * 1e3 for _, _, hooks_s in singles])[:1],
        "request_ms": middle([without * 1e3 for _, without, _ in singles])[:1],
    }


def middle(values: list[float]) -> list[float]:
    """The median and its standard error, of many that are about normally distributed in the
    middle: from the quartiles, so that a few wild ones do not count. Nothing of fewer than two."""
    if len(values) < 2:
        return []
    low, median, high = statistics.quantiles(values, n=4)
    return [median, 1.2533 * (high - low) / 1.349 / len(values) ** 0.5]


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of Onggi when nothing hits")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--model", required=True, help="a folder; 500 token ids or more")
    parser.add_argument("--layers", type=int, default=0, help="of the model; 0: all it has")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of batches")
    parser.add_argument("--singles", type=int, default=40, help="pairs of single requests")
    parser.add_argument("--tokens", type=int, default=512, help="of a prompt")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=400)
    parser.add_argument("--rest", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    sys.modules["bench.miss"] = sys.modules["__main__"]  # the class must see this file's switch
    llm = engine(options, "SwitchedConnector", "bench.miss")
    print(json.dumps(measure(llm, options)), flush=True)
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
