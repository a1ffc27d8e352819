"""What nobody closed: at the end of the interpreter, in a forked child, and forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onggi_library import in_process
from onggi_library.endings import Ending
from onggi_library.in_process import PREFIX, InProcessAgent

MIB = 1 << 20
BEGIN = """
    import os, signal, sys, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    from pathlib import Path
    from onggi_library import in_process
    from onggi_library.in_process import InProcessAgent
    in_process.SHARED_MEMORY = Path({memory!r})
    disk = {{"disk": 64 << 20, "disk_path": Path({folder!r})}}
"""


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A part of it where nobody else begins and ends agents meanwhile."""
    with tempfile.TemporaryDirectory(prefix="onggi-test-", dir="/dev/shm") as folder:
        monkeypatch.setattr(in_process, "SHARED_MEMORY", Path(folder))
        yield Path(folder)


def begun(shared_memory: Path, folder: Path, script: str) -> subprocess.Popen[str]:
    """A program of its own; it shows everything that is not closed."""
    whole = textwrap.dedent(BEGIN).format(memory=str(shared_memory), folder=str(folder))
    command = [sys.executable, "-W", "always", "-c", whole + textwrap.dedent(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


AGENT = "agent = InProcessAgent(memory=16 << 20, extent=4 << 20, **disk)\n"


@pytest.mark.parametrize(
    ("ends", "code", "says"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise LookupError('why')", 1, "LookupError: why"),
        ("os.kill(os.getpid(), 2); time.sleep(60)", -signal.SIGINT, "KeyboardInterrupt"),
        # its thread goes on behind the last line, and so does the agent
        (
            "threading.Thread(target=lambda: (time.sleep(0.5), print(agent.alive))).start()",
            0,
            "",
        ),
    ],
    ids=["the last line", "exit", "an exception", "Ctrl-C", "a thread that goes on"],
)
def test_an_ordinary_end_leaves_nothing_and_changes_no_exit_code(
    shared_memory: Path, tmp_path: Path, ends: str, code: int, says: str
) -> None:
    child = begun(shared_memory, tmp_path, AGENT + ends)
    out, err = child.communicate(timeout=100)
    assert child.returncode == code, err
    assert says in err
    assert "ResourceWarning" not in err
    assert out in ("", "True\n")
    assert out or "Thread" not in ends
    assert list(shared_memory.iterdir()) == []
    table = {path.name for path in tmp_path.iterdir()}
    assert {"lock", "table"} <= table  # a disk that was named is for the next one


def test_what_ends_without_exit_handlers_leaves_it_to_the_next(
    shared_memory: Path, tmp_path: Path
) -> None:
    child = begun(shared_memory, tmp_path, AGENT + "os._exit(0)")
    child.communicate(timeout=100)
    (left,) = shared_memory.glob(f"{PREFIX}*")
    InProcessAgent(memory=16 * MIB, extent=4 * MIB).close()
    assert not left.exists()


def test_a_forked_child_that_ends_as_usual_leaves_its_parents_alone(
    shared_memory: Path, tmp_path: Path
) -> None:
    script = """
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    from onggi import Client, SpaceSpec
    with_agent = Client(agent.socket, spaces=[SpaceSpec(b"f" * 16, 4096, 16)], deadline_s=5)
    print(with_agent.attach(60), len(list(agent.socket.parent.iterdir())))
    """
    child = begun(shared_memory, tmp_path, AGENT + textwrap.dedent(script))
    out, err = child.communicate(timeout=100)
    assert (child.returncode, out) == (0, "True 4\n"), err
    assert list(shared_memory.iterdir()) == []


def until(so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return so()


def test_an_agent_that_nobody_has_any_more_ends_by_itself(shared_memory: Path) -> None:
    opened = [InProcessAgent(memory=16 * MIB, extent=4 * MIB)]
    assert len(list(shared_memory.iterdir())) == 1
    with pytest.warns(ResourceWarning, match="a InProcessAgent was not closed"):
        opened.clear()
    assert until(lambda: not list(shared_memory.iterdir()))


def test_what_goes_wrong_afterwards_is_raised_where_it_is_closed() -> None:
    def afterwards() -> None:
        raise OSError("the folder stays")

    agent = InProcessAgent(memory=16 * MIB, extent=4 * MIB, afterwards=afterwards)
    with pytest.raises(OSError, match="the folder stays"):
        agent.close()
    agent.close()


def test_the_last_one_opened_is_closed_first(tmp_path: Path) -> None:
    script = """
    from onggi_library.endings import Ending

    class Opened:
        def __init__(self, name, fails=False):
            self.name, self.fails = name, fails
            self.ending = Ending(self)
        def close(self):
            print(self.name, self.ending.comes(), flush=True)
            if self.fails:
                raise OSError("cannot")

    below, fails, above = Opened("below"), Opened("fails", True), Opened("above")
    done = Opened("done")
    done.close()
    """
    child = begun(tmp_path, tmp_path, script)
    out, err = child.communicate(timeout=100)
    assert out == "done True\nabove True\nfails True\nbelow True\n"
    assert "OSError: cannot" in err


def test_in_a_forked_child_no_end_comes() -> None:
    class Opened:
        def close(self) -> None:
            os._exit(1)

    opened = Opened()
    ending = Ending(opened)
    child = os.fork()
    if child == 0:
        comes = ending.comes()
        os._exit(3 if comes else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ending.comes()
