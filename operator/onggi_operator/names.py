"""Every name that Onggi writes into or reads from a Kubernetes object, and the fixed numbers."""

import hashlib
import re
from typing import Final

GROUP: Final = "onggi.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "kvcachepools"
KIND: Final = "KVCachePool"
PREFIX: Final = f"{GROUP}/"
NODE_PLURAL: Final = "kvcachenodes"
NODE_KIND: Final = "KVCacheNode"
POOLS_PATH: Final = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
NODES_PATH: Final = f"/apis/{GROUP}/{VERSION}/{NODE_PLURAL}"

POOL: Final = f"{PREFIX}pool"
INJECT: Final = f"{PREFIX}inject"
CONTAINER: Final = f"{PREFIX}container"
MEMORY: Final = f"{PREFIX}memory"
DISK: Final = f"{PREFIX}disk"
STATUS: Final = f"{PREFIX}status"

ANNOTATIONS: Final = {
    POOL: "The KVCachePool of the pod's namespace that the pod asks for.",
    INJECT: '`"false"` leaves the pod alone, whatever else it says; `"true"` changes nothing.',
    CONTAINER: "Name of the container that runs the engine, where it cannot be told otherwise.",
    MEMORY: "Bytes of arena for this pod, at most the pool's `memory.max` (a quantity, `2Gi`).",
    DISK: "Bytes on disk for this pod, at most the pool's `localDisk.max`; `0` for no disk.",
    STATUS: "Written by Onggi: `injected: ...` or `skipped: REASON: ...`. Not for users to set.",
}
"""What a pod may say; docs/api.md is made from this table, and a key outside it is a mistake."""

WARM: Final = f"{PREFIX}warm"
"""The readiness gate of pods that wait for their cache, and the condition that opens it."""

AGENT_CONTAINER: Final = "onggi-agent"
CLIENT_CONTAINER: Final = "onggi-client"

RUN_VOLUME: Final = "onggi-run"
CLIENT_VOLUME: Final = "onggi-client"
DISK_VOLUME: Final = "onggi-disk"
TOKEN_VOLUME: Final = "onggi-token"  # noqa: S105 - a name

RUN_PATH: Final = "/run/onggi"
CLIENT_PATH: Final = "/opt/onggi"
DISK_PATH: Final = "/var/lib/onggi"
TOKEN_PATH: Final = "/var/run/secrets/onggi"  # noqa: S105 - a name
SOCKET_PATH: Final = f"{RUN_PATH}/agent.sock"

TOKEN_AUDIENCE: Final = "onggi"  # noqa: S105 - a name
HTTP_PORT: Final = 9464
HTTP_PORT_NAME: Final = "onggi-http"

ONGGI_GID: Final = 64646
"""The group that socket, arena and disk folder belong to; every container of an injected pod is in
it. Also the agent's user. Above 60000, where distributions hand out no ids of their own."""

LABEL_VALUE_MAX: Final = 63
_DIGEST_CHARS: Final = 10
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def label_value(name: str) -> str:
    """A name of any length as a label value: itself where it fits, else cut and told apart.

    Always the same for one name, at most 63 characters, alphanumeric at both ends. A cut name ends
    in a digest of the whole, so that names with equal beginnings stay different.
    """
    safe = _UNSAFE.sub("-", name)
    if safe == name and len(name) <= LABEL_VALUE_MAX and name[0].isalnum() and name[-1].isalnum():
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    head = safe[: LABEL_VALUE_MAX - _DIGEST_CHARS - 1].strip("._-")
    return f"{head}-{digest}" if head else digest
