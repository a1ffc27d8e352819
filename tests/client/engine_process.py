"""A vLLM engine in a process of its own, driven line by line: JSON in on stdin, JSON out on fd 3.

Run with an interpreter that has vLLM. First line: arguments of LLM. Then a line a command:
{"do": "generate", "prompts": [...], "max_tokens": n}, {"do": "reset"}, {"do": "stop"} and more.
A prompt is {"ids": [...], "salt": "..."}, or {"embeds": {"seed": n, "length": m, "width": w}}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def say(**what: Any) -> None:
    """One line to the test. vLLM's own processes import this file too, without the descriptor."""
    os.write(int(os.environ["ONGGI_TEST_FD"]), json.dumps(what).encode() + b"\n")


def generate(llm: Any, command: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams

    prompts = []
    for prompt in command["prompts"]:
        if "embeds" in prompt:
            one = {"prompt_embeds": embeds(**prompt["embeds"])}
        else:
            one = {"prompt_token_ids": prompt["ids"]}
        if prompt.get("salt"):
            one["cache_salt"] = prompt["salt"]
        prompts.append(one)
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=command.get("max_tokens", 8),
        ignore_eos=True,
        prompt_logprobs=command.get("prompt_logprobs"),
    )
    began = time.monotonic()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
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
            {"prompt_token_ids": prompt["ids"]},
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


COMMANDS = {
    "generate": generate,
    "abort": abort,
    "metrics": metrics,
    "reset": reset,
    "events": events,
}


def main() -> None:
    from vllm import LLM

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
