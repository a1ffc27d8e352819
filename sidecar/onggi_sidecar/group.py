"""The group that agent and engine share: socket, arena and disk folder belong to it."""

import os
from pathlib import Path
from typing import Final

SHARED_GID: Final = 64646
"""Added to the pod as a supplemental group at injection, so that engines of any user reach the
socket without an fsGroup, which would chown the user's volumes."""


def give_to_group(path: Path) -> None:
    """Hand a file to the shared group, where this process is in it and it is not already ours."""
    if SHARED_GID in os.getgroups() and os.stat(path).st_gid != SHARED_GID:
        os.chown(path, -1, SHARED_GID)
