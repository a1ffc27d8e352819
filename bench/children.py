"""Processes that end when the bench does, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)
_TURN: Final = Path("/proc/self/autogroup")
LAST_WORDS_BYTES: Final = 3000
STOP_S: Final = 10.0


class ChildFailed(Exception):
    """A child ended, or said that it cannot. The message has its last words."""


def _turn() -> str:
    """This session's turn among others on the processor; empty where the kernel has no such. A
    child is a session of its own, and would have another turn than the peers that are none."""
    try:
        return _TURN.read_text().rsplit("nice", 1)[1].strip()
    except (OSError, IndexError):
        return ""


def tie(parent: int) -> Callable[[], None]:
    """What a child does before it becomes its program: it goes when `parent` does."""

    turn = _turn()

    def tied() -> None:
        os.setsid()  # Ctrl-C goes to the bench alone
        if turn:
            with contextlib.suppress(OSError):  # not root: as the kernel has it
                _TURN.write_text(turn)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)

    return tied


def start_child(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to `log`. Only for a parent without threads: what runs
    between fork and exec could wait for a lock that one of them held."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env=env, preexec_fn=tie(os.getpid())
        )


def stop_child(process: subprocess.Popen[bytes]) -> None:
    """Asked first, since some clean up behind themselves; then made to."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-LAST_WORDS_BYTES:].strip() if log.exists() else ""


class Talker:
    """A child that answers a line of JSON for each it is sent, see bench/peers/talk.py."""

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str], answer_s: float
    ) -> None:
        """answer_s: how long an answer may take before the child is ended."""
        self._log = log
        self._answer_s = answer_s
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=env,
                preexec_fn=tie(os.getpid()),
            )

    def __enter__(self) -> Talker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tell(self, **what: Any) -> None:
        """Send a line; hear() has the answer. Raises ChildFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as gone:
            raise ChildFailed(f"it ended: {last_words(self._log)}") from gone

    def hear(self) -> dict[str, Any]:
        """Raises ChildFailed for an error it answers, for its end, and when it is late."""
        assert self._process.stdout is not None
        there, _, _ = select.select([self._process.stdout], [], [], self._answer_s)
        if not there:
            raise ChildFailed(f"no answer in {self._answer_s:.0f} s: {last_words(self._log)}")
        line = self._process.stdout.readline()
        if not line:
            raise ChildFailed(f"it ended: {last_words(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildFailed(str(answer["error"]))
        return answer

    def ask(self, **what: Any) -> dict[str, Any]:
        self.tell(**what)
        return self.hear()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
