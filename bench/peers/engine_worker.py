"""An engine in an interpreter of its own: `engine_worker.py OPTIONS`, LLM's arguments as JSON.

Commands: {"do": "ask", "prompts": [[token ids], ...]}: seconds to the first token of all;
{"do": "forget"}: drop what the engine itself keeps. On a CPU a forward is done when it returns, so
the CUDA events that a peer's connector records have nothing to wait for; they are stood in for by
ones that say so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from bench.peers.talk import Command, serve

FREEING_STEPS = 3
"""In one a connector is told that a request ended, in the next it may say that it is done."""


class DoneEvent:
    """An event of work that is over."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing to keep."""

    def record(self, *_: Any) -> None:
        """What it marks is done."""

    def synchronize(self) -> None:
        """As is what came before it."""

    def query(self) -> bool:
        return True


def open_llvmlite() -> None:
    """vLLM's CPU platform reads the __dict__ of whatever a loaded module holds. llvmlite's library
    object, loaded by LMCache through numba, answers with a function, and the engine ends."""
    try:
        from llvmlite.binding import ffi
    except ImportError:
        return
    kind = type(ffi.lib)
    ask = kind.__getattr__

    def answer(self: Any, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return ask(self, name)

    kind.__getattr__ = answer


def begin() -> Mapping[str, Command]:
    open_llvmlite()
    import torch
    from vllm import LLM, SamplingParams

    if not torch.cuda.is_available():
        vars(torch.cuda)["Event"] = DoneEvent
    llm = LLM(**json.loads(sys.argv[1]))

    def ask(asked: dict[str, Any]) -> dict[str, Any]:
        prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
        sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
        begin_s = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - begin_s
        return {
            "seconds": seconds,
            "cached": [output.num_cached_tokens for output in outputs],
            "tokens": [output.outputs[0].token_ids[0] for output in outputs],
        }

    def forget(asked: dict[str, Any]) -> dict[str, Any]:
        """A connector may keep a request's blocks until it is asked in a later step whether it is
        done with them; without requests there are no steps, so some are made here."""
        del asked
        for _ in range(FREEING_STEPS):
            llm.llm_engine.step()
        return {"forgotten": llm.reset_prefix_cache()}

    return {"ask": ask, "forget": forget}


if __name__ == "__main__":
    serve(begin)
