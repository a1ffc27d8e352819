"""What loads of one kind and of several have in common: a number, and an end once all ranks have
spoken of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

from onggi.connectors.vllm.unwanted import Unwanted

OVERDUE_S: Final = 60.0
"""After the end of its lease a load that no worker has reported is forgotten: the pin is gone, and
vLLM has dropped the step that should have told."""


class Awaited(Protocol):
    """A load that was taken up. said: ranks that have reported; copied_s: the longest that one of
    them took."""

    number: int
    request_id: str
    said: int
    copied_s: float

    def heard(self, blocks: int) -> None:
        """A rank has loaded the first `blocks` blocks, and no more; called before `said` counts
        it."""


L = TypeVar("L", bound=Awaited)
T = TypeVar("T")


class AwaitedLoads(ABC, Generic[L, T]):
    """T: what is remembered of a request."""

    def __init__(self, ranks: int) -> None:
        self.unwanted = Unwanted()
        self._ranks = ranks
        self._loading: dict[int, L] = {}
        self._waiting: dict[str, int] = {}
        """Request -> its asynchronous load; vLLM lets it have one at a time."""
        self._next = 1

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number

    def _add(self, loading: L, *, waits: bool) -> None:
        """waits: the request is not scheduled until the load was reported."""
        self._loading[loading.number] = loading
        if waits:
            self._waiting[loading.request_id] = loading.number

    def _drop(self, loading: L) -> None:
        del self._loading[loading.number]
        if self._waiting.get(loading.request_id) == loading.number:
            del self._waiting[loading.request_id]

    def reported(
        self, number: int, blocks: int, ranks: int, copied_s: float, tracked: Mapping[str, T]
    ) -> None:
        """`ranks` more workers have loaded the first `blocks` blocks of a job (of its first part,
        if it has several), and no more, in `copied_s` or less. The pin goes when all spoke."""
        loading = self._loading.get(number)
        if loading is None:
            return
        loading.heard(blocks)
        loading.said += ranks
        loading.copied_s = max(loading.copied_s, copied_s)
        if loading.said >= self._ranks:
            self._drop(loading)
            self._ended(loading, tracked)

    def received(self, request_id: str, tracked: Mapping[str, T]) -> None:
        """vLLM heard that a request's asynchronous load is over. One that ended before its job was
        wanted has no report of its own."""
        number = self._waiting.get(request_id)
        if number is not None:
            loading = self._loading[number]
            loading.heard(0)
            self._drop(loading)
            self._ended(loading, tracked)

    @abstractmethod
    def _ended(self, loading: L, tracked: Mapping[str, T]) -> None:
        """All that will be said of it was said."""
