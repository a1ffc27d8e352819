"""Parts that several messages share: a list of keys, a list of offsets, a text, a fixed struct."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.frame import KEYS_MAX, OFFSETS_MAX, Status, WireError

_COUNT: Final = struct.Struct("<I")
COUNT_BYTES: Final = _COUNT.size
_LENGTH: Final = struct.Struct("<H")
_BATCH: Final = 1024
"""Keys unpacked by one struct call: 5 us instead of 28 for 128 keys cut out one by one, while the
format text stays small enough for struct's own cache."""


def unpack(shape: struct.Struct, payload: bytes, at: int, where: str) -> tuple[Any, ...]:
    """The fields of `shape` at offset `at`. Raises WireError (BAD_FRAME) if cut short."""
    if len(payload) - at < shape.size:
        raise WireError(
            Status.BAD_FRAME,
            f"{where} has {len(payload)} bytes; it needs at least {at + shape.size}",
        )
    return shape.unpack_from(payload, at)


def whole(payload: bytes, at: int, where: str) -> None:
    """Refuses bytes beyond the last field: a peer that sends them means something else."""
    if len(payload) != at:
        raise WireError(Status.BAD_FRAME, f"{where} has {len(payload)} bytes; its fields take {at}")


def text_to(text: str) -> bytes:
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


def text_from(payload: bytes, at: int, where: str) -> tuple[str, int]:
    """A text and the offset behind it."""
    (length,) = unpack(_LENGTH, payload, at, where)
    at += _LENGTH.size
    raw = payload[at : at + length]
    if len(raw) != length:
        raise WireError(Status.BAD_FRAME, f"{where} is cut: {len(raw)} of {length} bytes")
    try:
        return raw.decode(), at + length
    except UnicodeDecodeError as error:
        raise WireError(Status.BAD_FRAME, f"{where} is not UTF-8: {error.reason}") from None


def keys_to(keys: Sequence[bytes]) -> bytes:
    """Keys of 16 bytes each, after their count. The caller holds to KEYS_MAX."""
    return _COUNT.pack(len(keys)) + b"".join(keys)


def keys_from(payload: bytes, at: int, where: str, most: int = KEYS_MAX) -> tuple[bytes, ...]:
    """The keys that fill the rest of a payload."""
    (count,) = unpack(_COUNT, payload, at, where)
    at += _COUNT.size
    if count > most:
        raise WireError(Status.BAD_REQUEST, f"{where} has {count} keys; the limit is {most}")
    whole(payload, at + count * DIGEST_BYTES, where)
    keys: list[bytes] = []
    for begin in range(0, count, _BATCH):
        some = min(_BATCH, count - begin)
        keys += struct.unpack_from("16s" * some, payload, at + begin * DIGEST_BYTES)
    return tuple(keys)


def offsets_to(offsets: Sequence[int]) -> bytes:
    return _COUNT.pack(len(offsets)) + struct.pack(f"<{len(offsets)}Q", *offsets)


def offsets_from(payload: bytes, at: int, where: str) -> tuple[tuple[int, ...], int]:
    """The offsets at `at`, and the place behind them."""
    (count,) = unpack(_COUNT, payload, at, where)
    at += _COUNT.size
    if count > OFFSETS_MAX:
        raise WireError(
            Status.BAD_FRAME, f"{where} has {count} offsets; the limit is {OFFSETS_MAX}"
        )
    end = at + 8 * count
    if len(payload) < end:
        raise WireError(Status.BAD_FRAME, f"{where} is cut: {len(payload)} of {end} bytes")
    return struct.unpack_from(f"<{count}Q", payload, at), end


def numbers_to(numbers: Sequence[int]) -> bytes:
    """Small numbers, after their count: one a space."""
    return _LENGTH.pack(len(numbers)) + struct.pack(f"<{len(numbers)}I", *numbers)


def numbers_from(payload: bytes, at: int, where: str) -> tuple[tuple[int, ...], int]:
    """The numbers at `at`, and the place behind them."""
    (count,) = unpack(_LENGTH, payload, at, where)
    shape = struct.Struct(f"<{count}I")
    at += _LENGTH.size
    return unpack(shape, payload, at, where), at + shape.size


def chains_to(chains: Sequence[Sequence[bytes]]) -> bytes:
    """Chains of keys: how long each is, then all keys."""
    lengths = numbers_to([len(chain) for chain in chains])
    return lengths + keys_to([key for chain in chains for key in chain])


def chains_from(payload: bytes, where: str) -> tuple[tuple[bytes, ...], ...]:
    """The chains that fill a payload; there is no empty one."""
    lengths, at = numbers_from(payload, 0, where)
    keys = keys_from(payload, at, where)
    if sum(lengths) != len(keys) or 0 in lengths:
        said = f"{where} has {len(keys)} keys for chains of {list(lengths[:8])}"
        raise WireError(Status.BAD_REQUEST, f"{said}; name as many as the chains have, no 0")
    ends = list(accumulate(lengths, initial=0))
    return tuple([keys[begin:end] for begin, end in pairwise(ends)])
