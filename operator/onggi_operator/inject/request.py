"""What a pod's annotations ask for. A key or value that is not one of ours is told with the nearest
that is: a misspelt wish must not pass in silence."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.quantity import QuantityError, parse_quantity
from onggi_operator import names
from onggi_operator.inject.outcome import Skipped, SkipReason, Untouched

MEMORY_BYTES_MIN: Final = 64 * 1024**2
"""One extent of the arena, as in the schema."""

DISK_BYTES_MIN: Final = 64 * 1024**2
"""One segment file, as in the schema; 0 means no disk."""

_MIRROR: Final = "kubernetes.io/config.mirror"
"""On what a kubelet shows of a static pod; a token volume there makes the API server refuse it."""

_POOL: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
"""An object's name; anything else would be a path of its own in a request to the API server."""

_CONTAINER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed wish. None means that the pool decides."""

    pool: str
    container: str | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None


def annotations_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def read_request(pod: Mapping[str, Any]) -> Request | Skipped | Untouched:
    """What the pod asks for, Skipped when it cannot be understood, Untouched when it asks for
    nothing or opts out (which wins over everything else that it says)."""
    if _MIRROR in annotations_of(pod):
        return Untouched("is the picture of a static pod, which only its node's kubelet can change")
    given = {k: v for k, v in annotations_of(pod).items() if k.startswith(names.PREFIX)}
    if given.get(names.INJECT) == "false":
        return Untouched("opted out")
    if not given.keys() - {names.STATUS}:
        return Untouched("asks for nothing")
    try:
        return _read(given)
    except _Wrong as wrong:
        return Skipped(SkipReason.UNKNOWN_ANNOTATION, str(wrong))


class _Wrong(Exception):
    """An annotation that cannot be taken as it is."""


def _read(given: Mapping[str, str]) -> Request:
    for key in sorted(given.keys() - names.ANNOTATIONS.keys()):
        known = (key for key in names.ANNOTATIONS if key != names.STATUS)
        raise _Wrong(f"annotation {key} does not exist{_nearest(key, known)}")
    switch = given.get(names.INJECT)
    if switch not in (None, "true"):
        raise _Wrong(
            f'annotation {names.INJECT} is "{switch}"{_nearest(switch, ("true", "false"))}'
            ' (it takes "true" or "false")'
        )
    if not given.get(names.POOL):
        raise _Wrong(f"annotation {names.POOL} is missing or empty; it names the KVCachePool")
    if not _POOL.fullmatch(given[names.POOL]):
        raise _Wrong(
            f'annotation {names.POOL} is "{given[names.POOL][:63]}", which is no name of a'
            " KVCachePool (lower-case letters, digits, - and .)"
        )
    container = given.get(names.CONTAINER)
    if container is not None and not _CONTAINER.fullmatch(container):
        raise _Wrong(f'annotation {names.CONTAINER} is "{container}", which is no container name')
    return Request(
        pool=given[names.POOL],
        container=container,
        memory_bytes=_size(given, names.MEMORY, MEMORY_BYTES_MIN),
        disk_bytes=_size(given, names.DISK, DISK_BYTES_MIN, zero="no disk"),
    )


def _size(
    given: Mapping[str, str], key: str, least_bytes: int, *, zero: str | None = None
) -> int | None:
    if key not in given:
        return None
    try:
        size_bytes = parse_quantity(given[key])
    except QuantityError as fault:
        raise _Wrong(f"annotation {key}: {fault}") from fault
    if size_bytes < least_bytes and not (zero and size_bytes == 0):
        least = f"at least {least_bytes // 1024**2}Mi" + (f", or 0 for {zero}" if zero else "")
        raise _Wrong(f'annotation {key} is "{given[key]}"; it must be {least}')
    return size_bytes


def _nearest(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
