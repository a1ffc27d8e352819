"""One request in flight, and the sentence of a frame that says no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onggi_core.wire.cut import Frame

SENTENCE_BYTES_MAX: Final = 4096
"""As much as an agent says (wire.frame.refusal). What is no agent may send mebibytes, and all of it
would go into a log."""


class Call:
    """`frame` is its reply once that is there."""

    __slots__ = ("frame", "late", "op", "request_id")

    def __init__(self, request_id: int, op: int) -> None:
        self.request_id = request_id
        self.op = op
        self.frame: Frame | None = None
        self.late: Callable[[Frame], None] | None = None


def sentence(refusal: Frame) -> str:
    """What the agent says with any status but OK."""
    return refusal.payload[:SENTENCE_BYTES_MAX].decode("utf-8", "replace")
