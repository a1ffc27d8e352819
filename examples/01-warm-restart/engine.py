"""The model process: answers one prompt as an engine does, with Onggi beside it.

It has no cold or warm mode. Each time it loads what the agent has, computes the rest, and keeps
what was computed. It reads `generate` lines on standard input and writes one JSON event a line on
standard output; it ends when its input does.

The full blocks are computed in one forward and the tail of the prompt in another, in every run:
so a warm run does the very same last forward on the very same bytes, and its logits are equal bit
for bit, not just its tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, TextIO

import torch
from kv_blocks import BlockLayout, keep, restore
from tiny_llama import DTYPE, identity, make_config, make_model, make_prompt
from transformers.cache_utils import DynamicCache

from onggi import Client, SpaceSpec, block_keys, fingerprint

BLOCK_TOKENS: Final = 64
"""1 MiB a block with eight layers; what is never reused, the rest of a prompt, stays small."""
NEW_TOKENS: Final = 16
CLIENT_DEADLINE_S: Final = 2.0
"""The usual 0.05 s keeps a late agent from holding up an engine. Here it would turn a busy laptop's
hiccup into a run that reuses nothing."""
ATTACH_S: Final = 30.0
WARM_UP_TOKENS: Final = 32
"""First calls set up thread pools and kernels; that is the library's start, not a prefill."""


class Engine:
    """A model, a prompt and a client."""

    def __init__(self, socket_path: str, layers: int, prompt_tokens: int, events: TextIO) -> None:
        self._events = events
        self._config = make_config(layers, prompt_tokens)
        self._model = make_model(self._config)
        self._prompt = make_prompt(prompt_tokens)
        self._layout = BlockLayout.of(self._config, BLOCK_TOKENS, DTYPE)
        space = SpaceSpec(
            fingerprint(identity(self._config, BLOCK_TOKENS)), self._layout.page_bytes, BLOCK_TOKENS
        )
        self._client = Client(
            socket_path, spaces=[space], engine="transformers", deadline_s=CLIENT_DEADLINE_S
        )
        self._forward(self._prompt[:WARM_UP_TOKENS], DynamicCache(config=self._config))
        for number, layer in enumerate(self._model.model.layers, start=1):
            layer.register_forward_hook(lambda *_, number=number: self._layer_done(number))
        self._computing = 0

    def say(self, event: str, **facts: Any) -> None:
        self._events.write(json.dumps({"event": event, **facts}) + "\n")
        self._events.flush()

    def attach(self) -> None:
        """Wait for the agent, which an engine would not do: it would begin without."""
        give_up_s = time.monotonic() + ATTACH_S
        while not self._client.attached and time.monotonic() < give_up_s:
            time.sleep(0.02)

    def describe(self) -> dict[str, Any]:
        return {
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "layers": self._layout.layers,
            "prompt_tokens": len(self._prompt),
            "block_tokens": BLOCK_TOKENS,
            "page_bytes": self._layout.page_bytes,
            "reusable_blocks": self._layout.reusable_blocks(len(self._prompt)),
            "threads": torch.get_num_threads(),
        }

    def generate(self) -> dict[str, Any]:
        """Answer the prompt. Time to first token counts from the prompt at hand to the token
        known: hashing, asking the agent, loading and copying are all in it."""
        begin_s = time.perf_counter()
        keys = block_keys(self._prompt, BLOCK_TOKENS)
        keys = keys[: self._layout.reusable_blocks(len(self._prompt))]
        restored = restore(self._client, keys, self._layout, self._config)
        restored_s = time.perf_counter()
        cache, have = restored.cache, restored.blocks * BLOCK_TOKENS
        whole = len(keys) * BLOCK_TOKENS
        if have < whole:
            self._forward(self._prompt[have:whole], cache)
        logits = self._forward(self._prompt[whole:], cache)
        tokens = [int(logits.argmax())]
        first_token_s = time.perf_counter()

        stored = keep(self._client, keys, cache, self._layout, restored.blocks)
        stored_s = time.perf_counter()
        while len(tokens) < NEW_TOKENS:
            tokens.append(int(self._forward(tokens[-1:], cache).argmax()))
        return {
            "first_token_s": first_token_s - begin_s,
            "restore_s": restored_s - begin_s,
            "store_s": stored_s - first_token_s,
            "reused_blocks": restored.blocks,
            "disk_blocks": restored.from_disk,
            "stored_blocks": stored.stored,
            "refused_blocks": stored.refused,
            "tokens": tokens,
            "logits": hashlib.sha256(logits.numpy().tobytes()).hexdigest(),
        }

    def _forward(self, token_ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """Feed tokens that follow what `cache` holds; the logits after the last, [vocabulary]."""
        self._computing = len(token_ids)
        with torch.inference_mode():
            ids = torch.tensor([list(token_ids)])
            out = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def _layer_done(self, number: int) -> None:
        if self._computing >= BLOCK_TOKENS:  # a tail or a token is over before it could be shown
            self.say("layer", number=number, of=self._layout.layers, tokens=self._computing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()

    events = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is not an event
    torch.set_num_threads(options.threads)
    engine = Engine(options.socket, options.layers, options.tokens, events)
    engine.attach()
    engine.say("ready", **engine.describe())
    for line in sys.stdin:
        if line.strip() == "generate":
            engine.say("run", **engine.generate())


if __name__ == "__main__":
    main()
