"""Digests of 16 bytes, one after the other: a million as objects would take 64 MB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import Final, overload

from onggi_core.errors import BadRequest
from onggi_core.identity import DIGEST_BYTES

_ONE: Final = Struct(f"{DIGEST_BYTES}s")
_MANY: Final = Struct(f"{DIGEST_BYTES}s" * 64)


def cut(raw: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """Each digest of `raw` as an object of its own. Many by one call take a third of the time."""
    whole = len(raw) - len(raw) % _MANY.size
    many = _MANY.iter_unpack(memoryview(raw)[:whole])
    return chain(
        chain.from_iterable(many), chain.from_iterable(_ONE.iter_unpack(memoryview(raw)[whole:]))
    )


def common(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """How many digests from the first on are the same. `one` may be the shorter."""
    size = len(one)
    differs = int.from_bytes(one, "little") ^ int.from_bytes(other[:size], "little")
    first = ((differs & -differs).bit_length() - 1) // 8 if differs else size
    return first // DIGEST_BYTES


class Digests(Sequence[bytes]):
    """A sequence of digests over the bytes of all of them. raw: not to be changed any more."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes | bytearray) -> None:
        self.raw = raw

    @classmethod
    def of(cls, what: str, digests: Sequence[bytes]) -> Digests:
        """The same digests, packed if they are not yet. Raises BadRequest, naming `what`."""
        if isinstance(digests, Digests):
            return digests
        if not set(map(len, digests)) <= {DIGEST_BYTES}:
            odd = next(one for one in digests if len(one) != DIGEST_BYTES)
            raise BadRequest(what, odd, f"each has {DIGEST_BYTES} bytes")
        return cls(b"".join(digests))

    def __len__(self) -> int:
        return len(self.raw) // DIGEST_BYTES

    def __iter__(self) -> Iterator[bytes]:
        return cut(self.raw)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        begin = range(len(self))[index] * DIGEST_BYTES
        return bytes(self.raw[begin : begin + DIGEST_BYTES])
