"""Keeps the Secret's certificates valid and a running server serving the newest of them.

Webhook replicas and controller share one Secret and none of them leads: whoever finds it wanting
renews it under the resource version it read, and who loses that race takes what the winner wrote.
"""

import asyncio
import base64
import logging
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from onggi_operator.kube.client import ApiClient, ApiError, Conflict, Unreachable
from onggi_operator.tls.certificates import Bundle, leaf_ends, renewed, still_good

CHECK_PERIOD_S: Final = 60.0
"""How soon a certificate that another replica renewed is served here too."""

CHECK_SOON_S: Final = 2.0
"""Between tries while there is nothing to serve with, or what is served has expired."""

RACES_MAX: Final = 5
"""Lost races in a row; more means something else fights over the Secret, and the next check
tries again."""

log = logging.getLogger(__name__)


class CertificateKeeper:
    """`context` serves the newest certificate from the next handshake on."""

    def __init__(
        self,
        api: ApiClient,
        *,
        namespace: str,
        secret: str,
        hosts: Sequence[str],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
        self._hosts = tuple(hosts)
        self._now = now
        self._served: Bundle | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ready = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def ca_pem(self) -> str | None:
        """What clients have to trust; None before the first certificate."""
        return self._served.ca_bundle.decode() if self._served else None

    async def run(self) -> None:
        """Check until cancelled. A fault leaves what is served as it is."""
        while True:
            try:
                await self.check()
            except (ApiError, Unreachable) as fault:
                log.warning("certificates could not be checked: %s", fault)
            await asyncio.sleep(self._check_again_s())

    def _check_again_s(self) -> float:
        if self._served is None:
            return CHECK_SOON_S
        left_s = (leaf_ends(self._served) - self._now()).total_seconds()
        return min(CHECK_PERIOD_S, max(CHECK_SOON_S, left_s))

    async def changed(self, within_s: float) -> None:
        """Wait until another certificate is served, no longer than `within_s`. For one waiter."""
        try:
            await asyncio.wait_for(self._changed.wait(), within_s)
        except TimeoutError:
            return
        self._changed.clear()

    async def check(self) -> None:
        """One round: read, renew if needed, serve. Raises ApiError, Unreachable."""
        for _ in range(RACES_MAX):
            try:
                bundle = await self._current()
            except Conflict:
                continue
            if bundle != self._served:
                _load(self.context, bundle)
                self._served = bundle
                self.ready.set()
                self._changed.set()
                log.info("serving a new certificate")
            return
        log.warning("certificates changed %d times while being renewed", RACES_MAX)

    async def _current(self) -> Bundle:
        secret = await self._api.get(self._path)
        data = {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}
        bundle, reason = renewed(data, self._hosts, now=self._now())
        if reason is not None:
            log.info("renewing certificates: %s", reason)
            encoded = {key: base64.b64encode(pem).decode() for key, pem in bundle.data().items()}
            version = secret["metadata"]["resourceVersion"]
            change = {"metadata": {"resourceVersion": version}, "data": encoded}
            try:
                await self._api.patch(self._path, change)
            except Conflict:
                raise
            except (ApiError, Unreachable) as fault:
                # Weeks are left when they are due: a server that starts then must not be the one
                # that has nothing to serve with.
                if (present := still_good(data, self._hosts, now=self._now())) is None:
                    raise
                log.warning("certificates could not be renewed, until %s the old ones do: %s",
                            leaf_ends(present), fault)  # fmt: skip
                return present
        return bundle


def _load(context: ssl.SSLContext, bundle: Bundle) -> None:
    """OpenSSL takes files only; they are gone when this returns."""
    with tempfile.TemporaryDirectory(prefix="onggi-tls-") as folder:
        leaf, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        leaf.write_bytes(bundle.leaf)
        key.touch(mode=0o600)
        key.write_bytes(bundle.leaf_key)
        context.load_cert_chain(leaf, key)
