"""Environment variables by name: which are typing errors, and which Kubernetes put there itself.

A service of a pod's namespace gives every container there a handful of variables that begin with
its own name, so what begins as ours does need not be meant for us.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final

OF_ENGINES: Final = ("ONGGI_SOCKET", "ONGGI_MODEL_REVISION", "ONGGI_TENANT", "ONGGI_CONFIGURE")
"""What an engine's client reads. On a laptop its agent has them in its environment too."""

NEAR: Final = 0.6
"""How alike two names are that one is offered in the place of the other."""
NEAR_OTHERS: Final = 0.85
"""How alike they are where the name may well be somebody else's."""

_LINK_NAME: Final = re.compile(
    r".+_SERVICE_HOST|.+_SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|.+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://\S+:[0-9]+")


def nearest(word: str, known: Collection[str], near: float = NEAR) -> str:
    """The one of `known` that was probably meant; empty if none is like it."""
    return next(iter(difflib.get_close_matches(word, known, 1, near)), "")


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes made this variable for a service: X_SERVICE_HOST, X_SERVICE_PORT_HTTP,
    X_PORT=tcp://10.0.0.1:80, X_PORT_80_TCP_ADDR. A port of ours is a number, never a URL."""
    if _LINK_NAME.fullmatch(name):
        return True
    return name.endswith("_PORT") and _LINK_VALUE.fullmatch(value) is not None


def misspelt(
    environment: Mapping[str, str], known: Collection[str], *, ours: str, family: str
) -> list[tuple[str, str]]:
    """Variables that nobody reads -> what was probably meant, empty where nothing is like it.

    ours: a prefix that nobody else's variables have: all unknown ones are told. family: a shorter
    one, of which those are told that are very like a known one.
    """
    found = []
    endings = [one.removeprefix(ours) for one in known if one.startswith(ours)]
    for name, value in environment.items():
        upper = name.upper()
        if (
            name in known
            or name in OF_ENGINES
            or not upper.startswith(family)
            or is_service_link(name, value)
        ):
            continue
        if ours and upper.startswith(ours):
            meant = nearest(upper.removeprefix(ours), endings)  # all that is alike is no sign
            found.append((name, ours + meant if meant else ""))
        elif meant := nearest(upper, known, NEAR_OTHERS):
            found.append((name, meant))
    return sorted(found)
