"""An engine's HTTP server as a process, started by the command that a page of docs/ prints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"

UP_WITHIN_S = 900
"""Three processes import an engine each, on a machine that may be busy."""
ANSWER_S = 120


def printed(page: str, begins: str, says: str = "") -> str:
    """The one indented block of a page that begins so, and says that, for a shell."""
    blocks = re.findall(r"(?:^    .*\n)+", (DOCS / page).read_text(), re.MULTILINE)
    (block,) = [one for one in blocks if one.strip().startswith(begins) and says in one]
    return textwrap.dedent(block)


def printed_command(page: str, begins: str, says: str = "") -> list[str]:
    """Its words, where it is one command."""
    return shlex.split(printed(page, begins, says).replace("\\\n", " "))


class ServerProcess:
    """`with ServerProcess(command, ...) as server: server.post("/generate", {...})`."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str]) -> None:
        """command: without port; it is given one of its own."""
        self.log = log
        self.port = free_port()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def __enter__(self) -> ServerProcess:
        until_s = time.monotonic() + UP_WITHIN_S
        try:
            while not self._healthy():
                assert self._process.poll() is None, f"the server ended\n{self.tail()}"
                assert time.monotonic() < until_s, f"the server did not start\n{self.tail()}"
                time.sleep(0.5)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        """Told to end first, so that what it has in hand is kept."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """End it and its children at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-5000:]

    def _healthy(self) -> bool:
        try:
            self.get("/health")
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        return self._ask(path, None)

    def send(self, path: str, body: dict[str, Any]) -> str:
        return self._ask(path, json.dumps(body).encode())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return json.loads(self.send(path, body))

    def _ask(self, path: str, body: bytes | None) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise OSError(f"{path} was answered with {error.code}: {said}") from error
        return text

    def metric(self, name: str) -> float:
        """Of all its label sets together."""
        found = re.findall(rf"^{re.escape(name)}(?:{{.*?}})? (\S+)$", self.get("/metrics"), re.M)
        return sum(map(float, found))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
