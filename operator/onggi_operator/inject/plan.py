"""From a pod, its wish and its pool to one of three outcomes. The checks are an ordered list, so
that one pod always gets the same reason."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onggi_core.quantity import exact_quantity, format_size
from onggi_operator import names
from onggi_operator.inject import blind_spots, conflicts, patch
from onggi_operator.inject.affinity import preference
from onggi_operator.inject.blind_spots import Doubt
from onggi_operator.inject.containers import (
    POOL_VARIABLE,
    Installation,
    PodTraits,
    Sizes,
    agent_container,
    claim_bytes,
    client_container,
    volumes,
)
from onggi_operator.inject.engine import find_engine
from onggi_operator.inject.limits import limit_conflict
from onggi_operator.inject.namespace import Namespace
from onggi_operator.inject.outcome import (
    Injected,
    Outcome,
    Skipped,
    SkipReason,
    Untouched,
    injected_status,
    read_status,
)
from onggi_operator.inject.quota import quota_conflict
from onggi_operator.inject.request import Request, annotations_of
from onggi_operator.inject.revision import chosen
from onggi_operator.lifecycle import WarmUntil
from onggi_operator.pool import Medium, Pool
from onggi_operator.tenancy import NOTHING_USED, PoolUse

NATIVE_SIDECARS_SINCE: Final = (1, 29)


def plan_injection(
    pod: Mapping[str, Any],
    where: Namespace,
    request: Request,
    pool: Pool,
    install: Installation,
    promised: PoolUse = NOTHING_USED,
) -> Outcome:
    """What this pod gets; `promised` is what others take of the pool's quota."""
    spec = pod["spec"]
    if already_injected(pod, pool.name):
        return Untouched("has its agent already")
    if install.kubernetes is not None and install.kubernetes < NATIVE_SIDECARS_SINCE:
        version = ".".join(map(str, install.kubernetes))
        return Skipped(
            SkipReason.OLD_KUBERNETES,
            f"Kubernetes {version} has no native sidecars, which came with 1.29; an agent would"
            " keep the pod from starting, or from ending",
        )
    if not pool.injection.enabled:
        return Skipped(
            SkipReason.INJECTION_OFF, f"pool {pool.name} has spec.injection.enabled: false"
        )
    sizes = _sizes(request, pool)
    if isinstance(sizes, Skipped):
        return sizes
    takes = PoolUse(sizes.memory_request_bytes, sizes.disk_bytes)
    if conflict := _over_quota(pool, promised, takes):
        return conflict
    if conflict := conflicts.pod_conflict(spec):
        return conflict
    if conflict := _refused_volume(spec, pool, sizes, where):
        return conflict
    revision = chosen(pool, install)
    if isinstance(revision, Skipped):
        return revision
    engine_at = find_engine(
        spec.get("containers") or (),
        asked=request.container,
        pooled=pool.engine.container,
        kind=pool.engine.kind,
    )
    if isinstance(engine_at, Skipped):
        return engine_at
    engine = spec["containers"][engine_at]
    if conflict := conflicts.engine_conflict(spec, engine, pool.engine):
        return conflict
    seen = blind_spots.look(engine, pool.engine)
    if isinstance(seen, Skipped):
        return seen
    traits = PodTraits(
        where.name, bool(spec.get("hostNetwork")), is_guaranteed(spec), limits_storage(spec)
    )
    added = (
        agent_container(pool, sizes, traits, install, revision.agent_image),
        client_container(pool, traits, install, revision.agent_image),
    )
    claimed_bytes = claim_bytes(pool.disk, sizes)
    if conflict := limit_conflict(spec, added, where.limits, claimed_bytes):
        return conflict
    if conflict := quota_conflict(spec, added, where.quotas, claimed_bytes):
        return conflict
    gated = pool.lifecycle.warm_gate.until is not WarmUntil.OFF
    noted = (seen, blind_spots.dns(spec), blind_spots.gate(gated=gated, install=install))
    doubts = tuple(doubt for doubt in noted if doubt is not None)
    status = injected_status(revision.name, _told(pool, sizes, engine, doubts))
    operations = patch.injection(
        pod,
        engine_at,
        status=status,
        pool=pool,
        init_containers=added,
        volumes=volumes(pool, sizes),
        preferred=preference(spec, pool, disk_bytes=sizes.disk_bytes),
        gated=gated and install.warm_gates,
    )
    return Injected(operations, status, tuple(doubt.sentence for doubt in doubts), takes)


def already_injected(pod: Mapping[str, Any], pool: str) -> bool:
    """Called again after another webhook, or made from the YAML of a running pod. An agent for
    another pool is not the one that is asked for."""
    stamp = read_status(annotations_of(pod).get(names.STATUS, ""))
    variable = {"name": POOL_VARIABLE, "value": pool}
    agents = (
        container
        for container in pod["spec"].get("initContainers") or ()
        if container.get("name") == names.AGENT_CONTAINER
    )
    mine = any(variable in (container.get("env") or ()) for container in agents)
    return stamp is not None and stamp.injected and mine


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Whether the pod's class is Guaranteed: every container's cpu and memory requests equal its
    limits (an absent request counts as the limit)."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return bool(containers) and all(map(_is_fixed, containers))


def limits_storage(spec: Mapping[str, Any]) -> bool:
    """Whether every container that stays has a limit on ephemeral storage. The kubelet holds a pod
    to the sum of those that there are, so a limit of the agent's alone would be one on the engine's
    downloads as well, and cost the pod."""
    staying = [
        *(spec.get("containers") or ()),
        *(c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"),
    ]
    return all(
        "ephemeral-storage" in ((container.get("resources") or {}).get("limits") or {})
        for container in staying
    )


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


def _over_quota(pool: Pool, promised: PoolUse, takes: PoolUse) -> Skipped | None:
    """A pod starts with its min, whatever the others were granted beyond theirs."""
    total = promised + takes
    for what, hard, used, needed, after in (
        (
            "memory",
            pool.quota.memory_bytes,
            promised.memory_bytes,
            takes.memory_bytes,
            total.memory_bytes,
        ),
        ("disk", pool.quota.disk_bytes, promised.disk_bytes, takes.disk_bytes, total.disk_bytes),
    ):
        if hard is not None and needed and after > hard:
            return Skipped(
                SkipReason.POOL_QUOTA,
                f"pool {pool.name} gives its pods {format_size(hard)} of {what} together"
                f" (spec.quota.{what}), {format_size(used)} are promised already, and this pod"
                f" starts with {format_size(needed)}",
            )
    return None


def _refused_volume(
    spec: Mapping[str, Any], pool: Pool, sizes: Sizes, where: Namespace
) -> Skipped | None:
    medium = pool.disk.medium if pool.disk and sizes.disk_bytes else None
    if medium is Medium.CLAIM_TEMPLATE and not (spec.get("securityContext") or {}).get("fsGroup"):
        return Skipped(
            SkipReason.CLAIM_NOT_WRITABLE,
            f"the disk of pool {pool.name} is a claim, which belongs to root unless the pod sets"
            f' securityContext.fsGroup; set it, or {names.DISK}: "0"',
        )
    if medium is not Medium.HOST_PATH or where.pod_security is None:
        return None
    return Skipped(
        SkipReason.POD_SECURITY,
        f"namespace {where.name} enforces Pod Security {where.pod_security}, which refuses the"
        f' HostPath disk of pool {pool.name}; use another medium, or {names.DISK}: "0"',
    )


def _told(pool: Pool, sizes: Sizes, engine: Mapping[str, Any], doubts: Iterable[Doubt]) -> str:
    disk = ""
    if sizes.disk_bytes and pool.disk:
        disk = f", disk {format_size(sizes.disk_bytes)} ({pool.disk.medium.value})"
    memory = format_size(sizes.memory_bytes)
    noted = "".join(f"; note: {doubt.sentence}" for doubt in doubts)
    return f"pool {pool.name}, engine container {engine['name']}, memory {memory}{disk}{noted}"
