"""The agent as a user that has no name, below a root that nobody can write, without a home."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import SMALL, AgentProcess, chain, ready
from nameless import nameless, why_not

DOCKERFILE = Path(__file__).resolve().parents[2] / "sidecar/Dockerfile"
BLOCKS = chain(4)


def image_environment() -> dict[str, str]:
    """Without PATH, which leads to the image's interpreter."""
    last = DOCKERFILE.read_text().rpartition("FROM ")[2].replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", last, re.MULTILINE)
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs if name != "PATH"}


@pytest.fixture
def folders(memory_folder: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    disk = tmp_path / "disk"
    disk.mkdir()
    return memory_folder, disk


def test_such_a_user_has_no_name_and_cannot_write_the_root(tmp_path: Path) -> None:
    """The check itself."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    mine = tmp_path / "mine"
    mine.mkdir()

    def run(*words: str) -> int:
        done = subprocess.run([*nameless(mine), *words], capture_output=True, check=False)
        return done.returncode

    assert run("id", "-un") != 0
    assert run("touch", str(tmp_path / "other")) != 0
    assert run("touch", str(mine / "file")) == 0


@pytest.mark.parametrize("environment", ["of the image", "none"])
def test_it_stores_and_finds_again_what_it_stored(
    folders: tuple[Path, Path], environment: str
) -> None:
    run, disk = folders
    prefix = [*nameless(disk), "env", "-u", "HOME", "-u", "LOGNAME", "-u", "USER", "-u", "TMPDIR"]
    if environment == "of the image":
        prefix += [f"{name}={value}" for name, value in image_environment().items()]
    flags = (*SMALL, "--disk", "64MiB", "--disk-path", str(disk))
    for life in ("first", "second"):
        agent = AgentProcess(run, *flags, prefix=prefix)
        try:
            client = ready(agent)
            if life == "first":
                assert client.store(BLOCKS) == len(BLOCKS)
                client.wait_until_on_disk(len(BLOCKS))
            assert client.load(tuple(BLOCKS)) == list(BLOCKS.values())
            client.close()
            assert agent.end() == 0
            assert agent.said("text") == [], "a traceback, or a warning of the interpreter's"
        finally:
            agent.clean_up()


def test_a_folder_that_it_may_not_write_to_is_named_with_user_and_group(
    memory_folder: Path, tmp_path: Path
) -> None:
    """fsGroup and permissions: modelexpress#682. Root may write anywhere, unless it is taken from
    it."""
    tmp_path.chmod(0o555)
    flags = (*SMALL, "--disk", "64MiB", "--disk-path", str(tmp_path))
    prefix = () if os.geteuid() else ("setpriv", "--bounding-set=-dac_override")
    agent = AgentProcess(memory_folder, *flags, prefix=prefix)
    try:
        message = agent.wait_for("disk_unavailable")["message"]
        who = f"as uid {os.geteuid()}, gid {os.getegid()}"
        assert f"cannot write to disk_path {tmp_path} {who}" in message
        assert message.endswith("serving without a disk tier")
        client = ready(agent)
        client.store(BLOCKS)
        assert client.load(tuple(BLOCKS)) == list(BLOCKS.values())
        client.close()
    finally:
        agent.clean_up()
        tmp_path.chmod(0o755)
