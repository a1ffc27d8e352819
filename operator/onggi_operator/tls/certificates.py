"""Making the CA and the serving certificate, and judging whether those at hand will still do.

Time is an argument. Keys are P-256: fast to make at start-up and to shake hands with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
"""Agents are given the CA when their pod is made and keep it; ten years outlive any pod."""

LEAF_LIFE: Final = timedelta(days=90)
LEAF_RENEW_BEFORE: Final = timedelta(days=30)
"""A third of its life: weeks of a broken operator pass before anybody notices."""

AUTHORITY_RENEW_BEFORE: Final = timedelta(days=365)
"""No leaf may outlive its CA; a year leaves time to make the last pods anew."""

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates begin this much earlier, for nodes whose clocks are behind."""

CA_BUNDLE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
LEAF: Final = "tls.crt"
LEAF_KEY: Final = "tls.key"
KEYS: Final = (CA_BUNDLE, CA_KEY, LEAF, LEAF_KEY)


class Unusable(Exception):
    """Certificates that will not do; the message says why."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The Secret's data, as PEM. `ca_bundle` begins with the current CA; an older one that is still
    valid follows it."""

    ca_bundle: bytes
    ca_key: bytes
    leaf: bytes
    leaf_key: bytes

    def data(self) -> dict[str, bytes]:
        return dict(zip(KEYS, (self.ca_bundle, self.ca_key, self.leaf, self.leaf_key), strict=True))


def renewed(
    data: Mapping[str, bytes], hosts: Sequence[str], *, now: datetime
) -> tuple[Bundle, str | None]:
    """The certificates to serve with, and why they are new (None when those given still do)."""
    try:
        authority, authority_key = _authority(data, now)
    except Unusable as problem:
        return _all_new(data, hosts, now), str(problem)
    try:
        _judge_leaf(data, authority, hosts, now)
    except Unusable as problem:
        leaf, leaf_key = _make_leaf(authority, authority_key, hosts, now)
        return Bundle(data[CA_BUNDLE], data[CA_KEY], leaf, leaf_key), str(problem)
    return Bundle(*(data[key] for key in KEYS)), None


def _all_new(data: Mapping[str, bytes], hosts: Sequence[str], now: datetime) -> Bundle:
    authority, authority_key = _make_authority(now)
    leaf, leaf_key = _make_leaf(authority, authority_key, hosts, now)
    bundle = _pem(authority) + _still_valid(data.get(CA_BUNDLE, b""), now)
    return Bundle(bundle, _key_pem(authority_key), leaf, leaf_key)


def _still_valid(bundle: bytes, now: datetime) -> bytes:
    """The newest old CA, so that leaves it signed are believed until every server has a new one."""
    try:
        old = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return b""
    return b"".join(_pem(one) for one in old[:1] if one.not_valid_after_utc > now)


def _authority(
    data: Mapping[str, bytes], now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if not data.get(CA_BUNDLE) or not data.get(CA_KEY):
        raise Unusable("there is no CA yet")
    try:
        authority = x509.load_pem_x509_certificates(data[CA_BUNDLE])[0]
        key = serialization.load_pem_private_key(data[CA_KEY], None)
    except ValueError as fault:
        raise Unusable("the CA cannot be read") from fault
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != authority.public_key()
    ):
        raise Unusable("the CA and its key do not belong together")
    if authority.not_valid_after_utc - AUTHORITY_RENEW_BEFORE <= now:
        raise Unusable("the CA is near its end")
    return authority, key


def _judge_leaf(
    data: Mapping[str, bytes], authority: x509.Certificate, hosts: Sequence[str], now: datetime
) -> None:
    if not data.get(LEAF) or not data.get(LEAF_KEY):
        raise Unusable("there is no serving certificate yet")
    try:
        leaf = x509.load_pem_x509_certificate(data[LEAF])
        key = serialization.load_pem_private_key(data[LEAF_KEY], None)
        leaf.verify_directly_issued_by(authority)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as fault:
        raise Unusable("the serving certificate cannot be read or is not the CA's") from fault
    if key.public_key() != leaf.public_key():
        raise Unusable("the serving certificate and its key do not belong together")
    if set(names.get_values_for_type(x509.DNSName)) != set(hosts):
        raise Unusable("the serving certificate has other names")
    if leaf.not_valid_after_utc - LEAF_RENEW_BEFORE <= now:
        raise Unusable("the serving certificate is near its end")


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps an old and a new CA apart for who looks issuers up by name.
    serial = x509.random_serial_number()
    name = _name(f"onggi-ca-{serial % 16**8:08x}")
    builder = _builder(name, name, key, serial, now, AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.sign(key, hashes.SHA256()), key


def _make_leaf(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
    now: datetime,
) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        _name("onggi"), authority.subject, key, x509.random_serial_number(), now, LEAF_LIFE
    )
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (names, False),
        (issuer, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return _pem(builder.sign(authority_key, hashes.SHA256())), _key_pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
