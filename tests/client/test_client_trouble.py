"""Threads at work while the agent dies, hangs, throws its clients out and comes back."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from typing import Any

import pytest
from engine_harness import soon

from onggi import Client, SpaceSpec, block_keys

PAGE = 8192
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)


def pat(key: bytes) -> bytes:
    """Bytes that only this block has."""
    return (hashlib.sha256(key).digest() * (PAGE // 32))[:PAGE]


class Workers:
    """Threads that store and load chains through one client and check every byte they get."""

    def __init__(self, client: Client, count: int = 4) -> None:
        self.client = client
        self.stop = threading.Event()
        self.wrong: list[str] = []
        self.loaded = 0
        self.longest_s = 0.0
        self.threads = [threading.Thread(target=self._work, args=(n,)) for n in range(count)]

    def __enter__(self) -> Workers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        try:
            while not self.stop.is_set():
                family, blocks = rng.randrange(6), rng.randrange(1, 12)
                keys = block_keys([family * 1000 + i for i in range(blocks * 16)], 16)
                began_s = time.monotonic()
                if rng.random() < 0.5:
                    self.client.store(keys, [pat(key) for key in keys])
                else:
                    pages = [bytearray(PAGE) for _ in keys]
                    got = self.client.load(keys, pages)
                    self.loaded += got
                    if [bytes(p) for p in pages[:got]] != [pat(k) for k in keys[:got]]:
                        self.wrong.append(f"wrong bytes in family {family}")
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                time.sleep(0.001)  # misses cost nothing, and the agent here needs the GIL too
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.wrong.append(repr(error))


@pytest.mark.parametrize("trouble", ["restart", "killed", "kick", "mute"])
def test_no_wrong_byte_no_error_and_hits_come_back(
    make_agent: Any, hang: Any, trouble: str
) -> None:
    agent = make_agent(extents=1)
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=0.1)
    with Workers(client) as workers:
        for _ in range(5):
            time.sleep(0.15)
            if trouble == "restart":
                agent.restart()
            elif trouble == "killed":
                agent.stop(retire=False)
                time.sleep(0.05)
                agent.retire_leftover()
                agent.start()
            elif trouble == "kick":
                agent.kick()
            else:
                hang(agent)
                time.sleep(0.2)
                agent.mute = False
        time.sleep(0.5)
        before = workers.loaded
        assert soon(lambda: workers.loaded > before)
    assert not workers.wrong
    assert workers.longest_s < 3.0  # several deadlines of one call, on a busy machine
    client.close()
