"""Telling the agent that blocks are worth nothing, in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Sequence

from onggi.checks import counted, each_key, packed_keys
from onggi.link import Link
from onggi_core.wire.frame import DISCARD_KEYS_MAX, Op
from onggi_core.wire.replies import Discarded


def discard(link: Link, keys: Sequence[bytes]) -> int:
    """See Client.discard. The last part goes first, as a chain's end does in each."""
    found, count = 0, counted("keys", keys)
    each_key(keys)
    for end in range(count, 0, -DISCARD_KEYS_MAX):
        asked = link.begin(Op.DISCARD, packed_keys(keys[max(0, end - DISCARD_KEYS_MAX) : end]))
        reply = link.end(asked, "DISCARD") if asked is not None else None
        if not isinstance(reply, Discarded):
            return found
        found += reply.found
    return found
