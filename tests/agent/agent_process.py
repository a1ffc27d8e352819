"""A real agent process and a bare client of its protocol: what the process tests share."""

import contextlib
import json
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from onggi_core.identity import ROOT
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import Status, frame
from onggi_core.wire.replies import (
    LoadPrepared,
    Looked,
    Reply,
    StatsReply,
    StorePrepared,
    Welcome,
    decode_reply,
)
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    LoadPrepare,
    Lookup,
    Request,
    SpaceSpec,
    StatsRequest,
    StoreComplete,
    StoreOutcome,
    StorePrepare,
)

REPOSITORY = Path(__file__).parents[2]
MIB = 1024 * 1024
PAGE_BYTES = 64 * 1024
SPACE = SpaceSpec(b"f" * 16, PAGE_BYTES, 16)
WAIT_S = 110.0
"""Longer than anything takes on a machine that does ten other things, and shorter than a test may
take, so that what was waited for is named: a start took more than a minute where a soak of the
lowest priority ran beside four builds."""

_RUN = "import sys; from onggi_sidecar.cli import main; sys.exit(main(sys.argv[1:]))"

T = TypeVar("T")


def until(what: str, found: Callable[[], T]) -> T:
    """Ask until the answer is true, within a deadline."""
    give_up_s = time.monotonic() + WAIT_S
    while not (answer := found()):
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not within {WAIT_S} s: {what}")
    return answer


SMALL = ("--memory", "16MiB", "--extent", "4MiB")


class StartAgent(Protocol):
    def __call__(self, *flags: str, **environment: str) -> "AgentProcess": ...


def ready(agent: "AgentProcess") -> "BareClient":
    """A client of a SMALL agent whose whole arena is touched."""
    agent.wait_for("arena_ready")
    agent.wait_for("listening")
    client = BareClient(agent)
    until("the arena to be offered", lambda: client.stats()["arena_ready_bytes"] == 16 * MIB)
    return client


class AgentProcess:
    """`onggi agent` with a socket folder and, if asked, a disk folder. Logs are read as events."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        patch: str = "",
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """patch: Python run in the process before the agent, for faults that only code can make;
        prefix: words in front of the command, which become it."""
        self.folder = folder
        self.socket_path = folder / "agent.sock"
        self.lines: list[dict[str, Any]] = []
        self.clients: list[BareClient] = []
        self._arrived: queue.Queue[dict[str, Any]] = queue.Queue()
        program = ["-c", f"{patch}\n{_RUN}"] if patch else ["-m", "onggi_sidecar"]
        command = [*prefix, sys.executable, *program, "agent"]
        command += ["--socket", str(self.socket_path), "--http-port", "0", *flags]
        paths = [str(REPOSITORY / "sidecar"), str(REPOSITORY / "operator")]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                read = json.loads(line)
            except ValueError:
                read = {"event": "text", "message": line.rstrip()}
            self.lines.append(read)
            self._arrived.put(read)

    def wait_for(self, name: str) -> dict[str, Any]:
        """The first event of that name, said already or still to come."""
        give_up_s = time.monotonic() + WAIT_S
        while True:
            if found := self.said(name):
                return found[0]
            try:
                self._arrived.get(timeout=max(0.0, give_up_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {name} within {WAIT_S} s; got {self.lines}") from None

    def said(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code. All of its log is read then."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def clean_up(self) -> None:
        """End the process if it runs, and whatever a failed test left open."""
        for client in self.clients:
            client.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        assert self.process.stderr is not None
        self._reader.join(WAIT_S)
        self.process.stderr.close()


class BareClient:
    """Speaks the protocol with nothing in between; one call at a time unless told otherwise."""

    def __init__(self, agent: AgentProcess, *spaces: SpaceSpec, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(agent.socket_path))
        agent.clients.append(self)
        self._cutter = Cutter()
        self._frames: list[Frame] = []
        self._next = 0
        self.arena: mmap.mmap | None = None
        if greet:
            welcome = self.call(Hello(os.getpid(), "test", spaces or (SPACE,)))
            assert isinstance(welcome, Welcome)
            self.welcome = welcome
            with (agent.folder / welcome.arena).open("r+b") as file:
                self.arena = mmap.mmap(file.fileno(), 0)

    def post(self, request: Request) -> int:
        self._next += 1
        self.socket.sendall(frame(request.op, 0, self._next, request.encode()))
        return self._next

    def next_frame(self) -> Frame | None:
        """The next frame; None when the agent closed the stream."""
        while not self._frames:
            try:
                data = self.socket.recv(256 * 1024)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._cutter.feed(data)
        return self._frames.pop(0)

    def call(self, request: Request) -> Reply:
        number = self.post(request)
        got = self.next_frame()
        assert got is not None, "the agent closed the stream"
        assert got.request_id == number
        assert got.status == Status.OK, got.payload.decode()
        return decode_reply(got.op, got.payload)

    def store(self, blocks: dict[bytes, bytes], parent: bytes = ROOT) -> int:
        """Store a chain; answers how many blocks got a page."""
        assert self.arena is not None
        reply = self.call(StorePrepare(0, parent, tuple(blocks)))
        assert isinstance(reply, StorePrepared)
        given = 0
        for offset, page in zip(reply.slots, blocks.values(), strict=True):
            if offset < len(self.arena):
                self.arena[offset : offset + len(page)] = page
                given += 1
        if reply.ticket:
            self.call(StoreComplete(reply.ticket, StoreOutcome.SEALED))
        return given

    def load(self, keys: tuple[bytes, ...], wait_ms: int = 10_000) -> list[bytes]:
        """The bytes of the leading blocks that are there."""
        assert self.arena is not None
        reply = self.call(LoadPrepare(wait_ms, keys))
        assert isinstance(reply, LoadPrepared)
        if not reply.ticket:
            return []
        pages = [bytes(self.arena[at : at + PAGE_BYTES]) for at in reply.offsets[0]]
        assert self.arena[16:32] == self.welcome.epoch
        self.call(LoadComplete(reply.ticket, LoadOutcome.LOADED, len(pages)))
        return pages

    def looked(self, *keys: bytes) -> tuple[int, int]:
        reply = self.call(Lookup(keys))
        assert isinstance(reply, Looked)
        return reply.ready, reply.pending

    def stats(self) -> dict[str, Any]:
        reply = self.call(StatsRequest())
        assert isinstance(reply, StatsReply)
        return reply.stats

    def wait_until_on_disk(self, blocks: int) -> None:
        until(f"{blocks} blocks on disk", lambda: self.stats()["disk_pages"] >= blocks)
        until("writes to end", lambda: self.stats()["writes_in_flight"] == 0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        if self.arena is not None:
            self.arena.close()


def chain(count: int, seed: int = 0) -> dict[bytes, bytes]:
    """Blocks by key, each with bytes that belong to it alone."""
    return {
        (seed * 1_000_000 + n).to_bytes(16, "big"): (
            (b"%15d\n" % (seed * 1_000_000 + n)) * (PAGE_BYTES // 16)
        )
        for n in range(1, count + 1)
    }
