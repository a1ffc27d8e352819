"""LOCATE: in which tier blocks lie, for whoever tells others of them."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from onggi_core.wire.fields import keys_from, keys_to, unpack, whole
from onggi_core.wire.frame import LOCATE_KEYS_MAX, Op, Status, WireError


class At(enum.IntEnum):
    """Where a block can be had from; a greater number is nearer."""

    NOWHERE = 0
    DISK = 1
    HOST = 2


_COUNT: Final = struct.Struct("<I")
_TIERS: Final = bytes(At)


@dataclass(frozen=True, slots=True)
class Locate:
    """Of these blocks, in any order. It is no use of them."""

    keys: tuple[bytes, ...]
    op: Op = Op.LOCATE

    def encode(self) -> bytes:
        return keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> Locate:
        return cls(keys_from(payload, 0, "LOCATE", LOCATE_KEYS_MAX))


@dataclass(frozen=True, slots=True)
class Located:
    """tiers: an At for each key that was named, a byte each."""

    tiers: bytes
    op: Op = Op.LOCATE

    def encode(self) -> bytes:
        return _COUNT.pack(len(self.tiers)) + self.tiers

    @classmethod
    def decode(cls, payload: bytes) -> Located:
        (count,) = unpack(_COUNT, payload, 0, "LOCATE")
        whole(payload, _COUNT.size + count, "LOCATE")
        tiers = payload[_COUNT.size :]
        if odd := tiers.translate(None, _TIERS):
            said = f"LOCATE has tier {odd[0]}; use 0 to {max(At).value}"
            raise WireError(Status.BAD_FRAME, said)
        return cls(tiers)
