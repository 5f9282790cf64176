"""TLS options that cannot be honoured are refused with a sentence that names the culprit."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.server.net.codecs.tls_context import (
    CURVES,
    IANA_TO_OPENSSL,
    INSECURE_SUITES,
    TlsConfigError,
    build_context,
)
from support.certs import common_name
from support.transport_codecs import TlsClient

if TYPE_CHECKING:
    from support.transport_codecs import Pki


def complaint(pki: Pki, **options: object) -> str:
    with pytest.raises(TlsConfigError) as caught:
        build_context(pki.options(**options))
    return str(caught.value)


def test_missing_files_are_named(pki: Pki) -> None:
    assert "open /nope/cert.pem: no such file" in complaint(pki, cert_file="/nope/cert.pem")
    assert "open /nope/key.pem: no such file" in complaint(pki, key_file="/nope/key.pem")
    assert complaint(pki, ca_file="/nope/ca.pem") == "open /nope/ca.pem: no such file or directory"
    assert complaint(pki, cert_file="") == "missing 'cert_file' in TLS configuration"
    assert complaint(pki, key_file="") == "missing 'key_file' in TLS configuration"


def test_key_of_another_certificate_is_refused(pki: Pki) -> None:
    text = complaint(pki, key_file=pki.client[1])
    assert "private key does not match public key" in text
    assert pki.client[1] in text


def test_files_of_wrong_kind_are_refused(pki: Pki) -> None:
    assert "error parsing X509 certificate/key pair" in complaint(pki, cert_file=pki.server[1])
    assert "failed to parse root ca certificate" in complaint(pki, ca_file=pki.server[1])


def test_encrypted_key_is_refused_and_never_asked_for_on_terminal(pki: Pki) -> None:
    leaf = pki.authority.sign(common_name("x"))
    cert_file, _ = leaf.write(pki.directory, "locked")
    key_file = pki.directory / "locked-encrypted.pem"
    key_file.write_bytes(
        leaf.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    text = complaint(pki, cert_file=cert_file, key_file=str(key_file))
    assert "encrypted private keys are not supported" in text


@pytest.mark.parametrize("suite", sorted(INSECURE_SUITES))
def test_insecure_cipher_suites_are_refused_by_name(pki: Pki, suite: str) -> None:
    assert complaint(pki, cipher_suites=(suite,)) == (
        f"insecure cipher suites are not supported: {suite}"
    )


def test_unknown_names_are_refused(pki: Pki) -> None:
    assert complaint(pki, cipher_suites=("TLS_FOO",)) == "unrecognized cipher TLS_FOO"
    assert complaint(pki, curve_preferences=("foo",)) == "unrecognized curve preference foo"
    assert "unsupported TLS version" in complaint(pki, min_version="1.1")
    assert "does not look like hex-encoded sha256" in complaint(pki, pinned_certs=("abc",))
    assert "does not look like hex-encoded sha256" in complaint(pki, pinned_certs=("z" * 64,))


def test_curves_that_cannot_be_enforced_are_refused(pki: Pki) -> None:
    assert "one curve" in complaint(pki, curve_preferences=("X25519", "CurveP256"))


def is_known(curve: str) -> bool:
    """Whether this Python can choose a single curve; 3.11.2 cannot choose X25519."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ecdh_curve(curve)
    except (ValueError, ssl.SSLError):
        return False
    return True


@pytest.mark.parametrize("curve", ["X25519", "CurveP256", "CurveP384", "CurveP521"])
def test_one_curve_is_enforced_or_refused_by_name(pki: Pki, curve: str) -> None:
    if not is_known(CURVES[curve]):
        assert f"curve {curve} is not supported by" in complaint(pki, curve_preferences=(curve,))
        return

    def reaches(client_curve: str) -> bool:
        client = pki.client_context()
        client.set_ecdh_curve(client_curve)
        codec = pki.acceptor(curve_preferences=(curve,)).codec()
        try:
            TlsClient(client).shake_hands(codec)
        except Exception:
            return False
        return codec.established

    assert reaches(CURVES[curve])
    assert not reaches("secp384r1" if curve != "CurveP384" else "prime256v1")


def test_all_curves_together_forbid_nothing(pki: Pki) -> None:
    build_context(pki.options(curve_preferences=("CurveP521", "CurveP384", "CurveP256", "X25519")))


def test_every_suite_of_table_is_known_to_openssl(pki: Pki) -> None:
    for name, openssl in IANA_TO_OPENSSL.items():
        context = build_context(pki.options(cipher_suites=(name,)))
        names = {cipher["name"] for cipher in context.get_ciphers()}
        assert openssl in names
        assert not names & (set(IANA_TO_OPENSSL.values()) - {openssl})


def test_list_of_tls13_suites_leaves_nothing_for_older_clients(pki: Pki) -> None:
    context = build_context(pki.options(cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_verification_is_required_exactly_when_asked_for(pki: Pki) -> None:
    assert build_context(pki.options()).verify_mode == ssl.CERT_NONE
    assert build_context(pki.options(verify=True)).verify_mode == ssl.CERT_REQUIRED
    assert build_context(pki.options(verify_and_map=True)).verify_mode == ssl.CERT_REQUIRED
    assert build_context(pki.options(verify=True, ca_file="")).verify_mode == ssl.CERT_REQUIRED
