"""A client that is stopped in the middle of a copy while its agent dies and the next moves in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import MIB, PAGE_BYTES, REPOSITORY, AgentProcess, BareClient, chain, until

STOPPED = f"""
import ctypes, os, signal, sys
from onggi import Client, SpaceSpec
from onggi.copies import copy
client = Client(sys.argv[1], spaces=[SpaceSpec(b"f" * 16, {PAGE_BYTES}, 16)], deadline_s=5)
while not client.attached:
    pass
arena = client._link.current.arena
begin, length = arena.extent_range(0)[0], arena.copy_max_bytes
memory = ctypes.create_string_buffer(length)
places = [(begin, 1), (begin + 8 * length, 2)]
print(length, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
for offset, value in places:  # one thread stores and another loads: what their copies have left
    ctypes.memset(arena.address + offset, value, length)
    copy(ctypes.addressof(memory), arena.address + offset, length)
sys.exit(0 if not arena.alive else 3)
"""


@pytest.mark.parametrize("volume", ["20m", "160m"])
def test_a_client_stopped_in_a_copy_outlives_its_agent_in_a_full_volume(
    small_volume: Callable[[str], Path], volume: str
) -> None:
    """Its pages were given back, so it takes as much of the volume anew. In a volume without room
    for that the kernel ended it: SIGBUS."""
    folder = small_volume(volume)
    agents = [AgentProcess(folder, "--memory", "1GiB", "--extent", "1MiB")]
    agents[-1].wait_for("arena_ready")
    paths = {**os.environ, "PYTHONPATH": str(REPOSITORY / "sidecar")}
    command = [sys.executable, "-c", STOPPED, str(folder / "agent.sock")]
    engine = subprocess.Popen(command, env=paths, stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        assert int(engine.stdout.readline()) <= 8 * MIB
        os.waitid(os.P_PID, engine.pid, os.WSTOPPED | os.WNOWAIT)
        agents[-1].wait_for("listening")
        filler = BareClient(agents[-1])
        blocks = chain(64)
        assert filler.store(blocks) == 64
        agents[-1].end(signal.SIGKILL)
        agents.append(AgentProcess(folder, "--memory", "1GiB", "--extent", "1MiB"))
        agents[-1].wait_for("listening")
        client = BareClient(agents[-1])
        whole = client.stats()["arena_bytes"]
        until("all of it", lambda: client.stats()["arena_ready_bytes"] == whole)
        os.kill(engine.pid, signal.SIGCONT)
        assert engine.wait(30) == 0
        assert client.load(tuple(blocks)) == list(blocks.values())
        client.close()
        filler.close()
    finally:
        engine.kill()
        engine.communicate()
        for agent in agents:
            agent.clean_up()
