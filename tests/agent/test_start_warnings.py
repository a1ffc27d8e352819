"""What a start says of settings that are odd and do not keep it from starting."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from agent_process import MIB, AgentProcess, StartAgent, chain, ready

from onggi_sidecar.cgroup import memory_limit_bytes
from onggi_sidecar.errors import StartRefused
from onggi_sidecar.filesystems import takes_no_files
from onggi_sidecar.socketfile import claim_socket

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


def test_a_disk_path_that_makes_no_disk_tier_is_told(start: StartAgent, tmp_path: Path) -> None:
    agent = start("--disk-path", str(tmp_path / "tier"))
    assert agent.wait_for("setting_unused")["level"] == "warning"
    agent.wait_for("listening")
    (said,) = agent.said("setting_unused")
    assert said["message"].startswith("disk_path has no effect without disk: there is no disk tier")
    assert not (tmp_path / "tier").exists()
    assert agent.end() == 0


def test_a_share_where_there_is_no_limit_is_a_warning_that_says_what_to_write(
    start: StartAgent,
) -> None:
    if memory_limit_bytes() is not None:
        pytest.skip("this machine's processes have a memory limit")
    agent = start("--memory-max", "5%")
    said = agent.wait_for("memory_share")
    assert said["level"] == "warning"
    assert said["message"].startswith("memory_max was asked for as 5% of the container's memory")
    assert said["message"].endswith("write a size, such as 1GiB, to choose")
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


def test_a_disk_that_is_full_at_the_start_is_told_with_what_to_do(
    small_volume: Callable[[str], Path], start: StartAgent
) -> None:
    folder = small_volume("8m")
    with (folder / "others").open("wb", buffering=0) as others, suppress(OSError):
        while True:
            others.write(bytes(4096))
    agent = start("--disk", "64MiB", "--disk-path", str(folder / "tier"))
    agent.wait_for("listening")
    (said,) = agent.said("disk_unavailable")
    assert said["message"] == (
        f"disk_path {folder}/tier has no room for the tier's page table (No space left on device); "
        "free some there, and start the agent again; serving without a disk tier"
    )
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


def test_a_disk_path_where_no_files_can_be_made_is_told_so(start: StartAgent) -> None:
    """The system's own words are that there is no such file or directory."""
    agent = start("--disk", "64MiB", "--disk-path", "/proc/sys")
    agent.wait_for("listening")
    (said,) = agent.said("disk_unavailable")
    assert said["message"] == (
        "disk_path /proc/sys is where the kernel shows its own state, and takes no files; name a "
        "folder on a disk; serving without a disk tier"
    )
    assert agent.end() == 0


def test_a_read_only_filesystem_is_told_to_be_one(tmp_path: Path) -> None:
    refused = OSError(errno.EROFS, "Read-only file system")
    assert takes_no_files(tmp_path, refused) == "is on a filesystem that is mounted read-only"
    assert takes_no_files(tmp_path / "new", OSError(errno.EACCES, "Permission denied")) == ""


def test_a_socket_where_no_files_can_be_made_is_refused_with_why(memory_folder: Path) -> None:
    with pytest.raises(StartRefused) as refused:
        claim_socket(Path("/proc/sys/onggi/agent.sock"))
    assert str(refused.value) == (
        "the socket's folder /proc/sys/onggi is where the kernel shows its own state, and takes no "
        "files; name one on a tmpfs, such as /dev/shm"
    )


@pytest.mark.parametrize(("before", "now"), [("exclusive", "shared"), ("shared", "exclusive")])
def test_a_tier_that_was_claimed_the_other_way_is_not_passed_over_in_silence(
    start: StartAgent, disk_flags: tuple[str, ...], before: str, now: str
) -> None:
    first = start(*disk_flags, "--disk-claim", before)
    client = ready(first)
    client.store(chain(2))
    client.wait_until_on_disk(2)
    client.close()
    assert first.end() == 0
    assert not first.said("disk_left_unused")
    second = start(*disk_flags, "--disk-claim", now)
    second.wait_for("listening")
    (said,) = second.said("disk_left_unused")
    files = "table and segment-*" if now == "shared" else "slot-*"
    assert said["level"] == "warning"
    assert f"{disk_flags[-1]} has " in said["message"]
    assert f" with disk_claim {before}, which this one, with {now}, does not" in said["message"]
    assert f"start it with disk_claim {before} to have the blocks, or" in said["message"]
    assert f"remove {files} there to have the room" in said["message"]
    assert second.end() == 0
    third = start(*disk_flags, "--disk-claim", before)
    third.wait_for("listening")
    assert third.said("disk_ready")[0]["adopted_blocks"] == 2
    assert third.end() == 0


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
