"""What the agent says of a chain that was asked about."""

from __future__ import annotations

from onggi.link import Asked, Link
from onggi.outcomes import Looked
from onggi_core.wire import replies


def answer(link: Link, asked: Asked | None, what: str) -> Looked | None:
    """None: it is gone, late, or refuses."""
    reply = link.end(asked, what) if asked is not None else None
    return Looked(reply.ready, reply.pending) if isinstance(reply, replies.Looked) else None
