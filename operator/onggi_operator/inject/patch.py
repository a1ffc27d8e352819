"""Building the JSON patch: only additions, and the one value of PYTHONPATH that grows in front."""

from collections.abc import Mapping, Sequence
from typing import Any

from onggi_operator import names
from onggi_operator.inject.outcome import Patch
from onggi_operator.pool import Configure, Pool


def stamp(pod: Mapping[str, Any], status: str) -> Patch:
    """The status annotation alone; empty when the pod already says so."""
    return _set_keys("/metadata/annotations", _metadata(pod, "annotations"), {names.STATUS: status})


def injection(
    pod: Mapping[str, Any],
    engine_at: int,
    *,
    status: str,
    pool: Pool,
    init_containers: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]],
    preferred: Patch = (),
    gated: bool = False,
) -> Patch:
    """Everything an injected pod gets."""
    spec = pod["spec"]
    labels = _metadata(pod, "labels")
    label = {} if names.POOL in labels else {names.POOL: names.label_value(pool.name)}
    return (
        *stamp(pod, status),
        *_set_keys("/metadata/labels", labels, label),
        *_prepend("/spec/initContainers", spec.get("initContainers"), init_containers),
        *_append("/spec/volumes", spec.get("volumes"), volumes),
        *_group(spec.get("securityContext"), pool.security.group),
        *preferred,
        *(_gate(spec.get("readinessGates")) if gated else ()),
        *_engine(f"/spec/containers/{engine_at}", spec["containers"][engine_at], pool),
    )


def _metadata(pod: Mapping[str, Any], key: str) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get(key) or {}


def _engine(path: str, engine: Mapping[str, Any], pool: Pool) -> Patch:
    env = engine.get("env") or []
    added = []
    operations: list[Mapping[str, Any]] = []
    # Of two entries with one name the last one counts.
    at = {entry.get("name"): i for i, entry in enumerate(env)}
    if "PYTHONPATH" not in at:
        # One from a ConfigMap or Secret as a whole would be hidden by ours. The kubelet puts it in
        # here; where there is none the text stays, and names a folder that does not exist.
        behind = ":$(PYTHONPATH)" if engine.get("envFrom") else ""
        added.append({"name": "PYTHONPATH", "value": f"{names.CLIENT_PATH}{behind}"})
    else:
        i = at["PYTHONPATH"]
        old = env[i].get("value") or ""
        if names.CLIENT_PATH not in old.split(":"):
            value = f"{names.CLIENT_PATH}:{old}" if old else names.CLIENT_PATH
            operations.append(
                {
                    "op": "replace" if "value" in env[i] else "add",
                    "path": f"{path}/env/{i}/value",
                    "value": value,
                }
            )
    added.extend(
        {"name": name, "value": value}
        for name, value in (
            ("ONGGI_SOCKET", names.SOCKET_PATH),
            ("ONGGI_CONFIGURE", "Manual" if pool.engine.configure is Configure.MANUAL else None),
            ("ONGGI_MODEL_REVISION", pool.identity.model_revision),
            ("ONGGI_TENANT", pool.identity.tenant),
        )
        if value is not None and name not in at
    )
    mounts = [
        {"name": names.RUN_VOLUME, "mountPath": names.RUN_PATH},
        {"name": names.CLIENT_VOLUME, "mountPath": names.CLIENT_PATH, "readOnly": True},
    ]
    return (
        *operations,
        *_append(f"{path}/env", engine.get("env"), added),
        *_append(f"{path}/volumeMounts", engine.get("volumeMounts"), mounts),
    )


def _gate(present: Sequence[Mapping[str, Any]] | None) -> Patch:
    gate = {"conditionType": names.WARM}
    return () if gate in (present or ()) else _append("/spec/readinessGates", present, [gate])


def _group(security: Mapping[str, Any] | None, group: int) -> Patch:
    if not security:
        groups = {"supplementalGroups": [group]}
        return ({"op": "add", "path": "/spec/securityContext", "value": groups},)
    present = security.get("supplementalGroups")
    if present and group in present:
        return ()
    return _append("/spec/securityContext/supplementalGroups", present, [group])


def _append(path: str, present: Sequence[Any] | None, items: Sequence[Any]) -> Patch:
    if not items:
        return ()
    if not present:
        return ({"op": "add", "path": path, "value": list(items)},)
    return tuple({"op": "add", "path": f"{path}/-", "value": item} for item in items)


def _prepend(path: str, present: Sequence[Any] | None, items: Sequence[Any]) -> Patch:
    if not present:
        return _append(path, present, items)
    return tuple(
        {"op": "add", "path": f"{path}/{i}", "value": item} for i, item in enumerate(items)
    )


def _set_keys(path: str, present: Mapping[str, str], wanted: Mapping[str, str]) -> Patch:
    missing = {key: value for key, value in wanted.items() if present.get(key) != value}
    if not missing:
        return ()
    if not present:
        return ({"op": "add", "path": path, "value": missing},)
    return tuple(
        {"op": "add", "path": f"{path}/{_pointer(key)}", "value": value}
        for key, value in missing.items()
    )


def _pointer(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
