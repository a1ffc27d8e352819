"""An agent for the client's tests: the real engine and the real protocol, a thread and a dict.

Its "disk" is a dict of pages, so that a test can damage a page, make reads wait for a go-ahead, or
look at what was written. Its behaviour on the socket can be spoilt on purpose: `mute` answers
nothing (a hung agent), `delay_s` answers late, `full` refuses whoever connects.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import Any

from onggi_core.arena_header import DATA_OFFSET_BYTES, EPOCH_OFFSET, ArenaHeader
from onggi_core.engine.actions import Answer, ForgetPage, ReadRun, Refuse, WriteRun
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import (
    Asked,
    Event,
    ExtentTouched,
    IoOutcome,
    ReadEnded,
    SessionClosed,
    SessionOpened,
    Tick,
    WriteEnded,
)
from onggi_core.engine.state import Facts
from onggi_core.wire.cut import Cutter
from onggi_core.wire.frame import FATAL, Status, WireError, frame, refusal
from onggi_core.wire.requests import decode_request

MIB = 1 << 20


class FakeAgent:
    """`with FakeAgent(folder) as agent:` serves on folder/agent.sock until the block ends."""

    def __init__(
        self, folder: Path, *, extents: int = 4, extent_bytes: int = MIB, segments: int = 0
    ) -> None:
        self.socket_path = str(folder / "agent.sock")
        self._folder = folder
        self._extents = extents
        self._extent_bytes = extent_bytes
        self._segments = segments
        self.disk: dict[int, bytes] = {}
        self._kicking = threading.Event()
        self.reads = threading.Event()
        self.reads.set()
        self.mute = False
        self.full = ""
        self.delay_s = 0.0
        self.accepted = 0
        self.ops: list[int] = []
        self.epoch = b""
        self._running = False

    # ---- life

    def start(self) -> FakeAgent:
        self.epoch = os.urandom(16)
        path = self._folder / "arena"
        header = ArenaHeader(self.epoch, self._extent_bytes, self._extents)
        path.unlink(missing_ok=True)
        with path.open("xb") as file:
            file.truncate(header.file_bytes)
            file.seek(0)
            file.write(header.pack())
            file.seek(header.turns_offset)
            file.write((1).to_bytes(4, "little") * self._extents)
        self._fd = os.open(path, os.O_RDWR)
        self.map = mmap.mmap(self._fd, header.file_bytes)
        facts = Facts(
            epoch=self.epoch,
            arena="arena",
            arena_bytes=header.file_bytes,
            data_offset=DATA_OFFSET_BYTES,
            extent_bytes=self._extent_bytes,
            extents=self._extents,
            segment_bytes=self._extent_bytes,
            segments=self._segments,
        )
        self.engine = Engine(facts)
        self._lock = threading.RLock()
        self._peers: dict[int, tuple[socket.socket, Cutter]] = {}
        self._selector = selectors.DefaultSelector()
        Path(self.socket_path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.socket_path)
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, 0)
        for extent in range(self._extents):
            self.step(ExtentTouched(extent))
        self._running = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def stop(self, *, retire: bool = True) -> None:
        """retire: as a clean end or the next start would; False: killed."""
        self._running = False
        self._thread.join()
        for sock, _ in self._peers.values():
            sock.close()
        self._listener.close()
        self._selector.close()
        if retire:
            self.retire()
            os.close(self._fd)

    def retire_leftover(self) -> None:
        """What the next agent does with a killed one's arena before it makes its own."""
        self.retire()
        os.close(self._fd)

    def retire(self) -> None:
        os.pwrite(self._fd, bytes(16), EPOCH_OFFSET)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> FakeAgent:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._running:
            self.stop()

    # ---- what tests look at

    @property
    def clients(self) -> int:
        return len(self._peers)

    def stats(self) -> dict[str, Any]:
        with self._lock:
            return self.engine.stats()

    def kick(self) -> None:
        """Close every connection, as an agent that distrusts its clients; done on its thread."""
        self._kicking.set()

    def dismiss(self, status: Status, why: str) -> None:
        """The same, saying why in a frame that answers no request. Returns once it is done."""
        for number in tuple(self._peers):
            self._send(number, refusal(0, status, 0, why))
        self.kick()
        while self._peers:
            time.sleep(0.002)

    def step(self, event: Event) -> None:
        with self._lock:
            todo = self.engine.step(event, time.monotonic())
            for action in todo:
                self._do(action)

    # ---- the shell

    def _serve(self) -> None:
        numbers = iter(range(1, 1_000_000))
        ticked = 0.0
        while self._running:
            for key, _ in self._selector.select(0.02):
                if key.data == 0:
                    sock, _ = self._listener.accept()
                    number = next(numbers)
                    self.accepted += 1
                    if self.full:
                        sock.sendall(refusal(0, Status.TOO_MANY, 0, self.full))
                        sock.close()
                        continue
                    with self._lock:
                        self._peers[number] = (sock, Cutter())
                        self._selector.register(sock, selectors.EVENT_READ, number)
                    self.step(SessionOpened(number))
                else:
                    self._receive(key.data)
            if self._kicking.is_set():
                self._kicking.clear()
                for number in tuple(self._peers):
                    self._drop(number)
            if time.monotonic() - ticked > 0.02:
                ticked = time.monotonic()
                self.step(Tick())

    def _receive(self, number: int) -> None:
        peer = self._peers.get(number)
        if peer is None:
            return
        sock, cutter = peer
        try:
            data = sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(number)
            return
        if self.delay_s:
            time.sleep(self.delay_s)
        try:
            frames = cutter.feed(data)
        except WireError as error:
            self._send(number, refusal(0, error.status, 0, error.sentence))
            self._drop(number)
            return
        for one in frames:
            self.ops.append(one.op)
            try:
                request = decode_request(one.op, one.payload)
            except WireError as error:
                self._send(number, refusal(one.op, error.status, one.request_id, error.sentence))
                if error.status in FATAL:
                    self._drop(number)
                    return
                continue
            self.step(Asked(number, one.request_id, request))

    def _drop(self, number: int) -> None:
        with self._lock:
            sock, _ = self._peers.pop(number)
            self._selector.unregister(sock)
            sock.close()
            self.step(SessionClosed(number))

    def _send(self, number: int, data: bytes) -> None:
        peer = self._peers.get(number)
        if peer is None or self.mute:
            return
        try:
            peer[0].sendall(data)
        except OSError:
            return

    def _do(self, action: object) -> None:
        match action:
            case Answer(session, request_id, op, reply):
                self._send(session, frame(op, Status.OK, request_id, reply.encode()))
            case Refuse(session, request_id, op, status, sentence):
                self._send(session, refusal(op, status, request_id, sentence))
            case WriteRun():
                self.step(self._written(action))
            case ReadRun():
                threading.Thread(target=self._read, args=(action,), daemon=True).start()
            case ForgetPage():
                self.disk.pop(action.place, None)

    def _written(self, action: WriteRun) -> WriteEnded:
        checksums = []
        for index, at in enumerate(action.offsets):
            page = self.map[at : at + action.space.page_bytes]
            self.disk[action.place + index * action.stride_bytes] = page
            checksums.append(_checksum(page))
        done = (IoOutcome.DONE,) * len(checksums)
        return WriteEnded(action.job, done, tuple(checksums))

    def _read(self, action: ReadRun) -> None:
        self.reads.wait()
        outcomes = []
        for index, (at, checksum) in enumerate(zip(action.offsets, action.checksums, strict=True)):
            page = self.disk.get(action.place + index * action.stride_bytes, b"")
            if _checksum(page) != checksum:
                outcomes.append(IoOutcome.CORRUPT)
                continue
            self.map[at : at + len(page)] = page
            outcomes.append(IoOutcome.DONE)
        self.step(ReadEnded(action.job, tuple(outcomes)))


def _checksum(page: bytes) -> bytes:
    return hashlib.md5(page).digest()
