"""A serving certificate of Onggi's own CA whose life is short, and what a server serves."""

from __future__ import annotations

import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rig.kubectl import Kubectl, Object
from rig.reach import address

SECRET: Final = "onggi-tls"
HTTPS_PORT: Final = 8443


def short_lived(kubectl: Kubectl, life: timedelta) -> datetime:
    """Put one into Onggi's Secret that is its present one but for its end; answers that end."""
    secret = kubectl.get("secret", SECRET)
    pems = {key: base64.b64decode(text) for key, text in secret["data"].items()}
    authority = x509.load_pem_x509_certificate(pems["ca.crt"])
    signer = serialization.load_pem_private_key(pems["ca.key"], None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    before = x509.load_pem_x509_certificate(pems["tls.crt"])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(before.subject)
        .issuer_name(authority.subject)
        .public_key(before.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + life)
    )
    for extension in before.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    leaf = builder.sign(signer, hashes.SHA256())
    pem = leaf.public_bytes(serialization.Encoding.PEM)
    change = {"data": {"tls.crt": base64.b64encode(pem).decode()}}
    kubectl("patch", "secret", SECRET, "--patch", json.dumps(change))
    return leaf.not_valid_after_utc


def served_until(kubectl: Kubectl, pod: Object) -> datetime | None:
    """The end of the certificate that a pod of ours serves with; None while it serves nothing."""
    try:
        pem = ssl.get_server_certificate(address(kubectl, pod, HTTPS_PORT), timeout=5)
    except OSError:
        return None
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
