"""The agent under test: a real one, in folders of its own, restarted when a bench asks."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.children import start_child
from onggi import Client, SpaceSpec, fingerprint

READY_S: Final = 60.0
END_S: Final = 20.0
POLL_S: Final = 0.02
SETTLE_S: Final = 15.0
QUIET_S: Final = 0.3
QUIET_SHARE: Final = 0.1
"""Of a core, over QUIET_S: less than that is an agent at rest (it ticks four times a second)."""
DEADLINE_S: Final = 10.0
"""Of the clients here: a bench waits for a slow answer and reports it; an engine would not."""
PREFIX: Final = "onggi-bench-"
SHARED_MEMORY: Final = Path("/dev/shm")


QUIET: Final = logging.getLogger("onggi-bench-start")
QUIET.disabled = True  # that an agent is not there yet is no news here


class AgentFailed(Exception):
    """The agent did not start or end as it should. The message has its last words."""


def attach(client: Client) -> None:
    """Until `client` has its session: on a busy machine even a HELLO may be late. Raises
    AgentFailed."""
    give_up_s = time.monotonic() + READY_S
    while not client.attached:
        if time.monotonic() > give_up_s:
            raise AgentFailed(f"no session within {READY_S:.0f} s")
        time.sleep(POLL_S)


def space_for(page_bytes: int, block_tokens: int = 16) -> SpaceSpec:
    fields: dict[str, str | int] = {"model": "bench", "page_bytes": page_bytes}
    return SpaceSpec(fingerprint(fields), page_bytes, block_tokens)


class AgentUnderTest:
    """`with AgentUnderTest(memory="512MiB") as agent:` removes everything at the end.

    disk: size of the disk tier; "0" for none. identity: what it tells an operator of itself, by
    variable; its token is its pod's name. flags: more of the agent's own.
    """

    def __init__(
        self,
        *,
        memory: str,
        disk: str = "0",
        extent: str = "64MiB",
        identity: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self._memory = memory
        self._disk = disk
        self._extent = extent
        self._identity = dict(identity or {})
        self._flags = tuple(flags)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> AgentUnderTest:
        """Raises AgentFailed, with nothing left behind."""
        in_memory = str(SHARED_MEMORY) if os.access(SHARED_MEMORY, os.W_OK) else None
        with ExitStack() as stack:
            run = stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, dir=in_memory))
            disk = stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX))
            self.socket = Path(run) / "agent.sock"
            self.disk_folder = Path(disk)
            stack.callback(self._kill)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _kill(self) -> None:
        """The folders go, so nothing needs an orderly end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def client(self, *spaces: SpaceSpec) -> Client:
        """Attached, its page table filled as by a connector in idle time. Raises AgentFailed."""
        log = logging.getLogger("onggi-bench")
        client = Client(str(self.socket), spaces=spaces, deadline_s=DEADLINE_S, log=log)
        attach(client)
        while client.populate_next():
            continue
        return client

    def start(self) -> None:
        """Until its whole arena is touched. Raises AgentFailed."""
        self.launch()
        self.wait_until(
            lambda stats: stats["arena_ready_bytes"] >= stats["arena_budget_bytes"],
            "its memory ready",
        )
        self._settle()

    def launch(self) -> None:
        """And wait for nothing."""
        command = [sys.executable, "-m", "onggi_sidecar", "agent", "--memory", self._memory]
        command += ["--extent", self._extent, "--disk", self._disk]
        command += ["--disk-path", str(self.disk_folder / "tier")]
        command += ["--socket", str(self.socket), "--http-port", "0", "--log-level", "warning"]
        command += ["--io-deadline-s", "30"]  # a slow disk is measured, not given up
        environment = {f"ONGGI_AGENT_{name}": value for name, value in self._identity.items()}
        if self._identity:
            file = self.disk_folder / "token"
            file.write_text(self._identity["POD_NAME"])
            environment["ONGGI_AGENT_TOKEN_FILE"] = str(file)
        environment = {**os.environ, **environment}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an image has it; so does a second start
        self._process = start_child([*command, *self._flags], self._log, env=environment)

    def _settle(self) -> None:
        """Until it does nothing by itself any more: it answers before all of its libraries are
        loaded, and a second of that beside the first figures would be measured as theirs."""
        give_up_s = time.monotonic() + SETTLE_S
        before_s = self._cpu_s()
        while time.monotonic() < give_up_s:
            time.sleep(QUIET_S)
            now_s = self._cpu_s()
            if now_s - before_s < QUIET_SHARE * QUIET_S:
                return
            before_s = now_s

    def _cpu_s(self) -> float:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        user, system = int(fields[11]), int(fields[12])  # utime and stime, see proc(5)
        return (user + system) / os.sysconf("SC_CLK_TCK")

    def beyond_arena_bytes(self) -> int:
        """Resident memory of the process that is not the arena: its own, and its libraries'."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """In an orderly way: the disk tier is kept, the arena is not. Raises AgentFailed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(END_S)
        if code:
            raise AgentFailed(f"the agent ended with exit code {code}: {self._last_words()}")

    def wait_until(self, reached: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Ask the agent for its figures until they are so. Raises AgentFailed."""
        assert self._process is not None
        give_up_s = time.monotonic() + READY_S
        while not self.socket.exists() and self._process.poll() is None:
            if time.monotonic() > give_up_s:
                break
            time.sleep(POLL_S)
        space = SpaceSpec(bytes(16), 4096, 16)  # a session has to name one
        client = Client(str(self.socket), spaces=[space], deadline_s=DEADLINE_S, log=QUIET)
        try:
            while True:
                stats = client.stats()
                if stats and reached(stats):
                    return
                if time.monotonic() > give_up_s or self._process.poll() is not None:
                    raise AgentFailed(f"the agent never got to {what}: {self._last_words()}")
                time.sleep(POLL_S)
        finally:
            client.close()

    @property
    def _log(self) -> Path:
        return self.disk_folder / "agent.log"

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]
