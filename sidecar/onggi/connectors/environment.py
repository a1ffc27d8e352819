"""What an engine's environment says to Onggi's client, whichever engine it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from onggi_core.variables import OF_ENGINES, misspelt

SOCKET_VARIABLE: Final = "ONGGI_SOCKET"
REVISION_VARIABLE: Final = "ONGGI_MODEL_REVISION"
TENANT_VARIABLE: Final = "ONGGI_TENANT"
CONFIGURE_VARIABLE: Final = "ONGGI_CONFIGURE"
FAMILY: Final = "ONGGI_"


def unread_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence on each variable that is very like one of ours and is none: a tenant that is
    misspelt would share its blocks with everybody."""
    return [
        f"{name} is no variable of Onggi's and was not read; did you mean {meant}?"
        for name, meant in misspelt(environment, OF_ENGINES, ours="", family=FAMILY)
    ]
