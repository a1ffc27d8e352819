"""Making the CA and the serving certificate, and judging whether those at hand will still do.

Time is an argument. Keys are P-256: fast to make at start-up and to shake hands with.

A CA that takes over is signed by the one before it as well. That second certificate, the bridge, is
served behind the leaf: who was told of the old CA only (an agent, for as long as its pod lives; the
API server, until it is told) follows it from the new leaf to the old CA.
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
    valid follows it. `leaf` is followed by the bridge while there is an older CA."""

    ca_bundle: bytes
    ca_key: bytes
    leaf: bytes
    leaf_key: bytes

    def data(self) -> dict[str, bytes]:
        return dict(zip(KEYS, (self.ca_bundle, self.ca_key, self.leaf, self.leaf_key), strict=True))


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def renewed(
    data: Mapping[str, bytes], hosts: Sequence[str], *, now: datetime
) -> tuple[Bundle, str | None]:
    """The certificates to serve with, and why they are new (None when those given still do)."""
    try:
        authority = _authority(data)
    except Unusable as problem:
        return _all_new(data, None, hosts, now), str(problem)
    if authority.certificate.not_valid_after_utc - AUTHORITY_RENEW_BEFORE <= now:
        return _all_new(data, authority, hosts, now), "the CA is near its end"
    try:
        _judge_leaf(data, authority.certificate, hosts, now, before=LEAF_RENEW_BEFORE)
    except Unusable as problem:
        leaf, leaf_key = _make_leaf(authority, hosts, now)
        leaf += _bridge_of(data, authority, now)
        return Bundle(data[CA_BUNDLE], data[CA_KEY], leaf, leaf_key), str(problem)
    return Bundle(*(data[key] for key in KEYS)), None


def still_good(data: Mapping[str, bytes], hosts: Sequence[str], *, now: datetime) -> Bundle | None:
    """Those given, if callers take them yet, due for renewal or not."""
    try:
        authority = _authority(data).certificate
        _judge_leaf(data, authority, hosts, now, before=timedelta(0))
    except Unusable:
        return None
    return Bundle(*(data[key] for key in KEYS)) if authority.not_valid_after_utc > now else None


def leaf_ends(bundle: Bundle) -> datetime:
    """When the serving certificate expires."""
    return x509.load_pem_x509_certificate(bundle.leaf).not_valid_after_utc


def _all_new(
    data: Mapping[str, bytes], old: _Authority | None, hosts: Sequence[str], now: datetime
) -> Bundle:
    authority = _make_authority(now)
    leaf, leaf_key = _make_leaf(authority, hosts, now)
    if old is not None and old.certificate.not_valid_after_utc > now:
        leaf += _pem(_make_bridge(authority, old, now))
    bundle = _pem(authority.certificate) + _still_valid(data.get(CA_BUNDLE, b""), now)
    return Bundle(bundle, _key_pem(authority.key), leaf, leaf_key)


def _bridge_of(data: Mapping[str, bytes], authority: _Authority, now: datetime) -> bytes:
    """The bridge behind the present leaf, if it is still good. It cannot be made anew: the old CA's
    key is gone."""
    try:
        chain = x509.load_pem_x509_certificates(data.get(LEAF, b""))
    except ValueError:
        return b""
    return b"".join(
        _pem(one)
        for one in chain[1:2]
        if one.public_key() == authority.key.public_key() and one.not_valid_after_utc > now
    )


def _still_valid(bundle: bytes, now: datetime) -> bytes:
    """The newest old CA, so that leaves it signed are believed until every server has a new one."""
    try:
        old = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return b""
    return b"".join(_pem(one) for one in old[:1] if one.not_valid_after_utc > now)


def _authority(data: Mapping[str, bytes]) -> _Authority:
    if not data.get(CA_BUNDLE) or not data.get(CA_KEY):
        raise Unusable("there is no CA yet")
    try:
        certificate = x509.load_pem_x509_certificates(data[CA_BUNDLE])[0]
        key = serialization.load_pem_private_key(data[CA_KEY], None)
    except ValueError as fault:
        raise Unusable("the CA cannot be read") from fault
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise Unusable("the CA and its key do not belong together")
    return _Authority(certificate, key)


def _judge_leaf(
    data: Mapping[str, bytes],
    authority: x509.Certificate,
    hosts: Sequence[str],
    now: datetime,
    *,
    before: timedelta,
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
    if leaf.not_valid_after_utc - before <= now:
        raise Unusable("the serving certificate is near its end")


def _make_authority(now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps an old and a new CA apart for who looks issuers up by name.
    serial = x509.random_serial_number()
    name = _name(f"onggi-ca-{serial % 16**8:08x}")
    builder = _builder(name, name, key, serial, now, now + AUTHORITY_LIFE)
    # One below it beside leaves: the bridge to the CA that follows.
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _Authority(builder.sign(key, hashes.SHA256()), key)


def _make_bridge(authority: _Authority, old: _Authority, now: datetime) -> x509.Certificate:
    """The new CA's name and key under the old one's signature, for as long as the old one lasts."""
    builder = _builder(
        authority.certificate.subject,
        old.certificate.subject,
        authority.key,
        x509.random_serial_number(),
        now,
        old.certificate.not_valid_after_utc,
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(old.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.add_extension(issuer, critical=False).sign(old.key, hashes.SHA256())


def _make_leaf(authority: _Authority, hosts: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    until = now + LEAF_LIFE
    builder = _builder(_name("onggi"), authority.certificate.subject, key, serial, now, until)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (names, False),
        (issuer, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return _pem(builder.sign(authority.key, hashes.SHA256())), _key_pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
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
