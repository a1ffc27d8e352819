"""What lies in a disk path from agents that claimed it the other way.

An exclusive agent's tier lies in disk_path itself, a sharing one's in a slot below it; neither
looks at the other's, so after a change of disk_claim it would lie there, unused and unmentioned.
"""

import os
from pathlib import Path

from onggi_core.quantity import spell_bytes
from onggi_sidecar.disk.folder import SHARED_FOLDERS_MAX, Claim, slot
from onggi_sidecar.disk.segment import segment_number
from onggi_sidecar.disk.table import TABLE_NAME


def lies_unused(root: Path, claim: Claim) -> str:
    """A sentence on it and what to do; empty where there is nothing. Raises OSError."""
    if claim is Claim.SHARED:
        if not (taken_bytes := _tier_bytes(root)):
            return ""
        kind, others, files = Claim.EXCLUSIVE, "an agent", f"{TABLE_NAME} and segment-*"
    else:
        slots = [place for n in range(SHARED_FOLDERS_MAX) if (place := slot(root, n)).is_dir()]
        if not (taken_bytes := sum(map(_tier_bytes, slots))):
            return ""
        kind, others, files = Claim.SHARED, "agents", "slot-*"
    return (
        f"{root} has {spell_bytes(taken_bytes)} of {others} with disk_claim {kind.value}, which "
        f"this one, with {claim.value}, does not use: start it with disk_claim {kind.value} to "
        f"have the blocks, or, where no agent uses them any more, remove {files} there to have the "
        "room"
    )


def _tier_bytes(folder: Path) -> int:
    """What the files of a tier take of the disk."""
    with os.scandir(folder) as entries:
        return sum(
            one.stat(follow_symlinks=False).st_blocks * 512
            for one in entries
            if one.name == TABLE_NAME or segment_number(Path(one.path)) is not None
        )
