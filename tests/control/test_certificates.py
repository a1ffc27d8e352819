"""Certificates are kept while they will do, and renewed before they will not."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from onggi_operator.tls import certificates
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


def test_who_was_told_of_the_old_ca_only_believes_what_the_new_one_signs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An agent is told when its pod is made, and never again."""
    now = datetime.now(UTC)
    old, _ = renewed({}, HOSTS, now=now)
    with monkeypatch.context() as hurried:
        hurried.setattr(certificates, "AUTHORITY_RENEW_BEFORE", certificates.AUTHORITY_LIFE)
        new, reason = renewed(old.data(), HOSTS, now=now)
    assert reason == "the CA is near its end"
    with monkeypatch.context() as hurried:
        hurried.setattr(certificates, "LEAF_RENEW_BEFORE", certificates.LEAF_LIFE)
        newer, reason = renewed(new.data(), HOSTS, now=now)
    assert reason == "the serving certificate is near its end"
    assert newer.ca_bundle == new.ca_bundle
    for serving in (old, new, newer):
        for told in (old, new):
            assert _believed(serving, told, tmp_path), (serving, told)
    stranger, _ = renewed({}, HOSTS, now=now)
    with pytest.raises(ssl.SSLCertVerificationError):
        _believed(new, stranger, tmp_path)


def test_a_bridge_lasts_no_longer_than_the_ca_that_it_leads_to(made: Bundle) -> None:
    later = NOW + timedelta(days=3650 - 365)
    bundle, _ = renewed(made.data(), HOSTS, now=later)
    leaf, bridge = x509.load_pem_x509_certificates(bundle.leaf)
    assert bridge.not_valid_after_utc == authority_of(made).not_valid_after_utc
    leaf.verify_directly_issued_by(bridge)
    bridge.verify_directly_issued_by(authority_of(made))
    for days, count in ((364, 2), (366, 1)):
        again, _ = renewed(bundle.data(), HOSTS, now=later + timedelta(days=days))
        assert len(x509.load_pem_x509_certificates(again.leaf)) == count


def test_a_ca_that_has_ended_signs_no_bridge(made: Bundle) -> None:
    bundle, _ = renewed(made.data(), HOSTS, now=NOW + timedelta(days=3651))
    assert len(x509.load_pem_x509_certificates(bundle.leaf)) == 1
    assert len(x509.load_pem_x509_certificates(bundle.ca_bundle)) == 1


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
    serving = _context(bundle, tmp_path)
    trusting = ssl.create_default_context(cadata=bundle.ca_bundle.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    assert _shakes_hands(serving, trusting, HOSTS[1])
    with pytest.raises(ssl.SSLCertVerificationError):
        _shakes_hands(serving, trusting, "else.svc")
    stranger = ssl.create_default_context(cadata=made.ca_bundle.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        _shakes_hands(serving, stranger, HOSTS[0])


def _context(bundle: Bundle, folder: Path) -> ssl.SSLContext:
    (folder / "crt").write_bytes(bundle.leaf)
    (folder / "key").write_bytes(bundle.leaf_key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "crt", folder / "key")
    return serving


def _believed(serving: Bundle, told: Bundle, folder: Path) -> bool:
    trusting = ssl.create_default_context(cadata=told.ca_bundle.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    return _shakes_hands(_context(serving, folder), trusting, HOSTS[0])


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
