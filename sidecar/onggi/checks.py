"""Arguments of the client, checked: each refusal names the field, its value and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onggi.memory import HeldPages, hold_pages
from onggi.outcomes import Pages
from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.fields import COUNT_BYTES, keys_to
from onggi_core.wire.frame import KEYS_MAX
from onggi_core.wire.requests import SpaceSpec


def held_pages(buffers: Sequence[Any], pages: Pages, *, writable: bool) -> HeldPages:
    if len(buffers) != len(pages.offsets):
        raise ValueError(f"buffers has {len(buffers)} entries for {len(pages.offsets)} pages")
    return hold_pages(buffers, pages.page_bytes, writable=writable)


def check_space_number(space: int, spaces: Sequence[SpaceSpec]) -> None:
    if not 0 <= space < len(spaces):
        raise ValueError(f"space is {space}; this client has {len(spaces)}, from 0")


def packed_keys(keys: Sequence[bytes]) -> bytes:
    """Keys as they go into a request, joined once for the check and for the frame."""
    if len(keys) > KEYS_MAX:
        raise ValueError(f"keys has {len(keys)} entries; one call takes up to {KEYS_MAX}")
    packed = keys_to(keys)
    if len(packed) != COUNT_BYTES + DIGEST_BYTES * len(keys):
        wrong = next((k for k in keys if len(k) != DIGEST_BYTES), keys[0])
        raise ValueError(f"keys holds {wrong!r} of {len(wrong)} bytes; use {DIGEST_BYTES} bytes")
    return packed


def check_space(space: SpaceSpec) -> None:
    if len(space.fingerprint) != DIGEST_BYTES:
        size = len(space.fingerprint)
        raise ValueError(f"fingerprint has {size} bytes; use {DIGEST_BYTES}")
    if not 1 <= space.page_bytes < 1 << 64 or not 1 <= space.block_tokens < 1 << 32:
        raise ValueError(
            f"page_bytes is {space.page_bytes} and block_tokens {space.block_tokens}; "
            "use 1 or more of each, as many as 64 and 32 bits hold"
        )


ENGINE_BYTES_MAX: Final = 256


def check_engine(engine: str) -> None:
    raw = engine.encode(errors="replace")
    if raw.decode() != engine or len(raw) > ENGINE_BYTES_MAX:
        raise ValueError(f"engine is {engine!r:.40}; use up to {ENGINE_BYTES_MAX} bytes of UTF-8")


def check_parent(parent: bytes) -> None:
    if len(parent) != DIGEST_BYTES:
        raise ValueError(f"parent has {len(parent)} bytes; use {DIGEST_BYTES}")
