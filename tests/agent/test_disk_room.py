"""Room for the disk tier comes and goes while the agent runs: told when it changes, never twice."""

import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import MIB, StartAgent, until

from onggi_sidecar.disk.room import SLACK_SHARE, Room, RoomWatch, room_of

OFTEN = "import onggi_sidecar.disk.room as room; room.LOOK_EVERY_S = 0.2"
WHOLE = 1000 * MIB
ASKED = 160 * MIB


class Volume:
    """A filesystem whose free room the test sets."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes

    def ask(self, _: Path) -> Room:
        return Room(self.room_bytes, WHOLE)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    events = [record.__dict__["onggi_fields"]["event"] for record in caplog.records]
    caplog.clear()
    return events


def watching(volume: Volume, most_bytes: int = ASKED) -> RoomWatch:
    watch = RoomWatch(Path("/tier"), most_bytes=most_bytes, ask=volume.ask)
    watch.first_look(ASKED)
    return watch


def test_room_that_shrinks_is_told_once_and_once_more_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    volume = Volume(ASKED)
    watch = watching(volume)
    assert not watch.look(ASKED)
    assert said(caplog) == []
    volume.room_bytes = ASKED - 1
    assert [watch.look(ASKED) for _ in range(3)] == [True, False, False]
    assert said(caplog) == ["disk_larger_than_its_room"]
    volume.room_bytes = ASKED + ASKED // SLACK_SHARE - 1  # room that comes and goes is no news
    assert not watch.look(ASKED)
    assert said(caplog) == []
    volume.room_bytes = ASKED + ASKED // SLACK_SHARE
    assert not watch.look(ASKED)
    assert said(caplog) == ["disk_fits_its_room"]
    volume.room_bytes = 0
    assert watch.look(ASKED)
    assert said(caplog) == ["disk_larger_than_its_room"]


def test_what_was_told_at_the_start_is_not_told_again_and_a_smaller_budget_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    watch = watching(Volume(ASKED // 2))
    assert said(caplog) == ["disk_larger_than_its_room"]
    assert not watch.look(ASKED)
    assert said(caplog) == []
    assert not watch.look(ASKED // 4)
    assert said(caplog) == ["disk_fits_its_room"]


def test_growth_that_no_filesystem_here_has_room_for_is_told_at_the_start_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    watch = watching(Volume(ASKED), most_bytes=WHOLE + 1)
    assert said(caplog) == ["disk_larger_than_its_room"]
    assert not watch.look(ASKED)
    assert said(caplog) == []


def test_what_the_tier_holds_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "segment").write_bytes(os.urandom(8 * MIB))
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 8 * MIB)
    free = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: free)  # others write here, too
    taken_bytes = (tmp_path / "segment").stat().st_blocks * 512
    assert room_of(tmp_path) == Room(
        room_bytes=free.f_bavail * free.f_frsize + taken_bytes,
        whole_bytes=free.f_blocks * free.f_frsize,
    )


def test_a_folder_that_cannot_be_looked_at_is_the_callers_to_tell(tmp_path: Path) -> None:
    watch = RoomWatch(tmp_path / "none", most_bytes=0)
    with pytest.raises(FileNotFoundError):
        watch.look(ASKED)


def test_an_agent_whose_neighbour_fills_the_filesystem_says_so_and_counts_it(
    small_volume: Callable[[str], Path], start: StartAgent
) -> None:
    folder = small_volume("64m")
    flags = ("--disk", "32MiB", "--disk-path", str(folder / "tier"))
    agent = start(*flags, patch=OFTEN)
    port = agent.wait_for("http_listening")["port"]
    assert agent.said("disk_larger_than_its_room") == []
    (folder / "others").write_bytes(bytes(50 * MIB))
    told = agent.wait_for("disk_larger_than_its_room")
    assert told["asked_bytes"] == 32 * MIB
    assert told["room_bytes"] < 32 * MIB

    def counted() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            return b'onggi_errors_total{kind="disk_lacks_room"} 1.0' in page.read()

    until("the agent to count it", counted)
    (folder / "others").unlink()
    assert agent.wait_for("disk_fits_its_room")["asked_bytes"] == 32 * MIB
    assert agent.end() == 0
