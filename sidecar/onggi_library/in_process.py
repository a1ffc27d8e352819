"""An agent in a thread of this process: the library's tiers, without anybody to run beside it.

It is the same agent as the sidecar, on the same socket protocol and the same disk format; only
what a process sets for itself (signals, garbage collection, HTTP) is left to the program. Its
folder in shared memory is named after nobody: what a killed program left is removed by the next
one that comes, since the lock in it is free then.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from onggi_library.endings import Ending
from onggi_sidecar import claims
from onggi_sidecar.agent import Agent
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.errors import StartRefused

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  folders in it are made by mkdtemp
PREFIX: Final = "onggi-library-"
LOCK: Final = "owner"
START_WITHIN_S: Final = 70.0
"""An agent gives a disk that hangs 60 s and then starts without it."""
END_MARGIN_S: Final = 5.0
"""Beside what the configuration gives the end: for sealing the page table."""


class InProcessAgent:
    """Made running. Raises StartRefused and OSError as an agent does, and TimeoutError."""

    def __init__(self, *, afterwards: Callable[[], None] | None = None, **settings: Any) -> None:
        """afterwards: called when the agent has ended, on its thread; what it raises, close()
        raises. settings: fields of AgentConfig but the socket. Raises pydantic's ValidationError.
        Who has other names for them looks at them first (own_tiers.py)."""
        self._life = _Life(settings, afterwards)
        self._life.start()
        self._ending = Ending(self, self._life.stop)

    @property
    def socket(self) -> Path:
        return self._life.config.socket

    @property
    def alive(self) -> bool:
        return self._life.thread.is_alive()

    def close(self) -> None:
        """Write down what waits for the disk, end, give the memory back. A forked child's call does
        nothing: the agent is its parent's."""
        if self._ending.comes():
            self._life.end()


class _Life:
    """Of an agent: its thread refers to this, and not to who began it and may forget it."""

    def __init__(self, settings: dict[str, Any], afterwards: Callable[[], None] | None) -> None:
        self._home = _Home()
        try:
            self.config = AgentConfig(socket=self._home.path / "agent.sock", **settings)
        except BaseException:
            self._home.remove()
            raise
        self._afterwards = afterwards
        self._listening = threading.Event()
        self._fault: BaseException | None = None
        """Of the start, or of what came after the end."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._agent: Agent | None = None
        self.thread = threading.Thread(target=self._run, name="onggi-agent", daemon=True)

    def start(self) -> None:
        """Returns when the agent listens."""
        try:
            self.thread.start()
            self._wait_until_it_listens()
        except BaseException:
            self.stop()
            self._home.remove()
            raise

    def stop(self) -> None:
        """Begin the end, and do not wait for it."""
        loop, agent = self._loop, self._agent
        if loop is not None and agent is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                loop.call_soon_threadsafe(agent.stop)

    def end(self) -> None:
        self.stop()
        self.thread.join(self.config.shutdown_deadline_s + END_MARGIN_S)
        self._home.remove()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _wait_until_it_listens(self) -> None:
        if not self._listening.wait(START_WITHIN_S):
            raise TimeoutError(f"the agent did not start within {START_WITHIN_S:g} s")
        if self._fault is not None:
            raise self._fault
        if self.config.disk and self._agent is not None and not self._agent.has_disk:
            self.stop()
            self.thread.join(END_MARGIN_S)
            raise StartRefused(
                f"the disk tier at {self.config.disk_path} cannot be used, as the log says; what "
                "is there stays there: see to the disk, or use another folder"
            )

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as fault:  # noqa: BLE001  raised again where it is waited for
            self._fault = fault
        try:
            self._home.remove()
            if self._afterwards is not None:
                self._afterwards()
        except Exception as fault:  # noqa: BLE001  raised again where it is waited for
            self._fault = self._fault or fault
        finally:
            self._listening.set()

    async def _live(self) -> None:
        self._agent = Agent(self.config, reports=False, listening=self._listening.set)
        self._loop = asyncio.get_running_loop()
        await self._agent.run()


class _Home:
    """A folder in shared memory that is ours while we live."""

    def __init__(self) -> None:
        remove_the_dead()
        self._removing = threading.Lock()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED_MEMORY))
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        claims.claim(self._lock)

    def remove(self) -> None:
        """Once or more often, from any thread."""
        with self._removing:
            if self._lock >= 0:
                shutil.rmtree(self.path, ignore_errors=True)
                claims.release(self._lock)
                self._lock = -1


def remove_the_dead() -> None:
    """Folders of killed programs: nobody holds their lock. One that is being made has no lock file
    yet and stays."""
    for lock_path in SHARED_MEMORY.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, held, or gone meanwhile
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_path.parent)
            finally:
                os.close(lock)
