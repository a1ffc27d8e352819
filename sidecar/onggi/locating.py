"""Asking where blocks lie, for whoever tells others of them: nobody waits for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi.channel import ChannelClosed
from onggi.checks import packed_keys
from onggi.link import Asked, Link
from onggi_core.wire.frame import LOCATE_KEYS_MAX, Op
from onggi_core.wire.locate import Located

ANSWERED_WITHIN_S: Final = 5.0
"""What is asked for once in a while is not asked for again before; an agent that is alive takes
milliseconds."""


class PendingTiers:
    """Where the blocks lie, once it is answered."""

    def __init__(self, link: Link, asked: Asked, blocks: int) -> None:
        self._link = link
        self._asked = asked
        self._blocks = blocks

    def poll(self) -> bytes | None:
        """An At for each key; none at all (b""): there will be no answer. None: not yet. Never
        blocks; an answer that comes later is nobody's."""
        asked, link = self._asked, self._link
        if not link.here(asked.session):
            return b""
        try:
            answer = asked.session.channel.wait(asked.call, 0.0)
        except ChannelClosed as error:
            link.lost(asked.session, str(error))
            return b""
        if answer is None:
            return None if link.now_s() - asked.sent_s < ANSWERED_WITHIN_S else b""
        reply = link.understand(asked.session, answer)
        if not isinstance(reply, Located) or len(reply.tiers) != self._blocks:
            return b""
        return reply.tiers


def begin(link: Link, keys: Sequence[bytes]) -> PendingTiers | None:
    """See Client.locate_begin."""
    packed = packed_keys(keys)
    if not 1 <= len(keys) <= LOCATE_KEYS_MAX:
        raise ValueError(f"keys has {len(keys)}; use 1 to {LOCATE_KEYS_MAX}")
    session = link.session()
    board = session.arena.board if session is not None else None
    if session is None or board is None or not board.locates:
        return None
    asked = link.tell_and(session, Op.LOCATE, packed)
    return PendingTiers(link, asked, len(keys)) if asked is not None else None
