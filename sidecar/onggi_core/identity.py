"""What makes two blocks the same: a fingerprint of everything that shapes the bytes, and a prefix
hash of everything before the block.

Both are SHA-256 cut to 16 bytes: at 2**40 blocks the chance of any collision is below 2**-48, and
hashlib runs it at hardware speed. Neither depends on a process seed, on pickling or on the Python
version, so two pods, or the same pod next week, agree.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from onggi_core.errors import BadRequest

DIGEST_BYTES: Final = 16
ROOT: Final = bytes(DIGEST_BYTES)
"""Parent of the first block of every chain."""

TOKEN_ID_MAX: Final = 2**32 - 1

Extra = tuple[str, str]
"""One thing besides tokens that changes a block's bytes: (kind, value), as ("cache_salt", "a")."""

_U32: Final = next(code for code in "IL" if array(code).itemsize == 4)


def fingerprint(fields: Mapping[str, str | int]) -> bytes:
    """16 bytes that differ when any field differs.

    fields: what shapes the bytes of a page, such as model, revision, dtype, layout, block_tokens,
    layers, heads, head size, rank, engine. Which fields is the connector's knowledge; a missing
    one is a wrong hit some day, so connectors list theirs in one place and test each.
    Raises BadRequest for an empty mapping or a value that is neither text nor a whole number.
    """
    if not isinstance(fields, Mapping):
        raise BadRequest("fields", fields, "use a mapping of names to values")
    if not fields:
        raise BadRequest("fields", {}, "name at least the model")
    for name, value in fields.items():
        if not isinstance(name, str):  # JSON would write 1 as "1"
            raise BadRequest("fields", name, "use text for its names")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise BadRequest(f"fields[{name}]", value, "use text or a whole number")
    canonical = json.dumps(dict(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(b"onggi-fingerprint-1\0" + canonical.encode()).digest()[:DIGEST_BYTES]


def differing(mine: Mapping[str, str | int], other: Mapping[str, str | int]) -> tuple[str, ...]:
    """The names of the fields in which two identities differ, in alphabetical order."""
    names = sorted(mine.keys() | other.keys())
    return tuple(name for name in names if mine.get(name) != other.get(name))


def block_key(parent: bytes, tokens: bytes, extras: Sequence[Extra] = ()) -> bytes:
    """The prefix hash of one block. tokens: its ids as uint32 little endian.

    Extras are length-prefixed, so that no two lists of them spell the same bytes, and the token
    part is length-prefixed too, so that extras cannot pose as tokens.
    """
    digest = hashlib.sha256(parent)
    digest.update(struct.pack("<I", len(tokens)))
    digest.update(tokens)
    for kind, value in extras:
        for part in (kind.encode(), value.encode("utf-8", "surrogatepass")):
            digest.update(struct.pack("<I", len(part)))
            digest.update(part)
    return digest.digest()[:DIGEST_BYTES]


def block_keys(
    token_ids: Sequence[int],
    block_tokens: int,
    extras: Mapping[int, Sequence[Extra]] | None = None,
    *,
    parent: bytes = ROOT,
) -> list[bytes]:
    """Prefix hashes of the full blocks of a prompt; a tail shorter than a block has none.

    token_ids: the ids from the first token that follows `parent`. extras: block number in this
    call -> its extras, in a fixed order. Returns len(token_ids) // block_tokens keys of 16 bytes.
    Raises BadRequest for a block size below 1 or an id outside uint32.
    """
    if not isinstance(block_tokens, int) or block_tokens < 1:
        raise BadRequest("block_tokens", block_tokens, "use a whole number, 1 or more")
    if not isinstance(parent, bytes) or len(parent) != DIGEST_BYTES:
        raise BadRequest("parent", parent, f"use {DIGEST_BYTES} bytes")
    if extras is not None and not isinstance(extras, Mapping):
        raise BadRequest("extras", extras, "use a mapping of block numbers to pairs of texts")
    try:
        whole = token_ids[: len(token_ids) // block_tokens * block_tokens]
    except TypeError as error:
        raise BadRequest("token_ids", token_ids, "use a list or another sequence") from error
    packed = _pack(whole)
    step = block_tokens * 4
    length, sha256 = struct.pack("<I", step), hashlib.sha256
    keys: list[bytes] = []
    for begin in range(0, len(packed), step):
        tokens = packed[begin : begin + step]
        if extras:
            parent = block_key(parent, tokens, _extras_of(extras, begin // step))
        else:  # block_key() of no extras, at half its price
            parent = sha256(parent + length + tokens).digest()[:DIGEST_BYTES]
        keys.append(parent)
    return keys


def _extras_of(extras: Mapping[int, Sequence[Extra]], number: int) -> Sequence[Extra]:
    pairs = extras.get(number, ())
    try:
        right = all(isinstance(kind, str) and isinstance(value, str) for kind, value in pairs)
    except (TypeError, ValueError):
        right = False
    if not right:
        raise BadRequest(f"extras[{number}]", pairs, "use pairs of texts: kind and value")
    return pairs


def _pack(token_ids: Sequence[int]) -> bytes:
    if isinstance(token_ids, (bytes, bytearray, str)):  # an array would take these as its memory
        raise BadRequest("token_ids", type(token_ids).__name__, "use a sequence of whole numbers")
    try:
        ids = array(_U32, token_ids)
    except (OverflowError, TypeError) as error:
        wrong = next(
            (i for i in token_ids if not isinstance(i, int) or not 0 <= i <= TOKEN_ID_MAX), None
        )
        raise BadRequest("token_ids", wrong, f"ids are whole, 0 to {TOKEN_ID_MAX}") from error
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()
