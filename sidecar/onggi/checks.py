"""Arguments of the client, checked where they come in: each refusal names the argument, what it is
and what would be right. A value of the wrong type is a TypeError, a wrong value a ValueError."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from operator import index
from typing import Any, Final, TypeVar

from onggi.memory import HeldPages, hold_pages
from onggi.outcomes import Load, Pages, StoreTicket
from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.fields import COUNT_BYTES, keys_to
from onggi_core.wire.frame import KEYS_MAX, SPACES_MAX
from onggi_core.wire.requests import LoadOutcome, SpaceSpec, StoreOutcome

SOCKET_PATH_BYTES_MAX: Final = 107
"""sun_path of a unix socket, its closing zero taken off."""
ENGINE_BYTES_MAX: Final = 256


T = TypeVar("T")


def held_pages(buffers: Sequence[Any], pages: Pages, *, writable: bool) -> HeldPages:
    of_type("pages", pages, Pages)
    count = counted("buffers", buffers)
    if count != len(pages.offsets):
        raise ValueError(f"buffers has {count} entries for {len(pages.offsets)} pages")
    return hold_pages(buffers, pages.page_bytes, writable=writable)


def of_type(name: str, value: object, wanted: type[T]) -> T:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is {_spelt(value)}; use a {wanted.__name__}")
    return value


def counted(name: str, values: Any) -> int:
    """How many there are, of what has a length and an order."""
    try:
        count = len(values)
    except TypeError:
        raise TypeError(f"{name} is {_spelt(values)}; use a list or another sequence") from None
    if not hasattr(type(values), "__getitem__") or isinstance(values, (dict, str)):
        raise TypeError(f"{name} is a {type(values).__name__}; use a list or another sequence")
    return count


def space_number(space: int, spaces: Sequence[SpaceSpec]) -> None:
    if not 0 <= whole("space", space) < len(spaces):
        raise ValueError(f"space is {space}; this client has {len(spaces)}, from 0")


def keys_of(keys: Sequence[bytes]) -> int:
    """How many there are. What they are together is looked at and not each by itself, which would
    take longer than all else there is to a lookup of what an agent's board shows."""
    count = counted("keys", keys)
    try:
        together = len(b"".join(keys))
    except TypeError:
        together = -1
    if together != DIGEST_BYTES * count:
        each_key(keys)
    return count


def each_length(keys: Sequence[bytes]) -> None:
    """For what is kept: lengths that are wrong may make up for each other."""
    if set(map(len, keys)) - {DIGEST_BYTES}:
        each_key(keys)


def each_key(keys: Sequence[bytes]) -> None:
    """Raises for the first one that is wrong."""
    for number, key in enumerate(keys):
        _check_key(f"keys[{number}]", key)


def packed_keys(keys: Sequence[bytes]) -> bytes:
    """Keys as they go into a request, joined once for the check and for the frame."""
    count = counted("keys", keys)
    if count > KEYS_MAX:
        raise ValueError(f"keys has {count} entries; one call takes up to {KEYS_MAX}")
    try:
        packed = keys_to(keys)
    except TypeError:
        packed = b""
    if len(packed) != COUNT_BYTES + DIGEST_BYTES * count:
        each_key(keys)
    return packed


def _check_key(name: str, key: object) -> None:
    if not isinstance(key, (bytes, bytearray)):
        raise TypeError(f"{name} is {_spelt(key)}; use {DIGEST_BYTES} bytes")
    if len(key) != DIGEST_BYTES:
        raise ValueError(f"{name} is {bytes(key)!r:.80} of {len(key)} bytes; use {DIGEST_BYTES}")


def socket_path(given: str | os.PathLike[str], name: str = "socket_path") -> str:
    try:
        path = os.fsdecode(given)
        raw = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name} is {_spelt(given)}; use text or a path") from None
    except UnicodeEncodeError as half:  # of a pair of surrogates
        raise ValueError(f"{name} is {given!r}; no path can be so") from half
    if not raw or b"\0" in raw or len(raw) > SOCKET_PATH_BYTES_MAX:
        raise ValueError(
            f"{name} is {path!r:.120}; use a path of 1 to {SOCKET_PATH_BYTES_MAX} bytes"
        )
    return path


def spaces(given: Sequence[SpaceSpec]) -> tuple[SpaceSpec, ...]:
    """Each with plain bytes and whole numbers, whatever kind of them was handed in."""
    if isinstance(given, SpaceSpec):
        raise TypeError("spaces is a SpaceSpec; use a list of them")
    count = counted("spaces", given)
    if not 1 <= count <= SPACES_MAX:
        raise ValueError(f"spaces has {count} entries; use 1 to {SPACES_MAX}")
    return tuple([_checked_space(f"spaces[{n}]", space) for n, space in enumerate(given)])


def _checked_space(name: str, space: SpaceSpec) -> SpaceSpec:
    of_type(name, space, SpaceSpec)
    fingerprint = space.fingerprint
    if not isinstance(fingerprint, (bytes, bytearray)):
        raise TypeError(f"{name}.fingerprint is {_spelt(fingerprint)}; use {DIGEST_BYTES} bytes")
    if len(fingerprint) != DIGEST_BYTES:
        raise ValueError(f"{name}.fingerprint has {len(fingerprint)} bytes; use {DIGEST_BYTES}")
    page_bytes = whole(f"{name}.page_bytes", space.page_bytes)
    block_tokens = whole(f"{name}.block_tokens", space.block_tokens)
    if not 1 <= page_bytes < 1 << 64:
        raise ValueError(f"{name}.page_bytes is {page_bytes}; use 1 or more, below 2**64")
    if not 1 <= block_tokens < 1 << 32:
        raise ValueError(f"{name}.block_tokens is {block_tokens}; use 1 or more, below 2**32")
    return SpaceSpec(bytes(fingerprint), page_bytes, block_tokens)


def whole(name: str, value: Any) -> int:
    if type(value) is int:
        return value
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} is {_spelt(value)}; use a whole number") from None


def seconds(name: str, value: Any) -> float:
    """How long to wait: from 0 on, and what no float holds is for ever. A time that is over already
    is not for the callee to guess at."""
    if not (found := _number(name, value)) >= 0:
        raise ValueError(f"{name} is {value!r:.60}; use a number of seconds from 0 on")
    return found


def _number(name: str, value: Any) -> float:
    if type(value) is not float:
        try:
            value = value.__float__()
        except (AttributeError, TypeError):
            raise TypeError(f"{name} is {_spelt(value)}; use a number of seconds") from None
        except OverflowError:
            value = math.inf if value > 0 else -math.inf
    return float(value)


def deadline(deadline_s: float, most_s: float) -> float:
    if not 0 < _number("deadline_s", deadline_s) <= most_s:
        raise ValueError(
            f"deadline_s is {deadline_s!r:.60}; use a number of seconds, more than 0 and up to "
            f"{most_s:g}"
        )
    return float(deadline_s)


def engine(given: str) -> str:
    raw = of_type("engine", given, str).encode(errors="replace")
    if raw.decode() != given or len(raw) > ENGINE_BYTES_MAX:
        raise ValueError(f"engine is {given!r:.40}; use up to {ENGINE_BYTES_MAX} bytes of UTF-8")
    return given


def parent(given: bytes) -> bytes:
    _check_key("parent", given)
    return bytes(given)


def blocks_used(load: Load, outcome: LoadOutcome, blocks: int | None) -> int:
    """What finish_load tells the agent."""
    of_type("load", load, Load)
    of_type("outcome", outcome, LoadOutcome)
    used = load.blocks if blocks is None else whole("blocks", blocks)
    if not 0 <= used <= load.blocks:
        raise ValueError(f"blocks is {used}; this load has {load.blocks}, use 0 to that")
    return used if outcome is LoadOutcome.LOADED else 0


def finished(ticket: StoreTicket, outcome: StoreOutcome) -> None:
    of_type("ticket", ticket, StoreTicket)
    of_type("outcome", outcome, StoreOutcome)


def _spelt(value: object) -> str:
    """A value of the wrong type, short: plain ones as they are, others by their type."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return f"{value!r:.60}"
    return f"a {type(value).__name__}"
