"""A context under a name: what another process needs to go on from it.

Its blocks stay where they are, in the agent's tiers; a record of a few pages says which they are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from onggi_core.identity import DIGEST_BYTES, differing, fingerprint
from onggi_core.wire.requests import SpaceSpec
from onggi_library.context.errors import ContextLost
from onggi_library.context.geometry import Geometry
from onggi_library.context.store import PageStore

RECORD_PAGE_BYTES: Final = 64 * 1024
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A million tokens of 32 layers are some 8 MiB before they are packed."""
UNPACKED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Numbers of blocks in base64 pack to a half or a third."""
_HEAD: Final = struct.Struct("<Q")
VERSION: Final = 1


@dataclass(frozen=True)
class Saved:
    """fields: what shapes keys and values, the model above all. tokens: of each sequence.
    blocks: by layer and sequence, from the first token on; the last one may be filled in part.
    origins: the nonces that the blocks' numbers refer to."""

    fields: Mapping[str, str | int]
    tokens: list[list[int]]
    geometry: Geometry
    origins: list[bytes]
    blocks: list[list[array[int]]]

    @property
    def length(self) -> int:
        return len(self.tokens[0])

    def for_rows(self, count: int) -> Saved:
        """One sequence as so many."""
        return replace(
            self,
            tokens=self.tokens * count,
            blocks=[rows * count for rows in self.blocks],
        )

    def check(self, fields: Mapping[str, str | int], layers: int) -> None:
        """Raises ValueError if it is not of this model."""
        if names := differing(fields, self.fields):
            apart = ", ".join(
                f"{name}: {self.fields.get(name)!r} there, {fields.get(name)!r} here"
                for name in names
            )
            raise ValueError(
                f"what was saved is not of this model ({apart}); restore it into a cache of the "
                "model it is of, or save this one's under another name"
            )
        if len(self.blocks) != layers:
            raise ValueError(f"what was saved has {len(self.blocks)} layers; this model {layers}")


class Shelf:
    """Records of one label, by name. A new one takes the place of the old one."""

    def __init__(self, socket: str | os.PathLike[str], label: str) -> None:
        mark = fingerprint({"library": "saved-1", "label": label})
        self._store = PageStore(socket, SpaceSpec(mark, RECORD_PAGE_BYTES, 1))

    def put(self, name: str, saved: Saved) -> None:
        """Raises NoRoom, ContextLost."""
        packed = _pack(saved)
        self.remove(name)
        count = -(-(len(packed) + _HEAD.size) // RECORD_PAGE_BYTES)
        whole = _HEAD.pack(len(packed)) + packed
        page = bytearray(whole.ljust(count * RECORD_PAGE_BYTES, b"\0"))
        rows = torch.frombuffer(page, dtype=torch.uint8)
        self._store.put(_keys(name, count), rows)

    def get(self, name: str) -> Saved | None:
        """None: there is none of this name. Raises ContextLost for one that is not whole."""
        packed = self._read(name)
        return None if packed is None else _unpack(name, packed)

    def remove(self, name: str) -> None:
        """The record; its blocks stay. Of one that does not say how long it is, the first page:
        without that it is none."""
        first = self._page(name)
        if first is None:
            return
        try:
            count = _pages(first)
        except ContextLost:
            count = 1
        self._store.discard(_keys(name, count))

    def close(self) -> None:
        self._store.close()

    def _page(self, name: str) -> Any:
        keys = _keys(name, 1)
        if not self._store.holds(keys):
            return None
        page = torch.empty(RECORD_PAGE_BYTES, dtype=torch.uint8, device="cpu")
        self._store.fetch(keys, page)
        return page

    def _read(self, name: str) -> bytes | None:
        first = self._page(name)
        if first is None:
            return None
        count = _pages(first)
        rows = torch.empty(count * RECORD_PAGE_BYTES, dtype=torch.uint8, device="cpu")
        self._store.fetch(_keys(name, count), rows)
        whole = bytes(rows.numpy())
        (length,) = _HEAD.unpack_from(whole)
        return whole[_HEAD.size : _HEAD.size + length]


def _pages(first: Any) -> int:
    (length,) = _HEAD.unpack(bytes(first[: _HEAD.size].tolist()))
    if length > RECORD_BYTES_MAX:
        raise ContextLost(f"a record says it has {length} bytes; at most {RECORD_BYTES_MAX}")
    return -(-(int(length) + _HEAD.size) // RECORD_PAGE_BYTES)


def _keys(name: str, count: int) -> list[bytes]:
    base = hashlib.sha256(b"onggi-saved-1\0" + name.encode("utf-8", "surrogatepass")).digest()
    return [
        hashlib.sha256(base + struct.pack("<I", number)).digest()[:DIGEST_BYTES]
        for number in range(count)
    ]


def _pack(saved: Saved) -> bytes:
    record = {
        "version": VERSION,
        "order": sys.byteorder,
        "fields": dict(saved.fields),
        "tokens": saved.tokens,
        "geometry": saved.geometry.fields(),
        "origins": [origin.hex() for origin in saved.origins],
        "blocks": [[_text(row) for row in rows] for rows in saved.blocks],
    }
    return zlib.compress(json.dumps(record).encode(), 1)


def _unpack(name: str, packed: bytes) -> Saved:
    try:
        record = json.loads(_inflate(packed))
        if record["version"] != VERSION or record["order"] != sys.byteorder:
            raise ValueError(f"version {record['version']} of a {record['order']} endian machine")
        shape = dict(record["geometry"])
        shape["dtype"] = getattr(torch, shape["dtype"])
        return Saved(
            record["fields"],
            record["tokens"],
            Geometry(**shape),
            [bytes.fromhex(origin) for origin in record["origins"]],
            [[_row(text) for text in rows] for rows in record["blocks"]],
        )
    except (
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as wrong:
        raise ContextLost(f"the record of {name!r} cannot be read: {wrong}") from wrong


def _inflate(packed: bytes) -> bytes:
    """Raises ValueError for more than a record can be, before it is unpacked."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(packed, UNPACKED_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError(f"it is cut short, or larger than {UNPACKED_BYTES_MAX} bytes")
    return found


def _text(row: array[int]) -> str:
    return base64.b64encode(row.tobytes()).decode()


def _row(text: str) -> array[int]:
    row = array("Q")
    row.frombytes(base64.b64decode(text))
    return row
