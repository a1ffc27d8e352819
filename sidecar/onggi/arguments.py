"""An argument that a constructor has not: told with the one that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

from onggi_core.variables import nearest

P = ParamSpec("P")


def named(init: Callable[P, None]) -> Callable[P, None]:
    """For an `__init__`. Python by itself names what was written, and nothing that is right."""
    known = [*inspect.signature(init).parameters][1:]

    @functools.wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        for name in given:
            if name not in known:
                meant = f"did you mean {near}? It" if (near := nearest(name, known)) else "it"
                raise TypeError(
                    f"{type(args[0]).__name__} has no argument {name!r}; {meant} takes "
                    f"{', '.join(known)}"
                )
        init(*args, **given)

    return checked
