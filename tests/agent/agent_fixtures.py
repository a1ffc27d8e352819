"""Places to work in and agents to work with, for every suite that starts a real one."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_process import SMALL, AgentProcess
from fake_operator import Operator, an_operator


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder on tmpfs, as a memory-backed emptyDir is."""
    folder = Path(tempfile.mkdtemp(prefix="onggi-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start(memory_folder: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts small agents on one socket folder and ends what is left of them."""
    started: list[AgentProcess] = []

    def start_one(*flags: str, **environment: str) -> AgentProcess:
        started.append(AgentProcess(memory_folder, *SMALL, *flags, **environment))
        return started[-1]

    yield start_one
    for agent in started:
        agent.clean_up()


@pytest.fixture
def disk_flags(tmp_path: Path) -> tuple[str, ...]:
    return ("--disk", "64MiB", "--disk-path", str(tmp_path / "disk"))


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs of a given size; where this machine does not let us, the test is skipped."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / "volume"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "onggi-test", str(folder)]
        tried = subprocess.run(command, capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"mounting a small volume needs root: {tried.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def operator() -> Iterator[Operator]:
    with an_operator() as made:
        yield made
