"""From a pod, its wish and its pool to one of three outcomes. The checks are an ordered list, so
that one pod always gets the same reason."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from onggi_core.quantity import exact_quantity, format_size
from onggi_operator import names
from onggi_operator.inject import blind_spots, conflicts, patch
from onggi_operator.inject.containers import (
    Installation,
    PodTraits,
    Sizes,
    agent_container,
    client_container,
    volumes,
)
from onggi_operator.inject.engine import find_engine
from onggi_operator.inject.limits import Limits, limit_conflict
from onggi_operator.inject.outcome import (
    Injected,
    Outcome,
    Skipped,
    SkipReason,
    Untouched,
    injected_status,
    read_status,
)
from onggi_operator.inject.request import Request, annotations_of
from onggi_operator.pool import Pool

REVISION_CHARS: Final = 10


def plan_injection(
    pod: Mapping[str, Any],
    namespace: str,
    request: Request,
    pool: Pool,
    install: Installation,
    limits: Sequence[Limits] = (),
) -> Outcome:
    """What this pod gets. `namespace` is the admission request's, since the pod's own may be
    missing there; `limits` are those of that namespace."""
    spec = pod["spec"]
    if already_injected(pod):
        return Untouched("has its agent already")
    if not pool.injection.enabled:
        return Skipped(
            SkipReason.INJECTION_OFF, f"pool {pool.name} has spec.injection.enabled: false"
        )
    sizes = _sizes(request, pool)
    if isinstance(sizes, Skipped):
        return sizes
    if conflict := conflicts.pod_conflict(spec):
        return conflict
    engine_at = find_engine(
        spec.get("containers") or (),
        asked=request.container,
        pooled=pool.engine.container,
        kind=pool.engine.kind,
    )
    if isinstance(engine_at, Skipped):
        return engine_at
    engine = spec["containers"][engine_at]
    if conflict := conflicts.engine_conflict(spec, engine):
        return conflict
    traits = PodTraits(namespace, bool(spec.get("hostNetwork")), is_guaranteed(spec))
    added = (agent_container(pool, sizes, traits, install), client_container(pool, traits, install))
    if conflict := limit_conflict(pod, added, limits):
        return conflict
    status = injected_status(revision(install, pool), _told(pool, sizes, engine))
    operations = patch.injection(
        pod,
        engine_at,
        status=status,
        pool=pool,
        init_containers=added,
        volumes=volumes(pool, sizes),
    )
    return Injected(operations, status, tuple(blind_spots.warnings(engine)))


def already_injected(pod: Mapping[str, Any]) -> bool:
    """Called again after another webhook, or made from the YAML of a running pod."""
    stamp = read_status(annotations_of(pod).get(names.STATUS, ""))
    inits = {container.get("name") for container in pod["spec"].get("initContainers") or ()}
    return stamp is not None and stamp.injected and names.AGENT_CONTAINER in inits


def revision(install: Installation, pool: Pool) -> str:
    """Names the shape of what is injected: two pods with the same revision got the same agent but
    for sizes and names. The CA is left out, since its renewal changes no behaviour."""
    sizes = Sizes(0, 0, 0)
    traits = PodTraits("", host_network=False, guaranteed=False)
    plain = replace(install, ca_pem="")
    shape = [agent_container(pool, sizes, traits, plain), client_container(pool, traits, plain)]
    text = json.dumps(shape, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:REVISION_CHARS]


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Whether the pod's class is Guaranteed: every container's cpu and memory requests equal its
    limits (an absent request counts as the limit)."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return bool(containers) and all(map(_is_fixed, containers))


def _is_fixed(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return all(
        name in limits
        and exact_quantity(str(requests.get(name, limits[name])))
        == exact_quantity(str(limits[name]))
        for name in ("cpu", "memory")
    )


def _sizes(request: Request, pool: Pool) -> Sizes | Skipped:
    memory_bytes = request.memory_bytes or pool.memory.max_bytes
    disk_max_bytes = pool.disk.max_bytes if pool.disk else 0
    disk_bytes = disk_max_bytes if request.disk_bytes is None else request.disk_bytes
    for key, asked, most in (
        (names.MEMORY, memory_bytes, pool.memory.max_bytes),
        (names.DISK, disk_bytes, disk_max_bytes),
    ):
        if asked > most:
            gives = f"gives a pod {format_size(most)}" if most else "has no disk tier"
            return Skipped(
                SkipReason.SIZE_OVER_POOL,
                f"annotation {key} asks for {format_size(asked)}, and pool {pool.name} {gives}",
            )
    return Sizes(memory_bytes, min(pool.memory.min_bytes, memory_bytes), disk_bytes)


def _told(pool: Pool, sizes: Sizes, engine: Mapping[str, Any]) -> str:
    disk = ""
    if sizes.disk_bytes and pool.disk:
        disk = f", disk {format_size(sizes.disk_bytes)} ({pool.disk.medium.value})"
    memory = format_size(sizes.memory_bytes)
    return f"pool {pool.name}, engine container {engine['name']}, memory {memory}{disk}"
