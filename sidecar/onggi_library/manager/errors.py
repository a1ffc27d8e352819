"""What a manager raises beside TypeError and ValueError for what was handed in."""

from __future__ import annotations

from typing import Final

from onggi_core.errors import OnggiError

CLOSED: Final = "this KVCacheManager is closed; make another one"


class DoesNotFit(OnggiError):
    """There is no room for a value, and nothing was dropped for it."""

    def __init__(self, sentence: str, *, value_bytes: int, room_bytes: int) -> None:
        super().__init__(sentence)
        self.value_bytes = value_bytes
        self.room_bytes = room_bytes


class Lost(OnggiError):
    """The tiers no longer have a value that was put: a shared agent gave it up, or a disk failed.
    It has to be computed again."""

    def __init__(self, step: int | str, because: str) -> None:
        super().__init__(f"step {step!r} is lost: {because}; compute it again and put it")
        self.step = step


class Unreachable(OnggiError):
    """The agent below does not answer, so nobody knows yet whether a value is lost."""
