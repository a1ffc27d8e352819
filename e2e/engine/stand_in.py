"""Takes an engine's place where the engine is not the point: the real client, and no model.

Usage: stand_in.py serve | stand_in.py job SEED BLOCKS. Runs in an injected pod, whose PYTHONPATH
has the client and whose Python has nothing else. A page's bytes are made from its key, so that any
foreign byte shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from onggi import ROOT, Client, SpaceSpec, block_keys, fingerprint

PORT = 8000
BLOCK_TOKENS = 16
PAGE_BYTES = 256 * 1024
WAIT_S = 10.0
DEADLINE_S = 5.0
"""Patient: what is asked here is whether blocks are there, not whether they come in time."""
TRIES_S = 60.0
PROMPT_BLOCKS = 16
AGAIN_PROMPTS = 80
"""Of a workload that asks again: 1,280 blocks, 320 MiB."""
BLOCKS_PER_S = 400


def keys_of(seed: int, blocks: int) -> list[bytes]:
    dice = random.Random(seed)
    return block_keys([dice.randrange(32_000) for _ in range(blocks * BLOCK_TOKENS)], BLOCK_TOKENS)


def page_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest() * (PAGE_BYTES // 32)


class Cache:
    """Prompts by seed, kept and found."""

    def __init__(self) -> None:
        space = SpaceSpec(fingerprint({"model": "stand-in"}), PAGE_BYTES, BLOCK_TOKENS)
        self.client = Client(os.environ["ONGGI_SOCKET"], spaces=[space], deadline_s=DEADLINE_S)
        self.lock = threading.Lock()

    def keep(self, seed: int, blocks: int) -> int:
        """How many of the prompt's blocks are there now."""
        keys = keys_of(seed, blocks)
        with self.lock:
            stored = self.client.store(keys, [page_of(key) for key in keys])
        return stored.stored + stored.existing

    def find(self, seed: int, blocks: int) -> dict[str, int]:
        """How many leading blocks come back, and how many of these with the right bytes."""
        keys = keys_of(seed, blocks)
        pages = [bytearray(PAGE_BYTES) for _ in keys]
        with self.lock:
            found = self.client.load(keys, pages, wait_s=WAIT_S)
        right = sum(page == page_of(key) for key, page in zip(keys[:found], pages, strict=False))
        return {"found": found, "right": right}

    def ask(self, seed: int, pages: list[bytearray]) -> None:
        """As an engine does: load what there is, compute and store the rest."""
        keys = keys_of(seed, PROMPT_BLOCKS)
        with self.lock:
            found = self.client.load(keys, pages)
            if found < len(keys):
                parent = keys[found - 1] if found else ROOT
                self.client.store(keys[found:], pages[found:], parent=parent)


class Demand(threading.Thread):
    """Asks for prompts at a steady pace: `again` draws them from a few, `once` never asks twice."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(daemon=True)
        self.cache = cache
        self.kind = "none"

    def run(self) -> None:
        dice = random.Random(int.from_bytes(os.urandom(8), "big"))
        pages = [bytearray(PAGE_BYTES) for _ in range(PROMPT_BLOCKS)]
        while True:
            if self.kind != "none":
                fresh = dice.randrange(10**6, 10**12)
                self.cache.ask(
                    dice.randrange(AGAIN_PROMPTS) if self.kind == "again" else fresh, pages
                )
            time.sleep(PROMPT_BLOCKS / BLOCKS_PER_S)


def serve(cache: Cache) -> None:
    demand = Demand(cache)
    demand.start()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            match self.path:
                case "/keep":
                    self._answer({"kept": cache.keep(asked["seed"], asked["blocks"])})
                case "/find":
                    self._answer(cache.find(asked["seed"], asked["blocks"]))
                case "/demand":
                    demand.kind = asked["kind"]
                    self._answer({})

        def _answer(self, body: dict[str, int]) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Probes ask every second."""

    ThreadingHTTPServer(("", PORT), Handler).serve_forever()


def work(cache: Cache, seed: int, blocks: int) -> None:
    """A job: keep a prompt, find it again, end. Raises SystemExit when it does not come back."""
    end = time.monotonic() + TRIES_S
    while cache.keep(seed, blocks) < blocks:  # the agent's memory is touched meanwhile
        if time.monotonic() > end:
            sys.exit("not kept")
        time.sleep(0.2)
    told = cache.find(seed, blocks)
    cache.client.close()
    print(json.dumps(told), flush=True)
    if told != {"found": blocks, "right": blocks}:
        sys.exit("not found")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve(Cache())
        case ["job", seed, blocks]:
            work(Cache(), int(seed), int(blocks))
        case _:
            sys.exit(__doc__)
