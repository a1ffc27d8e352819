"""The folder of a disk tier with anything in its page table, as an agent finds it at its start.

An input is a list of patches on a table that is right; with the first byte even, CRCs and digests
are made right again behind them, so that what they guard is tried too. Whatever is in the files, an
agent starts: recovery does not raise, and the engine takes over what recovery found.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from onggi_core.engine.engine import Engine
from onggi_core.engine.state import Facts
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    ENTRY,
    HEADER,
    RECORD_BYTES,
    RECORDS_BYTES,
    REGIONS_OFFSET,
    SPACE_BYTES,
    SPACES_OFFSET,
    TableLayout,
    close_block,
    with_crc,
)
from onggi_sidecar.disk.recovery import RecoveredTier, recover
from onggi_sidecar.disk.segment import pack_segment_header, segment_path
from onggi_sidecar.disk.table import TABLE_NAME, PageTable, TableState

BUDGET_BYTES: Final = 16 << 20
SEGMENT_BYTES: Final = 4 << 20
EXTENT_BYTES: Final = 1 << 20
UUID: Final = b"u" * 16
PATCH: Final = struct.Struct("<IB")
"""Where, how many bytes; then the bytes."""
_LAYOUT: Final = TableLayout(SEGMENT_BYTES)
_SPACES: Final = (SpaceSpec(b"f" * 16, 4096, 16), SpaceSpec(b"g" * 16, 12289, 16))
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="onggi-fuzz-tier-")


def patch(where: int, raw: bytes) -> bytes:
    return PATCH.pack(where, len(raw)) + raw


SEEDS: Final = (
    b"\x00",
    b"\x00" + patch(32, SEGMENT_BYTES.to_bytes(8, "little")),
    b"\x00" + patch(SPACES_OFFSET, b"f" * 16 + (4096).to_bytes(8, "little")),
    b"\x00" + patch(_LAYOUT.entry_offset(1), b"SGMT\x01\0\0\0" + (16384).to_bytes(8, "little")),
    b"\x00" + patch(_LAYOUT.blocks_offset(0), b"\x01" * 48 + bytes(4)),
    b"\x01" + patch(_LAYOUT.blocks_offset(0) + 8, b"\xff"),
)


def tier(data: bytes) -> None:
    folder = Path(_FOLDER.name, "tier")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(3):
        header = pack_segment_header(number, UUID, SEGMENT_BYTES)
        segment_path(folder, number).write_bytes(header)
    table = bytearray(_right_table())
    for where, raw in _patches(data[1:], len(table)):
        table[where : where + len(raw)] = raw
        if data[0] % 2 == 0:
            _mend(table, where)
    (folder / TABLE_NAME).write_bytes(table)
    found = recover(folder, budget_bytes=BUDGET_BYTES, dice=bytes)
    try:
        _taken_over(found)
    finally:
        found.table.close()
        for device in found.devices.values():
            device.close()


def _taken_over(found: RecoveredTier) -> None:
    facts = Facts(
        epoch=b"e" * 16,
        arena="arena",
        arena_bytes=EXTENT_BYTES,
        data_offset=0,
        extent_bytes=EXTENT_BYTES,
        extents=1,
        segment_bytes=found.plan.segment_bytes,
        segments=found.plan.segments,
    )
    engine = Engine(facts)
    for event in found.adopted:
        engine.step(event, 0.0)
    assert engine.stats()["disk_pages"] <= found.report.adopted_blocks


@cache
def _right_table() -> bytes:
    path = Path(_FOLDER.name, "right")
    table = PageTable(path, TableState(UUID, SEGMENT_BYTES))
    for segment, space, pages in ((0, 0, 100), (1, 1, 5), (2, 0, 1)):
        stride = -(-_SPACES[space].page_bytes // 4096) * 4096
        table.assign(segment, stride)
        keys = [bytes([segment]) * 8 + n.to_bytes(8, "big") for n in range(pages)]
        table.put(
            _SPACES[space],
            segment * SEGMENT_BYTES,
            stride_bytes=stride,
            keys=keys,
            parents=[bytes(16), *keys[:-1]],
            checksums=keys,
            now_s=1e9,
        )
    table.seal(2e9, wait_s=1.0)
    table.close()
    return path.read_bytes()


def _patches(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + PATCH.size <= len(data):
        where, length = PATCH.unpack_from(data, at)
        at += PATCH.size
        where %= size
        yield where, data[at : at + length][: size - where]
        at += length


def _mend(table: bytearray, where: int) -> None:
    """Makes right what guards the thing that lies at `where`."""
    if where < SPACES_OFFSET:
        table[: HEADER.size + 4] = with_crc(bytes(table[: HEADER.size]))
    elif where < REGIONS_OFFSET:
        begin = where // SPACE_BYTES * SPACE_BYTES
        table[begin : begin + SPACE_BYTES] = with_crc(bytes(table[begin : begin + SPACE_BYTES - 4]))
    else:
        segment, within = divmod(where - REGIONS_OFFSET, _LAYOUT.region_bytes)
        begin = _LAYOUT.entry_offset(segment)
        if within < BLOCK_BYTES:
            entry = with_crc(bytes(table[begin : begin + ENTRY.size]))
            table[begin : begin + len(entry)] = entry
            return
        block = within // BLOCK_BYTES * BLOCK_BYTES + begin
        at = block + min((within % BLOCK_BYTES) // RECORD_BYTES * RECORD_BYTES, RECORDS_BYTES)
        if at + RECORD_BYTES <= block + RECORDS_BYTES:
            table[at : at + RECORD_BYTES] = with_crc(bytes(table[at : at + RECORD_BYTES - 4]))
        if block + BLOCK_BYTES <= len(table):
            one = table[block : block + BLOCK_BYTES]
            close_block(one, 0)
            table[block : block + BLOCK_BYTES] = one
