"""A vLLM engine in a process of its own, driven line by line: JSON in on stdin, JSON out on fd 3.

Run with an interpreter that has vLLM. First line: arguments of LLM. Then a line a command:
{"do": "generate", "prompts": [...], "max_tokens": n}, {"do": "reset"}, {"do": "stop"} and more.
A prompt is {"ids": [...]}, with "salt": "...", "adapter": [name, number, folder] or "sound": seed
as wanted; or it is {"embeds": {"seed": n, "length": m, "width": w}}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from engine_moments import abort_at


def say(**what: Any) -> None:
    """One line to the test. vLLM's own processes import this file too, without the descriptor."""
    os.write(int(os.environ["ONGGI_TEST_FD"]), json.dumps(what).encode() + b"\n")


def inputs(prompt: dict[str, Any]) -> dict[str, Any]:
    """A prompt as vLLM takes it."""
    if "embeds" in prompt:
        return {"prompt_embeds": embeds(**prompt["embeds"])}
    taken: dict[str, Any] = {"prompt_token_ids": prompt["ids"]}
    if prompt.get("salt"):
        taken["cache_salt"] = prompt["salt"]
    if "sound" in prompt:
        taken["multi_modal_data"] = {"audio": sound(prompt["sound"])}
    return taken


def generate(llm: Any, command: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    prompts = [inputs(prompt) for prompt in command["prompts"]]
    named = [prompt.get("adapter") for prompt in command["prompts"]]
    adapters = [LoRARequest(*one) if one else None for one in named]
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=command.get("max_tokens", 8),
        ignore_eos=True,
        prompt_logprobs=command.get("prompt_logprobs"),
    )
    began = time.monotonic()
    adapted = adapters if any(named) else None
    outputs = llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapted)
    return {
        "seconds": time.monotonic() - began,
        "tokens": [list(o.outputs[0].token_ids) for o in outputs],
        "cached": [o.num_cached_tokens for o in outputs],
        "reasons": [o.outputs[0].finish_reason for o in outputs],
    }


def embeds(seed: int, length: int, width: int) -> Any:
    """[length, width], the same in every process."""
    import torch

    made = torch.Generator().manual_seed(seed)
    return torch.randn(length, width, generator=made) * 0.2


def sound(seed: int) -> tuple[Any, int]:
    """Noise of 0.64 s, 16 tokens of a hearing model, the same in every process; and its rate."""
    import numpy as np

    return np.random.default_rng(seed).normal(0, 0.1, 10_240).astype(np.float32), 16_000


def events(_: Any, command: dict[str, Any]) -> dict[str, Any]:
    """What the engine published since the last time, of its own and of other tiers' blocks. The
    first time only begins to listen."""
    import msgspec
    import zmq

    if "socket" not in LISTENS:
        LISTENS["socket"] = zmq.Context.instance().socket(zmq.SUB)
        LISTENS["socket"].connect(command["endpoint"])
        LISTENS["socket"].setsockopt(zmq.SUBSCRIBE, b"")
    heard = []
    while LISTENS["socket"].poll(500):
        _, _, batch = LISTENS["socket"].recv_multipart()
        heard += msgspec.msgpack.decode(batch)[1]
    return {"events": [{k: v for k, v in one.items() if k in SHOWN} for one in heard]}


LISTENS: dict[str, Any] = {}
SHOWN = ("type", "medium", "locality", "ownership", "block_hashes", "block_size")


def abort(llm: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Add requests, make some steps, abort them all, then step until the engine is idle."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    names = []
    for number, prompt in enumerate(command["prompts"]):
        names.append(f"abort-{time.monotonic_ns()}-{number}")
        engine.add_request(
            names[-1],
            inputs(prompt),
            SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True),
        )
    for _ in range(command.get("steps", 1)):
        engine.step()
    engine.abort_request(names)
    for _ in range(200):
        engine.step()
        time.sleep(0.001)
    return {"unfinished": engine.get_num_unfinished_requests()}


def metrics(llm: Any, _: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, float] = {}
    for metric in llm.get_metrics():
        value = getattr(metric, "value", None)
        if value is not None:
            labels = {k: v for k, v in metric.labels.items() if k not in ("model_name", "engine")}
            name = metric.name + ("" if not labels else json.dumps(labels, sort_keys=True))
            found[name] = found.get(name, 0) + value
    return {"metrics": found}


def reset(llm: Any, command: dict[str, Any]) -> dict[str, Any]:
    return {"reset": llm.reset_prefix_cache(reset_connector=command.get("connector", False))}


def layout(llm: Any, _: dict[str, Any]) -> dict[str, Any]:
    """The KV cache's layout, and how many copies move one block of a group."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    from onggi.copies import merged

    copier = get_kv_transfer_group()._worker._mover._copiers[0]
    pages = getattr(copier, "_groups", [copier])[0]._pages
    return {
        "layout": llm.llm_engine.vllm_config.cache_config.kv_cache_layout,
        "copies_a_block": len(merged(pages.pieces([(1, 0)]))),
    }


COMMANDS = {
    "generate": generate,
    "abort": abort,
    "abort_at": abort_at,
    "metrics": metrics,
    "layout": layout,
    "reset": reset,
    "events": events,
}


def let_pipelines_run() -> None:
    """Where nothing is compiled, vLLM 0.32 on a CPU lacks the room for what a pipeline's ranks hand
    on, which is made by the first compilation: its first step would fail."""
    from vllm.distributed.parallel_state import get_pp_group
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    original = CPUModelRunner.initialize_kv_cache

    def initialize_kv_cache(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not get_pp_group().is_first_rank:
            self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
                batch_size=self.max_num_tokens, dtype=self.model_config.dtype, device=self.device
            )

    CPUModelRunner.initialize_kv_cache = initialize_kv_cache


def offer_blocks_outermost() -> None:
    """Where a layout is asked for: the kernels for CPUs read blocks by their strides, so they take
    all layers of a block side by side as well, though vLLM names one layout for them only."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.kv_cache_layout import KVCacheLayout

    layouts = (KVCacheLayout.LBHNC, KVCacheLayout.BLHNC)
    CPUAttentionBackend.supported_kv_cache_layouts = classmethod(lambda _: layouts)


def main() -> None:
    from vllm import LLM

    if "VLLM_KV_CACHE_LAYOUT" in os.environ:
        offer_blocks_outermost()
    let_pipelines_run()
    llm = LLM(**json.loads(sys.stdin.readline()))
    say(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "stop":
            break
        try:
            say(**COMMANDS[command["do"]](llm, command))
        except Exception as error:  # the test should see it, whatever it is
            say(error=f"{type(error).__name__}: {error}")
            raise
    llm.llm_engine.engine_core.shutdown()
    say(stopped=True)


if __name__ == "__main__":
    main()
