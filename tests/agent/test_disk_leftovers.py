"""What dead pods left on a shared disk path: kept for a successor, given back in the end."""

import fcntl
import os
import signal
from pathlib import Path

import pytest
from agent_process import SMALL, AgentProcess, StartAgent, chain, ready

from onggi_sidecar.disk.leftovers import clear_leftovers

HOUR_S = 3600.0
NOW_S = 1_800_000_000.0


def left(root: Path, number: int, *, hours_ago: float, names: tuple[str, ...] = ("table",)) -> Path:
    """A folder as an agent that is gone left it."""
    folder = root / f"slot-{number}"
    folder.mkdir()
    for name in ("lock", *names):
        (folder / name).write_bytes(b"x" * 8192)
        os.utime(folder / name, (NOW_S, NOW_S - hours_ago * HOUR_S))
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_nobody_came_back_for_is_given_back_and_what_is_young_is_kept(tmp_path: Path) -> None:
    old = left(tmp_path, 1, hours_ago=25, names=("table", "segment-000000"))
    young = left(tmp_path, 3, hours_ago=23)
    (found,) = clear_leftovers(tmp_path, kept_s=24 * HOUR_S, now_s=NOW_S)
    assert (found.path, found.size_bytes) == (old, 2 * 8192)
    assert names_in(old) == ["lock"]
    assert names_in(young) == ["lock", "table"]
    assert clear_leftovers(tmp_path, kept_s=24 * HOUR_S, now_s=NOW_S) == ()


def test_one_file_that_was_written_lately_keeps_the_whole_folder(tmp_path: Path) -> None:
    folder = left(tmp_path, 0, hours_ago=48, names=("table", "segment-000000"))
    os.utime(folder / "segment-000000", (NOW_S, NOW_S - HOUR_S))
    assert clear_leftovers(tmp_path, kept_s=24 * HOUR_S, now_s=NOW_S) == ()
    assert names_in(folder) == ["lock", "segment-000000", "table"]


def test_a_folder_that_an_agent_holds_is_left_alone_however_old(tmp_path: Path) -> None:
    folder = left(tmp_path, 0, hours_ago=1000)
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert clear_leftovers(tmp_path, kept_s=HOUR_S, now_s=NOW_S) == ()
    assert names_in(folder) == ["lock", "table"]
    assert len(clear_leftovers(tmp_path, kept_s=HOUR_S, now_s=NOW_S)) == 1


def test_only_files_of_slots_are_touched(tmp_path: Path) -> None:
    """A link may lead anywhere, a folder may be somebody's, and a folder without a lock never was
    an agent's."""
    folder = left(tmp_path, 0, hours_ago=1000)
    (tmp_path / "precious").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "precious")
    (folder / "theirs").mkdir()
    other = tmp_path / "slot-1"
    other.mkdir()
    (other / "table").write_text("not an agent's")
    os.utime(other / "table", (0, 0))
    clear_leftovers(tmp_path, kept_s=HOUR_S, now_s=NOW_S)
    assert names_in(folder) == ["link", "lock", "theirs"]
    assert (tmp_path / "precious").read_text() == "mine"
    assert names_in(other) == ["table"]


def test_a_clock_that_runs_behind_clears_nothing(tmp_path: Path) -> None:
    left(tmp_path, 0, hours_ago=0)
    assert clear_leftovers(tmp_path, kept_s=HOUR_S, now_s=NOW_S - 1000 * HOUR_S) == ()


@pytest.mark.parametrize(("kept_s", "cleared"), [("86400", True), ("0", False)])
def test_an_agent_clears_what_its_neighbour_left_and_adopts_nothing_of_it(
    start: StartAgent, disk_flags: tuple[str, ...], tmp_path: Path, kept_s: str, cleared: bool
) -> None:
    shared = (*disk_flags, "--disk-claim", "shared")
    first = start(*shared)
    first.wait_for("listening")
    (tmp_path / "run").mkdir()
    second = AgentProcess(tmp_path / "run", *SMALL, *shared)
    client = ready(second)
    client.store(chain(10))
    client.wait_until_on_disk(10)
    client.close()
    second.end(signal.SIGKILL)
    second.clean_up()
    root = Path(disk_flags[disk_flags.index("--disk-path") + 1])
    folder = root / "slot-1"
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    first.end(signal.SIGKILL)

    third = start(*shared, ONGGI_AGENT_DISK_RETENTION_S=kept_s)
    third.wait_for("listening")
    if cleared:
        message = third.wait_for("leftovers_cleared")["message"]
        assert f"{folder} was left by a pod that is gone for more than 86400 s; " in message
    assert (names_in(folder) == ["lock"]) is cleared
