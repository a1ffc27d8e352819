"""The three answers to "what does this pod get?", and how they are written on the pod."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from onggi_operator.tenancy import NOTHING_USED, PoolUse

Patch = tuple[Mapping[str, Any], ...]
"""JSON patch operations (RFC 6902), in order."""

MESSAGE_CHARS_MAX: Final = 400
"""Long enough for a sentence with two names in it; admission warnings are cut at 4 KiB in all."""


class SkipReason(str, Enum):
    """Why a pod that asks for a pool is admitted without an agent."""

    API_UNREACHABLE = "ApiUnreachable"
    """The webhook could not read pools, and does not hold up pods until it can."""
    CLAIM_NOT_WRITABLE = "ClaimNotWritable"
    """The pool's disk is a claim, whose volume the agent can only write in a pod with `fsGroup`."""
    CLIENT_HIDDEN = "ClientHidden"
    """The engine's command sets or drops `PYTHONPATH`, or has Python ignore it, so that the engine
    would never find the client."""
    CONNECTOR_SET = "ConnectorSet"
    """The engine's command sets a KV connector or KV offloading of its own, which wins."""
    CONTAINER_UNKNOWN = "ContainerUnknown"
    """`onggi.dev/container` or the pool names a container that the pod does not have."""
    ENGINE_AMBIGUOUS = "EngineAmbiguous"
    """Several containers look like the engine and nothing says which one is meant."""
    ENGINE_NEEDS_FLAGS = "EngineNeedsFlags"
    """The engine has no plugins by which Onggi could switch its client on, and the pool does not
    say `configure: Manual`."""
    ENGINE_NOT_FOUND = "EngineNotFound"
    """There are several containers and none of them looks like the engine."""
    INJECTION_OFF = "InjectionOff"
    """The pool has `spec.injection.enabled: false`."""
    INTERNAL_ERROR = "InternalError"
    """A bug of Onggi's; the webhook's log has it, and the pod starts without an agent."""
    LIMIT_RANGE = "LimitRange"
    """The namespace's LimitRange refuses a container of the size that the agent needs."""
    MOUNT_TAKEN = "MountTaken"
    """The engine's container mounts something of its own where Onggi's folders belong."""
    NAME_TAKEN = "NameTaken"
    """The pod has a container or volume of its own with one of Onggi's names."""
    OLD_KUBERNETES = "OldKubernetes"
    """The cluster is older than native sidecars (1.29), and an agent would hold up its pod."""
    OWN_AGENT = "OwnAgent"
    """The pod has an agent already that Onggi did not put there for this pool."""
    PLUGINS_RESTRICTED = "PluginsRestricted"
    """`VLLM_PLUGINS` keeps the engine from loading Onggi's plugin."""
    POD_LEVEL_RESOURCES = "PodLevelResources"
    """The pod has `spec.resources`; a further container could exceed them and have it refused."""
    POD_SECURITY = "PodSecurity"
    """The namespace enforces Pod Security `baseline` or `restricted`, and the pool's disk is a
    HostPath, which these refuse."""
    POOL_QUOTA = "PoolQuota"
    """The pool's `spec.quota` has no room for what another agent starts with."""
    POOL_UNREADABLE = "PoolUnreadable"
    """The pool holds something that this version cannot read."""
    PORT_TAKEN = "PortTaken"
    """A container of the pod listens on the port of the agent's probes and metrics."""
    PYTHONPATH_BY_REFERENCE = "PythonPathByReference"
    """`PYTHONPATH` comes from a ConfigMap, Secret or field, so nothing can be put before it."""
    QUOTA = "Quota"
    """The namespace's ResourceQuota has room for the pod and not for an agent beside it."""
    SIZE_OVER_POOL = "SizeOverPool"
    """`onggi.dev/memory` or `onggi.dev/disk` asks for more than the pool gives a pod."""
    UNKNOWN_ANNOTATION = "UnknownAnnotation"
    """A key under `onggi.dev/` that does not exist, or a value that its key does not take."""
    UNKNOWN_POOL = "UnknownPool"
    """The pod's namespace has no KVCachePool of that name."""
    UNKNOWN_REVISION = "UnknownRevision"
    """The pool pins a revision that this installation never injected."""
    UNSUPPORTED_OS = "UnsupportedOS"
    """The pod is meant for nodes that do not run Linux."""
    VARIABLE_TAKEN = "VariableTaken"
    """The engine's container has `ONGGI_SOCKET` set to something else."""


@dataclass(frozen=True, slots=True)
class Injected:
    """The pod gets an agent. `status` is what the pod's annotation will say, `takes` what it takes
    of its pool's quota."""

    patch: Patch
    status: str
    warnings: tuple[str, ...] = ()
    takes: PoolUse = NOTHING_USED


@dataclass(frozen=True, slots=True)
class Skipped:
    """The pod is admitted with nothing but its status annotation."""

    reason: SkipReason
    message: str


@dataclass(frozen=True, slots=True)
class Untouched:
    """The pod is admitted exactly as it is: it opted out, or has its agent already."""

    why: str


Outcome = Injected | Skipped | Untouched

_STATUS: Final = re.compile(r"(injected|skipped): ([A-Za-z0-9.-]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A pod's status annotation, read back. `word` is the revision or the skip reason."""

    injected: bool
    word: str
    message: str


def injected_status(revision: str, message: str) -> str:
    return f"injected: {revision}: {_cut(message)}"


def skipped_status(skipped: Skipped) -> str:
    return f"skipped: {skipped.reason.value}: {_cut(skipped.message)}"


def read_status(text: str) -> Stamp | None:
    """None for text that Onggi did not write."""
    match = _STATUS.fullmatch(text)
    return None if match is None else Stamp(match[1] == "injected", match[2], match[3])


def _cut(message: str) -> str:
    return (
        message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 3] + "..."
    )
