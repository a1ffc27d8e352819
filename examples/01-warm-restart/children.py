"""The demo's two children, agent and model: started on a leash, talked to by lines, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attention import Attention

LEASH: Final = Path(__file__).with_name("leash.py")
LOG_TAIL_BYTES: Final = 2000
LINE_BYTES_MAX: Final = 64 * 1024
"""An event is some hundred bytes; a longer line is not one."""
READ_BYTES: Final = 4096
POLL_S: Final = 0.01


class ChildFailed(Exception):
    """A child ended, or said nothing, when it should have answered. The message has its last
    words."""


class Child:
    """A running program. Standard error goes to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        attention: Attention,
    ) -> None:
        self.name = name
        self._log = log
        self._attention = attention
        self._unread = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(LEASH), str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                bufsize=0,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ask(self, line: str) -> None:
        """Send one line. Raises ChildFailed if the child is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError as gone:
            raise self.failure("ended early") from gone

    def event(self, timeout_s: float) -> dict[str, Any]:
        """The next JSON line it says. Raises ChildFailed, Interrupted."""
        assert self._process.stdout is not None
        fd, deadline_s = self._process.stdout.fileno(), time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            if not self._attention.wait([fd], deadline_s - time.monotonic()):
                raise self.failure(f"said nothing for {timeout_s:.0f} s")
            data = os.read(fd, READ_BYTES)
            if not data or len(self._unread) > LINE_BYTES_MAX:
                raise self.failure("ended early" if not data else "says too much")
            self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        said: dict[str, Any] = json.loads(line)
        return said

    def stop(self, timeout_s: float) -> None:
        """Ask it to end by SIGTERM. Raises ChildFailed if it does not, or not with exit code 0."""
        self._process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + timeout_s
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline_s:
                raise self.failure(f"did not end within {timeout_s:.0f} s")
            self._attention.sleep(POLL_S)
        if code:
            raise self.failure("did not end well")

    def kill(self) -> None:
        """End it at once, with whatever it started; safe to call again."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._process.returncode is None:
            self._process.kill()
            with contextlib.suppress(ProcessLookupError):  # none but itself, and it is gone
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def failure(self, what: str) -> ChildFailed:
        """`what` went wrong, and the end of what it wrote to its log."""
        last_words = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        code = self._process.poll()
        ended = f" (exit code {code})" if code is not None else ""
        return ChildFailed(f"the {self.name} {what}{ended}\n{last_words}".strip())
