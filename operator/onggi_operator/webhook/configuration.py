"""Keeps the caBundle of the webhook configuration equal to the CA in use. The chart owns the rest
of that object; nothing else of it is read or written."""

import base64
import logging
from typing import Final

from onggi_operator.kube.client import STRATEGIC_PATCH, ApiClient

PATH: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

log = logging.getLogger(__name__)


async def trust(api: ApiClient, name: str, ca_pem: str) -> None:
    """Write the CA where it differs. Raises ApiError, Unreachable."""
    body = await api.get(f"{PATH}/{name}")
    bundle = base64.b64encode(ca_pem.encode()).decode()
    stale = [
        hook["name"]
        for hook in body.get("webhooks") or ()
        if hook["clientConfig"].get("caBundle") != bundle
    ]
    if not stale:
        return
    # Merged by name, which is the key of this list.
    hooks = [{"name": hook, "clientConfig": {"caBundle": bundle}} for hook in stale]
    await api.patch(f"{PATH}/{name}", {"webhooks": hooks}, kind=STRATEGIC_PATCH)
    log.info("told the API server which CA to trust", extra={"configuration": name})
