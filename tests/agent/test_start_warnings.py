"""What a start says of settings that are odd and do not keep it from starting."""

from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import MIB, AgentProcess, StartAgent

SERVICE = {
    "ONGGI_AGENT_SERVICE_HOST": "10.96.0.7",
    "ONGGI_AGENT_PORT": "tcp://10.96.0.7:80",
    "ONGGI_AGENT_PORT_80_TCP_ADDR": "10.96.0.7",
    "ONGGI_AGENT_HTTP_PORT": "tcp://10.96.0.8:80",
}
"""Of services named onggi-agent and onggi-agent-http in the pod's namespace."""


def test_a_misspelt_variable_is_told_and_those_of_services_are_not(start: StartAgent) -> None:
    agent = start(**SERVICE, ONGGI_AGENT_MEMROY="1GiB", ONGGI_AGENT_QQQ="1")
    agent.wait_for("listening")
    assert [line["message"] for line in agent.said("unknown_variable")] == [
        "ONGGI_AGENT_MEMROY is no variable of the agent's and was not read; did you mean "
        "ONGGI_AGENT_MEMORY?",
        "ONGGI_AGENT_QQQ is no variable of the agent's and was not read; `onggi agent --help` "
        "lists those that are",
    ]
    assert agent.end() == 0


def test_a_disk_that_is_larger_than_its_filesystem_is_told_with_the_figures(
    small_volume: Callable[[str], Path], start: StartAgent
) -> None:
    folder = small_volume("64m")
    agent = start("--disk", "10TiB", "--disk-path", str(folder / "tier"))
    agent.wait_for("listening")
    (said,) = agent.said("disk_larger_than_its_room")
    assert said["message"].startswith(
        f"disk is 10995116277760 bytes (10TiB), but the filesystem of {folder}/tier has room for "
    )
    assert "(67108864 bytes (64MiB) in all)" in said["message"]
    assert said["filesystem_bytes"] == 64 * MIB
    assert 63 * MIB < said["room_bytes"] <= 64 * MIB
    assert agent.end() == 0


@pytest.mark.parametrize(
    ("disk", "most", "told"),
    [
        ("24MiB", "0", ""),
        ("24MiB", "48MiB", ""),
        ("24MiB", "128MiB", "disk_max"),
        ("96MiB", "0", "disk"),
    ],
)
def test_what_a_tier_holds_already_counts_as_room_and_growth_is_for_the_whole_filesystem(
    small_volume: Callable[[str], Path], start: StartAgent, disk: str, most: str, told: str
) -> None:
    folder = small_volume("64m")
    (folder / "others").write_bytes(bytes(36 * MIB))
    agent = start("--disk", disk, "--disk-max", most, "--disk-path", str(folder / "tier"))
    agent.wait_for("listening")
    said = [line["message"].split()[0] for line in agent.said("disk_larger_than_its_room")]
    assert said == ([told] if told else [])
    assert agent.end() == 0


def test_an_arena_larger_than_its_volume_is_told_with_the_figures(
    small_volume: Callable[[str], Path],
) -> None:
    folder = small_volume("64m")
    agent = AgentProcess(folder, "--memory", "1GiB", "--extent", "4MiB")
    try:
        agent.wait_for("arena_ready")
        agent.wait_for("listening")
        (said,) = agent.said("arena_cut_down")
        assert said["asked_bytes"] == 1024 * MIB
        assert 48 * MIB <= said["given_bytes"] <= 60 * MIB  # the rest has header and board
        assert said["given_bytes"] % (4 * MIB) == 0
        assert "1073741824 bytes (1GiB) of memory were asked for" in said["message"]
        assert f"since the volume of {folder}/arena has room for 6" in said["message"]
        assert agent.end() == 0
    finally:
        agent.clean_up()
