"""Running commands and waiting: every command is checked, every wait has an end and a hint."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final

POLL_S: Final = 0.1
STDERR_TAIL: Final = 600
"""Characters of a failed command's complaint worth repeating."""


class Failed(Exception):
    """A step did not work; the message says which one and where to look."""


def call(
    *argv: str | Path | int,
    stdin: str | None = None,
    output: IO[Any] | None = None,
    detached: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises Failed, with the end of its complaint, if it failed."""
    done = attempt(*argv, stdin=stdin, output=output, detached=detached)
    if done.returncode:
        words = " ".join(map(str, argv))
        complaint = (done.stderr or "").strip()[-STDERR_TAIL:]
        raise Failed(f"{words}: exit {done.returncode}: {complaint}")
    return done


def attempt(
    *argv: str | Path | int,
    stdin: str | None = None,
    output: IO[Any] | None = None,
    detached: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command whose failure is an answer, not a fault."""
    sink = subprocess.PIPE if output is None else output
    return subprocess.run(
        [str(word) for word in argv],
        text=True,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=sink,
        stderr=sink,
        start_new_session=detached,
        check=False,
    )


def wait_for(what: str, ready: Callable[[], bool], seconds: float, hint: str = "") -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise Failed(f"{what}: not after {seconds:g} s. {hint}".strip())
        time.sleep(POLL_S)


def flags(**values: object) -> list[str]:
    """`flags(bind_address="::1")` is `["--bind-address=::1"]`."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def words(argv: Sequence[object]) -> list[str]:
    return [str(word) for word in argv]
