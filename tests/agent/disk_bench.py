"""A disk tier on a real folder, stepped by hand: what the disk tests share."""

import contextlib
import itertools
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from onggi_core.engine.actions import ReadRun, WriteRun
from onggi_core.engine.events import IoOutcome, ReadEnded, WriteEnded
from onggi_core.geometry import stride
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    RECORD,
    RECORD_BYTES,
    REGIONS_OFFSET,
    close_block,
    pack_record,
    patch_record,
)
from onggi_sidecar.disk.recovery import RecoveryReport, recover
from onggi_sidecar.disk.segments import Segments
from onggi_sidecar.disk.tier import DiskTier
from onggi_sidecar.disk.workers import Workers

MIB = 1024 * 1024
PAGE_BYTES = 128 * 1024 - 100  # not a multiple of 4 KiB, as real pages may be
SPACE = SpaceSpec(b"f" * 16, PAGE_BYTES, 16)
WAIT_S = 60.0
Fields = tuple[bytes, bytes, bytes, int]
"""Of a record: key, parent, checksum, space number."""


class Memory(Protocol):
    def view(self, offset_bytes: int, length_bytes: int) -> memoryview: ...


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def pattern(number: int, length_bytes: int = PAGE_BYTES) -> bytes:
    """Bytes that belong to one block alone."""
    return (b"%15d\n" % number * (length_bytes // 16 + 1))[:length_bytes]


@dataclass
class Found:
    """A block that a tier says it holds."""

    key: bytes
    parent: bytes
    place: int
    checksum: bytes


@dataclass
class Bench:
    """One life of a disk tier. Page memory offset 0 is written from, 1 MiB is read into."""

    folder: Path
    memory: Memory
    budget_bytes: int = 64 * MIB
    io_deadline_s: float = 5.0
    threads: int = 2
    wall_clock: Callable[[], float] = time.time
    ends: "queue.Queue[WriteEnded | ReadEnded]" = field(default_factory=queue.Queue)
    adopted: dict[bytes, Found] = field(default_factory=dict)
    spaces: dict[bytes, SpaceSpec] = field(default_factory=dict)
    killed: bool = False
    jobs: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        found = recover(self.folder, budget_bytes=self.budget_bytes, dice=lambda n: b"u" * n)
        self.report: RecoveryReport = found.report
        self.table = found.table
        self.plan = found.plan
        for event in found.adopted:
            rows = zip(event.keys, event.parents, event.places, event.checksums, strict=True)
            self.adopted |= {row[0]: Found(*row) for row in rows}
            self.spaces |= dict.fromkeys(event.keys, event.space)
        self.workers = Workers(time.monotonic, threads=self.threads)
        self.segments = Segments(
            self.folder,
            plan=found.plan,
            tier_uuid=found.table.tier_uuid,
            devices=found.devices,
            unused=found.unused_segments,
            clock=time.monotonic,
        )
        self.tier = DiskTier(
            table=found.table,
            segments=self.segments,
            memory=self.memory,
            workers=self.workers,
            ended=self.ends.put,
            clock=time.monotonic,
            wall_clock=self.wall_clock,
            io_deadline_s=self.io_deadline_s,
        )

    def write(
        self, number: int, place: int, space: SpaceSpec = SPACE, name: bytes | None = None
    ) -> WriteEnded:
        self.memory.view(0, space.page_bytes)[:] = pattern(number, space.page_bytes)
        self.tier.write(
            WriteRun(
                job=next(self.jobs),
                space=space,
                place=place,
                stride_bytes=stride(space.page_bytes),
                offsets=(0,),
                keys=(name or key(number),),
                parents=(key(number - 1) if number else bytes(16),),
            )
        )
        end = self.ends.get(timeout=WAIT_S)
        assert isinstance(end, WriteEnded)
        return end

    def read(self, block: Found, space: SpaceSpec = SPACE) -> bytes | IoOutcome:
        """The page's bytes, or why there are none."""
        self.memory.view(MIB, space.page_bytes)[:] = b"?" * space.page_bytes
        self.tier.read(run_of_one(next(self.jobs), block, space))
        end = self.ends.get(timeout=WAIT_S)
        assert isinstance(end, ReadEnded)
        if end.outcomes != (IoOutcome.DONE,):
            return end.outcomes[0]
        return bytes(self.memory.view(MIB, space.page_bytes))

    def stop(self) -> bool:
        return self.tier.stop(deadline_s=time.monotonic() + WAIT_S)

    def idle(self) -> None:
        """Wait until the tier's own work is done, too."""
        self.workers.drain(deadline_s=time.monotonic() + WAIT_S)
        assert not self.workers.waiting

    def kill(self) -> None:
        """End as a killed process does: nothing more is written, and its files are closed."""
        if not self.workers.stop(deadline_s=time.monotonic() + WAIT_S) and not self.killed:
            self.killed = True
            self.table.close()
            for number in range(self.plan.segments):
                if (device := self.segments.at(number)) is not None:
                    device.close()


def run_of_one(job: int, block: Found, space: SpaceSpec = SPACE) -> ReadRun:
    return ReadRun(
        job=job,
        space=space,
        place=block.place,
        stride_bytes=stride(space.page_bytes),
        offsets=(MIB,),
        keys=(block.key,),
        checksums=(block.checksum,),
        prefetch=False,
    )


def place(number: int) -> int:
    """Where block `number` of SPACE lies when written in order."""
    return number * stride(PAGE_BYTES)


def edit(path: Path, offset: int, change: Callable[[bytes], bytes], length: int = 1) -> None:
    """Change bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(length)
        file.seek(offset)
        file.write(change(old))


def record_offset(table: Path, name: bytes) -> int:
    """Where the record of a key lies in the page table."""
    raw = table.read_bytes()
    at = raw.index(name, REGIONS_OFFSET)
    assert at % BLOCK_BYTES % RECORD_BYTES == 0
    return at


def rewrite_record(table: Path, name: bytes, change: Callable[..., Fields | bytes]) -> None:
    """Another record in place of a key's, with a CRC and a digest that fit."""
    at = record_offset(table, name)
    block = at // BLOCK_BYTES * BLOCK_BYTES

    def rewritten(raw: bytes) -> bytes:
        blocks = bytearray(raw)
        fields = change(*RECORD.unpack_from(raw, at - block))
        record = fields if isinstance(fields, bytes) else pack_record(*fields)
        patch_record(blocks, (at - block) // RECORD_BYTES, record)
        close_block(blocks, 0)
        return bytes(blocks)

    edit(table, block, rewritten, BLOCK_BYTES)


def fill_up(path: Path) -> None:
    """Take all the room that a filesystem has."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
