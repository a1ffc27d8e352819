"""Where the API server is and how to prove who we are: the pod's service account, or what the
settings say outside a cluster."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_BYTES_MAX: Final = 64 * 1024


class NoAccess(Exception):
    """Neither a service account nor settings say where the API server is."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """`token_file` is read again for every call: the kubelet renews it."""

    server: str
    ca_file: Path
    token_file: Path

    def token(self) -> str:
        """Raises OSError when the file is gone."""
        with self.token_file.open() as file:
            return file.read(TOKEN_BYTES_MAX).strip()

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))


def from_pod(env: Mapping[str, str]) -> ApiAccess:
    """Raises NoAccess outside a pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccess(
            "not in a pod (no KUBERNETES_SERVICE_HOST); set ONGGI_API_SERVER, ONGGI_API_CA_FILE"
            " and ONGGI_API_TOKEN_FILE"
        )
    if ":" in host:
        host = f"[{host}]"
    ca_file, token_file = SERVICE_ACCOUNT / "ca.crt", SERVICE_ACCOUNT / "token"
    for file in (ca_file, token_file):
        if not os.access(file, os.R_OK):
            raise NoAccess(
                f"this pod has no {file} that can be read; give it its service account's token"
                " (automountServiceAccountToken)"
            )
    return ApiAccess(f"https://{host}:{port}", ca_file, token_file)
