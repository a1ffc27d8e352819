"""What the user has set already. It wins: each finding is a reason to leave the pod alone."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from onggi_operator import names
from onggi_operator.inject.engine import command_line
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.pool import Configure, Engine, EngineKind

_CONNECTOR_FLAG: Final = re.compile(
    r"(?<![\w-])--kv[-_](?:tr[a-z_-]*|offloading[a-z_-]*)", re.IGNORECASE
)
"""Both spellings, dotted forms, abbreviations, and inside `sh -c` texts."""

_READ_ONLY_SOURCES: Final = ("configMap", "secret", "projected", "downwardAPI", "image")
"""Volumes in which no mount point can be made for a folder of ours below them."""

_OS_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")

WITH_PLUGINS: Final = (EngineKind.VLLM,)
"""Engines that look for plugins on the Python path and for which the client brings one."""

_AGENT_IMAGE: Final = re.compile(r"(^|/)onggi[-/]agent([:@]|$)")

OUR_VOLUMES: Final = (
    names.RUN_VOLUME,
    names.CLIENT_VOLUME,
    names.DISK_VOLUME,
    names.TOKEN_VOLUME,
)
OUR_CONTAINERS: Final = (names.AGENT_CONTAINER, names.CLIENT_CONTAINER)


def pod_conflict(spec: Mapping[str, Any]) -> Skipped | None:
    """What stands in the way anywhere in the pod."""
    checks = (_foreign_os, _pod_level_resources, _own_agent, _taken_names, _taken_port)
    return next((found for check in checks if (found := check(spec)) is not None), None)


def engine_conflict(
    spec: Mapping[str, Any], engine: Mapping[str, Any], pooled: Engine
) -> Skipped | None:
    """What stands in the way in the engine's container. With Manual its flags are the user's."""
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    automatic = pooled.configure is Configure.AUTO
    checks = (
        _needs_flags(pooled) if automatic else None,
        _connector_flag(engine) if automatic else None,
        _environment(engine, automatic=automatic),
        _taken_mounts(engine, volumes),
    )
    return next((found for found in checks if found is not None), None)


def _foreign_os(spec: Mapping[str, Any]) -> Skipped | None:
    name = next((name for name in _os_names(spec) if name != "linux"), None)
    if name is None:
        return None
    return Skipped(SkipReason.UNSUPPORTED_OS, f"the pod is meant for {name}; Onggi runs on Linux")


def _os_names(spec: Mapping[str, Any]) -> Iterator[str]:
    """Every word that the pod has on its nodes' system."""
    if name := (spec.get("os") or {}).get("name"):
        yield name
    selector = spec.get("nodeSelector") or {}
    yield from (selector[label] for label in _OS_LABELS if selector.get(label))
    if (spec.get("securityContext") or {}).get("windowsOptions"):
        yield "windows"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {
            value
            for match in term.get("matchExpressions") or ()
            if match.get("key") in _OS_LABELS and match.get("operator") == "In"
            for value in match.get("values") or ()
        }
        for term in required.get("nodeSelectorTerms") or ()
    ]
    if terms and all(term and "linux" not in term for term in terms):
        yield min(terms[0])


def _taken_port(spec: Mapping[str, Any]) -> Skipped | None:
    """The containers of a pod share its ports, and the agent, which starts first, would take one
    of theirs. 9464 is also where OpenTelemetry's Prometheus exporters listen."""
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            for port in container.get("ports") or ():
                if (
                    port.get("containerPort") == names.HTTP_PORT
                    and (port.get("protocol") or "TCP") == "TCP"
                ):
                    return Skipped(
                        SkipReason.PORT_TAKEN,
                        f"container {container.get('name')} listens on port {names.HTTP_PORT},"
                        " which Onggi's agent needs; let it listen on another",
                    )
    return None


def _pod_level_resources(spec: Mapping[str, Any]) -> Skipped | None:
    if not spec.get("resources"):
        return None
    return Skipped(
        SkipReason.POD_LEVEL_RESOURCES,
        "the pod sets resources for itself as a whole (spec.resources), and a further container"
        " could exceed them; set them on its containers instead",
    )


def _own_agent(spec: Mapping[str, Any]) -> Skipped | None:
    """Two agents in one pod would be two owners of one arena's folder."""
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            if _is_agent(container):
                return Skipped(
                    SkipReason.OWN_AGENT,
                    f"container {container.get('name')} is an Onggi agent that the pod brings"
                    f" itself; take it out, or the annotation {names.POOL}",
                )
    return None


def _is_agent(container: Mapping[str, Any]) -> bool:
    words = command_line(container)
    if words:
        return [words[0].rpartition("/")[2], *words[1:2]] == ["onggi", "agent"]
    return bool(_AGENT_IMAGE.search(str(container.get("image") or "")))


def _taken_names(spec: Mapping[str, Any]) -> Skipped | None:
    for kind, ours, key in (
        ("container", OUR_CONTAINERS, "initContainers"),
        ("container", OUR_CONTAINERS, "containers"),
        ("volume", OUR_VOLUMES, "volumes"),
    ):
        for item in spec.get(key) or ():
            if item.get("name") in ours:
                return Skipped(
                    SkipReason.NAME_TAKEN,
                    f"the pod has a {kind} of its own named {item['name']}; rename it",
                )
    return None


def _needs_flags(pooled: Engine) -> Skipped | None:
    if pooled.kind in WITH_PLUGINS:
        return None
    return Skipped(
        SkipReason.ENGINE_NEEDS_FLAGS,
        f"{pooled.kind.value} has no plugin that could switch Onggi's client on; set"
        " spec.engine.configure of the pool to Manual and give the engine its flags",
    )


def _connector_flag(engine: Mapping[str, Any]) -> Skipped | None:
    for word in command_line(engine):
        if match := _CONNECTOR_FLAG.search(word):
            return Skipped(
                SkipReason.CONNECTOR_SET,
                f"container {engine['name']} sets {match[0]} itself, which wins; take it out to"
                " use Onggi",
            )
    return None


def _environment(engine: Mapping[str, Any], *, automatic: bool) -> Skipped | None:
    name = engine["name"]
    for entry in engine.get("env") or ():
        match entry.get("name"):
            case "PYTHONPATH" if entry.get("valueFrom"):
                return Skipped(
                    SkipReason.PYTHONPATH_BY_REFERENCE,
                    f"container {name} takes PYTHONPATH from elsewhere (valueFrom), so nothing can"
                    " be put before it; give it as a value",
                )
            case "VLLM_PLUGINS" if automatic and _leaves_us_out(entry):
                return Skipped(
                    SkipReason.PLUGINS_RESTRICTED,
                    f"container {name} sets VLLM_PLUGINS without onggi; add it to the list",
                )
            case "ONGGI_SOCKET" if entry.get("value") != names.SOCKET_PATH:
                return Skipped(
                    SkipReason.VARIABLE_TAKEN,
                    f"container {name} sets ONGGI_SOCKET itself; take it out to use Onggi",
                )
    return None


def _leaves_us_out(entry: Mapping[str, Any]) -> bool:
    listed = str(entry.get("value") or "").split(",")
    return bool(entry.get("valueFrom")) or "onggi" not in (word.strip() for word in listed)


def _taken_mounts(engine: Mapping[str, Any], volumes: Mapping[Any, Any]) -> Skipped | None:
    for device in engine.get("volumeDevices") or ():
        if _clean(device.get("devicePath")) in (names.RUN_PATH, names.CLIENT_PATH):
            return Skipped(
                SkipReason.MOUNT_TAKEN,
                f"container {engine['name']} has device {device.get('name')} at"
                f" {device['devicePath']}, where Onggi's folder belongs; put it elsewhere",
            )
    for mount in engine.get("volumeMounts") or ():
        path = _clean(mount.get("mountPath"))
        for ours in (names.RUN_PATH, names.CLIENT_PATH):
            at_or_below = path == ours or path.startswith(ours + "/")
            above = ours.startswith(path.rstrip("/") + "/")
            if at_or_below or (above and _read_only(mount, volumes.get(mount.get("name")))):
                return Skipped(
                    SkipReason.MOUNT_TAKEN,
                    f"container {engine['name']} mounts {mount.get('name')} at {path}, where"
                    f" Onggi's {ours} belongs; mount it elsewhere",
                )
    return None


def _clean(path: object) -> str:
    """As the container sees it: `/run//onggi` and `/var/run/onggi` are `/run/onggi`."""
    clean = posixpath.normpath("/" + str(path or "").lstrip("/"))
    return clean.removeprefix("/var") if (clean + "/").startswith("/var/run/") else clean


def _read_only(mount: Mapping[str, Any], volume: Mapping[str, Any] | None) -> bool:
    if mount.get("readOnly") or volume is None:
        return True
    if any(source in volume for source in _READ_ONLY_SOURCES):
        return True
    sources = (source for source in volume.values() if isinstance(source, Mapping))
    return any(source.get("readOnly") for source in sources)
