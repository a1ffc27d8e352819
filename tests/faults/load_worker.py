"""A client process that stores and loads patterned pages until it is told to stop.

Run as a script: SOCKET SEED FINGERPRINT[,FINGERPRINT...] PAGE_BYTES. Every byte that a load brings
is compared with what its key says it must be. When its standard input ends it goes on until it has
stored and loaded something, prints one JSON line and stops; a wrong byte ends it at once, with exit
code 3.
"""

from __future__ import annotations

import hashlib
import json
import random
import select
import sys
import time

from onggi import Client, SpaceSpec

CHAINS = 24
CHAIN_BLOCKS = 16
PAUSE_S = 0.002
"""Between two calls, so that three such processes leave an agent a core."""
LAST_STEPS_MAX = 5000
"""After its input has ended: ten seconds at least. One that does nothing even so reports that."""


def key_of(chain: int, block: int) -> bytes:
    return hashlib.sha256(f"{chain}/{block}".encode()).digest()[:16]


def chain_keys(chain: int) -> list[bytes]:
    return [key_of(chain, block) for block in range(CHAIN_BLOCKS)]


def pattern(fingerprint: bytes, key: bytes, page_bytes: int) -> bytes:
    """Bytes of one block of one space: no two are alike, and none is like itself shifted."""
    return hashlib.shake_128(fingerprint + key).digest(page_bytes)


class Worker:
    """Counts what came back. `sessions` counts attachments: one more for each life of the agent."""

    def __init__(self, socket: str, seed: int, fingerprints: list[bytes], page_bytes: int) -> None:
        self.dice = random.Random(seed)
        self.fingerprints = fingerprints
        self.page_bytes = page_bytes
        spaces = [SpaceSpec(fingerprint, page_bytes, 16) for fingerprint in fingerprints]
        self.client = Client(socket, spaces=spaces, deadline_s=1.0)
        self.counts = {"stored": 0, "loaded": 0, "missed": 0, "wrong": 0}
        self.sessions: set[int] = set()

    def step(self) -> None:
        chain = self.dice.randrange(CHAINS)
        keys = chain_keys(chain)[: self.dice.randint(1, CHAIN_BLOCKS)]
        if self.dice.random() < 0.5:
            self.store(keys)
        else:
            self.load(keys, self.dice.choice((0.0, 0.2)))
        self.sessions.add(self.client.session_number)

    def store(self, keys: list[bytes]) -> None:
        for space, fingerprint in enumerate(self.fingerprints):
            pages = [pattern(fingerprint, key, self.page_bytes) for key in keys]
            self.counts["stored"] += self.client.store(keys, pages, space=space).stored

    def load(self, keys: list[bytes], wait_s: float) -> None:
        """Buffers behind those that a load filled may hold anything."""
        for space, fingerprint in enumerate(self.fingerprints):
            buffers = [bytearray(self.page_bytes) for _ in keys]
            got = self.client.load(keys, buffers, wait_s=wait_s, space=space)
            for key, buffer in zip(keys[:got], buffers, strict=False):
                if buffer != pattern(fingerprint, key, self.page_bytes):
                    self.counts["wrong"] += 1
            self.counts["loaded"] += got
            self.counts["missed"] += len(keys) - got

    @property
    def idle(self) -> bool:
        """A client that was killed with its agent again and again may just have come back."""
        return not (self.counts["stored"] and self.counts["loaded"])

    def report(self) -> str:
        return json.dumps({**self.counts, "sessions": len(self.sessions - {0})})


def main() -> int:
    socket, seed, fingerprints, page_bytes = sys.argv[1:]
    worker = Worker(
        socket, int(seed), [f.encode() for f in fingerprints.split(",")], int(page_bytes)
    )
    last_steps = LAST_STEPS_MAX
    while last_steps and not worker.counts["wrong"]:
        if select.select([sys.stdin], [], [], 0)[0]:
            last_steps = last_steps - 1 if worker.idle else 0
        worker.step()
        time.sleep(PAUSE_S)
    print(worker.report(), flush=True)
    return 3 if worker.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
