"""What a call to the agent costs, taken apart: `python -m bench.roundtrip`.

A lookup as `python -m bench` measures it finds the code of both sides in the processor's caches. In
an engine it comes after megabytes of copying, so it is measured after those too. And the first
second of an agent's life is one of its own: memory is being touched while clients say HELLO.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.agent import PREFIX, SHARED_MEMORY, AgentUnderTest, space_for
from bench.children import start_child
from bench.pages import Region, chain
from bench.peers import memcpy
from bench.sizes import MIB
from bench.timing import quantile
from onggi import LoadOutcome
from onggi_core.wire.frame import Op, frame
from onggi_core.wire.requests import Hello

BLOCKS: Final = 128
PAGE_BYTES: Final = 16 * 1024
CALLS: Final = 1000
COPIED_BYTES: Final = 4 * MIB
STARTS: Final = 5
FIRST_S: Final = 1.0
PAUSE_S: Final = 0.002
"""Between two HELLOs: engines' processes attach, they do not hammer."""


def calls() -> None:
    """Lookup, and load without its copy, with warm and with cold caches."""
    keys, source, target = chain("roundtrip", 0, BLOCKS), Region(64 * MIB), Region(64 * MIB)
    with AgentUnderTest(memory="64MiB") as agent:
        client = agent.client(space_for(PAGE_BYTES))
        client.store(keys, [bytes(PAGE_BYTES)] * BLOCKS)

        def look() -> None:
            client.lookup(keys)

        def pin() -> None:
            load = client.load_prepare(keys).wait(1.0)
            client.finish_load(load, LoadOutcome.UNUSED)

        for what, call in ((f"lookup of {BLOCKS} blocks", look), (f"pin of {BLOCKS} blocks", pin)):
            for copied, caches in ((0, "warm"), (COPIED_BYTES, "cold")):
                times = []
                for number in range(CALLS):
                    if copied:
                        memcpy.copy_batch(target, source, number, copied)
                    begin_s = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - begin_s)
                _say(f"{what}, caches {caches}", times)
        client.close()


def first_second() -> None:
    """HELLO on new connections, from when the socket is there."""
    times: list[float] = []
    listening = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=SHARED_MEMORY) as folder:
            path = Path(folder) / "agent.sock"
            command = [sys.executable, "-m", "onggi_sidecar", "agent", "--socket", str(path)]
            command += ["--memory", "256MiB", "--http-port", "0", "--log-level", "error"]
            begin_s = time.perf_counter()
            process = start_child(command, Path(folder) / "agent.log")
            while not _answers(path):
                if process.poll() is not None:
                    raise RuntimeError("the agent did not start")
            listening.append(time.perf_counter() - begin_s)
            end_s = time.perf_counter() + FIRST_S
            while time.perf_counter() < end_s:
                one_s = time.perf_counter()
                _hello(path)
                times.append(time.perf_counter() - one_s)
                time.sleep(PAUSE_S)
            process.terminate()
            process.wait()
    _say("HELLO in the first second", times)
    print(f"listening after {quantile(listening, 0.5):.2f} s")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trying:
        return trying.connect_ex(str(path)) == 0


def _hello(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        hello = Hello(1, "bench", (space_for(PAGE_BYTES),))
        client.sendall(frame(Op.HELLO, 0, 1, hello.encode()))
        client.recv(4096)


def _say(what: str, times: list[float]) -> None:
    p50, p99 = (quantile(times, share) * 1e6 for share in (0.5, 0.99))
    print(f"{what:40} p50 {p50:7.0f} us   p99 {p99:7.0f} us   max {max(times) * 1e6:7.0f} us")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m bench.roundtrip", description=__doc__).parse_args()
    calls()
    first_second()
