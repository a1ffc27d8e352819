"""Waits that would have no end, and queues that would have none."""

import socket
import urllib.request
from pathlib import Path

from agent_process import SMALL, AgentProcess, BareClient, StartAgent, chain, until

from onggi_sidecar.http import CONNECTIONS_MAX

HUNG_DISK = """
import time
from onggi_sidecar import assembly
assembly.OPEN_WITHIN_S = 0.3
assembly.open_disk = lambda config: time.sleep(600)
"""


def test_a_disk_that_hangs_at_the_start_costs_the_disk_tier_alone(
    memory_folder: Path, tmp_path: Path
) -> None:
    disk = ("--disk", "64MiB", "--disk-path", str(tmp_path / "disk"))
    agent = AgentProcess(memory_folder, *SMALL, *disk, patch=HUNG_DISK)
    try:
        said = agent.wait_for("disk_unavailable")["message"]
        assert said.endswith("could not be read within 0.3 s; serving without a disk tier")
        agent.wait_for("arena_ready")
        agent.wait_for("listening")
        client = BareClient(agent)
        until("room for a block", lambda: client.store(chain(1)))
        assert client.load(tuple(chain(1))) == list(chain(1).values())
        assert client.stats()["disk_bytes"] == 0
        client.close()
        assert agent.end() == 0
    finally:
        agent.clean_up()


def test_http_connections_that_say_nothing_make_room_for_new_ones_and_are_counted(
    start: StartAgent,
) -> None:
    agent = start()
    port = agent.wait_for("http_listening")["port"]
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX + 5)]

    def crowded() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page: str = answer.read().decode()
        (line,) = [line for line in page.splitlines() if '{kind="http_crowded"}' in line]
        return float(line.split()[-1]) > 0

    until("it to be counted", crowded)
    for one in idle:
        one.close()
    assert agent.end() == 0
