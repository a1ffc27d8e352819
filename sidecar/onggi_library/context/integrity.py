"""Whether a context is whole: nothing is asked of one that may not be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import torch

from onggi_library.context.errors import ContextLost, NotInTime


class Integrity:
    """What went wrong, if anything did."""

    def __init__(self) -> None:
        self._fault: BaseException | None = None
        self._pid = os.getpid()
        self._torn = False  # an append was cut short: layers may have different lengths

    def end(self, fault: BaseException) -> None:
        """Nothing more may be asked. The first fault is the one that is told."""
        self._fault = self._fault or fault

    @contextlib.contextmanager
    def call(self, late: Callable[[], None], *, torn: bool | None, mending: bool) -> Iterator[None]:
        """A call, which ends the context if it fails. torn: whether layers may differ if the tiers
        are late, which the call can be made good of, and `late` is told; None: the context ends
        then. mending: whether it makes good of an append that was cut short. Raises RuntimeError in
        a forked child, which has no thread to bring pieces."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this context is process {self._pid}'s, and this is its child {os.getpid()}; make "
                "one here, or start children by spawn"
            )
        if self._fault is not None:
            raise ContextLost(f"this context ended: {self._fault}") from self._fault
        if self._torn and not mending:
            raise NotInTime("the last append was cut short; crop to what there was before it")
        try:
            with torch.no_grad():
                yield
            self._torn = False
        except ValueError:
            raise
        except NotInTime as fault:
            if torn is None:
                self._fault = fault
            else:
                self._torn = torn
                late()
            raise
        except BaseException as fault:
            self._fault = fault
            raise
