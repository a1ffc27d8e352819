"""Which agent a pod gets: the installation's of today, or the one that its pool is pinned to.

A revision names an image together with the shape in which this code injects it. An upgrade of Onggi
makes a new one; a pool that is pinned to an older one goes on giving that to its new pods, and a
rollback is a pin to the one before. Running pods are never changed.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from onggi_operator.inject.containers import Installation
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.pool import Pool, UpdatePolicy

SHAPE: Final = 1
"""Raised when what is injected beside the image changes in a way that an older agent could not
live with; an image of another shape is another revision."""

NAME_CHARS: Final = 10
NAMED_MAX: Final = 5
"""Revisions listed in a message."""


@dataclass(frozen=True, slots=True)
class Revision:
    """`name` as pods and pools write it."""

    name: str
    agent_image: str


def revision_of(agent_image: str) -> Revision:
    """Of an image as this code injects it."""
    text = f"{SHAPE} {agent_image}"
    return Revision(hashlib.sha256(text.encode()).hexdigest()[:NAME_CHARS], agent_image)


def chosen(pool: Pool, install: Installation) -> Revision | Skipped:
    """What new pods of this pool get."""
    injection = pool.injection
    latest = revision_of(injection.agent_image or install.agent_image)
    if injection.update_policy is UpdatePolicy.LATEST or injection.revision == latest.name:
        return latest
    pinned = install.revisions.get(injection.revision or "")
    if pinned is not None:
        return Revision(injection.revision or "", pinned)
    known = sorted({latest.name, *install.revisions})
    return Skipped(
        SkipReason.UNKNOWN_REVISION,
        f"pool {pool.name} pins revision {injection.revision}, which this installation never"
        f" injected; it knows {', '.join(known[-NAMED_MAX:])}",
    )
