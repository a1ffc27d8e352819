"""Segments: preallocated files, each room for pages of one size at a time.

A segment is one 4 KiB page of header and then the tier's `segment_bytes` of pages. Pages carry no
header of their own: what lies at a place is said, and proved by checksum, in the page table.
Header, little-endian, packed (docs/formats.md):

    0  8s  magic          b"ONGGISEG"
    8  u32 version        2
   12  u32 number         also in the file's name
   16  16s tier uuid      the page table's; a segment of another tier is never read
   32  u64 segment bytes  the page table's; without the header
   40  u32 crc32 of bytes 0..39
"""

import os
import re
import stat
import struct
import zlib
from pathlib import Path
from typing import Final

from onggi_core.geometry import ALIGN_BYTES
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.layout import SEGMENT_VERSION

SEGMENT_MAGIC: Final = b"ONGGISEG"
SEGMENT_HEADER_BYTES: Final = ALIGN_BYTES

_LAYOUT: Final = struct.Struct("<8sII16sQ")
_CRC_BYTES: Final = 4
_NAME: Final = re.compile(r"segment-(\d{6})", re.ASCII)


class DamagedSegment(ValueError):
    """A segment file whose header cannot be believed; its blocks are gone, its room is not."""


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:06d}"


def segment_number(path: Path) -> int | None:
    """The number in a segment's file name; None for any other file."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def pack_segment_header(number: int, tier_uuid: bytes, segment_bytes: int) -> bytes:
    fields = _LAYOUT.pack(SEGMENT_MAGIC, SEGMENT_VERSION, number, tier_uuid, segment_bytes)
    return (fields + zlib.crc32(fields).to_bytes(_CRC_BYTES, "little")).ljust(ALIGN_BYTES, b"\0")


def create_segment(folder: Path, number: int, *, tier_uuid: bytes, segment_bytes: int) -> Device:
    """Preallocate a segment. Raises OSError; a file that could not be made whole is removed."""
    path = segment_path(folder, number)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
    try:
        os.posix_fallocate(fd, 0, SEGMENT_HEADER_BYTES + segment_bytes)
        os.pwrite(fd, pack_segment_header(number, tier_uuid, segment_bytes), 0)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)
    return Device.open(path)


def open_segment(path: Path, *, tier_uuid: bytes, segment_bytes: int) -> Device:
    """Open a segment found on disk. Raises DamagedSegment naming what is wrong, or OSError.

    A file cut short is accepted: reads behind its end fail block by block, which keeps the blocks
    before the cut, and a write behind it makes it whole again.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for ever
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedSegment(f"{path.name} is not a regular file")
        raw = os.pread(fd, _LAYOUT.size + _CRC_BYTES, 0)
    finally:
        os.close(fd)
    if len(raw) < _LAYOUT.size + _CRC_BYTES:
        raise DamagedSegment(f"{path.name} is cut inside its header")
    fields, crc = raw[: _LAYOUT.size], int.from_bytes(raw[_LAYOUT.size :], "little")
    magic, version, number, owner, size_bytes = _LAYOUT.unpack(fields)
    if magic != SEGMENT_MAGIC or zlib.crc32(fields) != crc:
        raise DamagedSegment(f"{path.name} has a damaged header")
    if version != SEGMENT_VERSION:
        raise DamagedSegment(
            f"{path.name} has format {version}; this agent reads {SEGMENT_VERSION}"
        )
    if (owner, number, size_bytes) != (tier_uuid, segment_number(path), segment_bytes):
        raise DamagedSegment(f"{path.name} belongs to another tier or place")
    return Device.open(path)
