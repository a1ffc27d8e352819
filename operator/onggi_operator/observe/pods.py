"""A pod as the controller sees it: a few words out of some 10 KiB."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onggi_operator import names
from onggi_operator.inject.outcome import Stamp, read_status
from onggi_operator.inject.request import annotations_of


@dataclass(frozen=True, slots=True)
class PodView:
    """A living pod that asks for a pool. `stamp` None: the webhook never saw it."""

    namespace: str
    name: str
    uid: str
    pool: str
    created: str
    stamp: Stamp | None
    running: bool
    deleting: bool


def project_pod(pod: Mapping[str, Any]) -> PodView | None:
    """None for pods that are none of Onggi's business: they ask for nothing, or opted out."""
    annotations = annotations_of(pod)
    pool = annotations.get(names.POOL)
    if not pool or annotations.get(names.INJECT) == "false":
        return None
    meta, status = pod["metadata"], pod.get("status") or {}
    return PodView(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        pool=pool,
        created=meta["creationTimestamp"],
        stamp=read_status(annotations.get(names.STATUS, "")),
        running=status.get("phase") == "Running",
        deleting="deletionTimestamp" in meta,
    )
