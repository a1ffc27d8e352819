"""Certificates are kept while they will do, and renewed before they will not."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from onggi_operator.tls.certificates import KEYS, Bundle, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("onggi-webhook.onggi-system.svc", "onggi-operator.onggi-system.svc")


@pytest.fixture(scope="module")
def made() -> Bundle:
    bundle, reason = renewed({}, HOSTS, now=NOW)
    assert reason == "there is no CA yet"
    return bundle


def authority_of(bundle: Bundle) -> x509.Certificate:
    return x509.load_pem_x509_certificates(bundle.ca_bundle)[0]


def test_what_was_made_is_kept(made: Bundle) -> None:
    later = NOW + timedelta(days=59)
    assert renewed(made.data(), HOSTS, now=later) == (made, None)


def test_the_leaf_is_renewed_under_the_same_ca_before_it_ends(made: Bundle) -> None:
    bundle, reason = renewed(made.data(), HOSTS, now=NOW + timedelta(days=60))
    assert reason == "the serving certificate is near its end"
    assert bundle.ca_bundle == made.ca_bundle
    assert bundle.leaf != made.leaf
    leaf = x509.load_pem_x509_certificate(bundle.leaf)
    leaf.verify_directly_issued_by(authority_of(made))


def test_other_names_need_another_leaf(made: Bundle) -> None:
    bundle, reason = renewed(made.data(), ("other.svc",), now=NOW)
    assert reason == "the serving certificate has other names"
    assert bundle.ca_key == made.ca_key


def test_a_new_ca_is_followed_by_the_old_one_while_that_is_valid(made: Bundle) -> None:
    later = NOW + timedelta(days=3650 - 365)
    bundle, reason = renewed(made.data(), HOSTS, now=later)
    assert reason == "the CA is near its end"
    authorities = x509.load_pem_x509_certificates(bundle.ca_bundle)
    assert len(authorities) == 2
    assert authorities[1] == authority_of(made)
    again, _ = renewed(bundle.data(), HOSTS, now=later + timedelta(days=3300))
    assert len(x509.load_pem_x509_certificates(again.ca_bundle)) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ca.crt": b"nonsense"}, "the CA cannot be read"),
        ({"ca.key": b"nonsense"}, "the CA cannot be read"),
        ({"ca.key": b""}, "there is no CA yet"),
        ({"tls.crt": b"nonsense"}, "the serving certificate cannot be read or is not the CA's"),
        ({"tls.key": b""}, "there is no serving certificate yet"),
    ],
)
def test_damage_is_mended(made: Bundle, changes: dict[str, bytes], reason: str) -> None:
    bundle, told = renewed({**made.data(), **changes}, HOSTS, now=NOW)
    assert told == reason
    assert renewed(bundle.data(), HOSTS, now=NOW) == (bundle, None)


@pytest.mark.parametrize("key", KEYS)
def test_parts_of_two_bundles_do_not_pass_for_one(made: Bundle, key: str) -> None:
    other, _ = renewed({}, HOSTS, now=NOW)
    _, reason = renewed({**made.data(), key: other.data()[key]}, HOSTS, now=NOW)
    assert reason is not None


def test_a_client_with_the_ca_believes_the_leaf(made: Bundle, tmp_path: Path) -> None:
    """In memory, with the checks that a strict client makes."""
    bundle, _ = renewed({}, HOSTS, now=datetime.now(UTC))
    (tmp_path / "crt").write_bytes(bundle.leaf)
    (tmp_path / "key").write_bytes(bundle.leaf_key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    trusting = ssl.create_default_context(cadata=bundle.ca_bundle.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    assert _shakes_hands(serving, trusting, HOSTS[1])
    with pytest.raises(ssl.SSLCertVerificationError):
        _shakes_hands(serving, trusting, "else.svc")
    stranger = ssl.create_default_context(cadata=made.ca_bundle.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        _shakes_hands(serving, stranger, HOSTS[0])


def _shakes_hands(serving: ssl.SSLContext, trusting: ssl.SSLContext, host: str) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    parties: list[Any] = [client, server]
    for _ in range(10):
        for party in list(parties):
            try:
                party.do_handshake()
                parties.remove(party)
            except ssl.SSLWantReadError:
                continue
        if not parties:
            return True
    return False
