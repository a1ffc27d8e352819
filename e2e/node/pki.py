"""Certificates and kubeconfigs of one cluster; made once a run, gone with it."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node.machine import Node
from node.places import CONTEXT, DOMAIN, LAN, PKI, SERVER, SERVICES_FIRST

VALID: Final = dt.timedelta(days=30)
"""A test cluster lives for minutes; a forgotten one for no longer than this."""
CLOCK_SLACK: Final = dt.timedelta(minutes=5)
SERVICE: Final = "kubernetes.default.svc"
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", None),
    "kube-scheduler": ("system:kube-scheduler", None),
    "kube-proxy": ("system:kube-proxy", None),
}
"""Name of the kubeconfig -> common name and organisation: user and group."""


def make(nodes: Sequence[Node]) -> None:
    """Whatever is missing: a node that joins later gets its certificates, the rest stay."""
    PKI.mkdir(parents=True, exist_ok=True)
    names = [
        "localhost",
        "node1",
        "kubernetes",
        "kubernetes.default",
        SERVICE,
        f"{SERVICE}.{DOMAIN}",
    ]
    hosts = [f"{LAN}.1", SERVICES_FIRST, "127.0.0.1", *names]
    _leaf("apiserver", "kube-apiserver", hosts=hosts)
    _leaf("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    _leaf("front-proxy", "front-proxy-client", authority="front-proxy-ca")
    users = dict(USERS)
    for node in nodes:
        _leaf(f"{node.name}-kubelet", node.name, hosts=[node.ip, node.name])
        users[node.name] = (f"system:node:{node.name}", "system:nodes")
    for name, (common_name, organisation) in users.items():
        _leaf(name, common_name, organisation)
        (PKI / f"{name}.kubeconfig").write_text(_kubeconfig(name))
    if not (PKI / "sa.key").exists():
        _service_account_keys()


def _subject(common_name: str, organisation: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organisation:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + VALID)
    )


def _write_key(name: str, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        ser.Encoding.PEM, ser.PrivateFormat.TraditionalOpenSSL, ser.NoEncryption()
    )
    (PKI / f"{name}.key").touch(mode=0o600)
    (PKI / f"{name}.key").write_bytes(pem)


def _write(name: str, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate) -> None:
    """The key first: a certificate on disk means that the pair is whole."""
    _write_key(name, key)
    (PKI / f"{name}.crt").write_bytes(cert.public_bytes(ser.Encoding.PEM))


def _authority(name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if (PKI / f"{name}.crt").exists():
        cert = x509.load_pem_x509_certificate((PKI / f"{name}.crt").read_bytes())
        loaded = ser.load_pem_private_key((PKI / f"{name}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        return cert, loaded
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=True,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    cert = (
        _builder(_subject(name), _subject(name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(name, key, cert)
    return cert, key


def _leaf(
    name: str,
    common_name: str,
    organisation: str | None = None,
    hosts: Sequence[str] = (),
    authority: str = "ca",
) -> None:
    if (PKI / f"{name}.crt").exists():
        return
    ca_cert, ca_key = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = _builder(_subject(common_name, organisation), ca_cert.subject, key)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    _write(name, key, builder.sign(ca_key, hashes.SHA256()))


def _general_name(host: str) -> x509.GeneralName:
    if host[0].isdigit():
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _service_account_keys() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)
    (PKI / "sa.pub").write_bytes(public)
    _write_key("sa", key)


def _kubeconfig(user: str) -> str:
    def b64(file: str) -> str:
        return base64.b64encode((PKI / file).read_bytes()).decode()

    cluster = {"server": SERVER, "certificate-authority-data": b64("ca.crt")}
    pair = {
        "client-certificate-data": b64(f"{user}.crt"),
        "client-key-data": b64(f"{user}.key"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": user, "user": pair}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
    }
    return json.dumps(config, indent=1)
