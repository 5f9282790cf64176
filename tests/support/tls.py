"""Certificates for tests: one authority, a server on loopback, two clients, and a stranger.

All are made once per run with short-lived elliptic keys; nothing here is trusted elsewhere.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.certs import AUTHORITY_USAGE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Certificates", "certificates"]

VALID_FOR = datetime.timedelta(days=2)
CLIENT_EMAIL = "amy@example.com"
CLIENT_COMMON_NAME = "bob"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a TLS test needs."""

    ca: Path
    server: Pair
    with_email: Pair
    with_name: Pair
    stranger: Pair

    def block(self, *settings: str) -> str:
        """A tls block of a configuration, with more settings when given."""
        lines = [f'cert_file: "{self.server.cert}"', f'key_file: "{self.server.key}"', *settings]
        return "tls {\n  " + "\n  ".join(lines) + "\n}\n"

    def verifying(self, *settings: str) -> str:
        """A tls block that asks clients for a certificate."""
        return self.block(f'ca_file: "{self.ca}"', *settings)

    def context(self, client: Pair | None = None) -> ssl.SSLContext:
        """A client's side, trusting our authority only."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


class _Authority:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.path = directory / f"{name}.pem"
        certificate = self._builder(self._name, self._key.public_key(), authority=True)
        self._write(self.path, certificate.add_extension(AUTHORITY_USAGE, critical=True))

    def issue(self, name: str, *alternatives: x509.GeneralName) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key(), authority=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        self._write(pair.cert, builder)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, *, authority: bool
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - VALID_FOR)
            .not_valid_after(now + VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Clients demand both from Python 3.13 on.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(above, critical=False)
        )

    def _write(self, path: Path, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificates of this run."""
    directory = tmp_path_factory.mktemp("tls")
    ours = _Authority(directory, "authority")
    other = _Authority(directory, "other-authority")
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return Certificates(
        ca=ours.path,
        server=ours.issue("server", x509.DNSName("localhost"), loopback),
        with_email=ours.issue("client", x509.RFC822Name(CLIENT_EMAIL)),
        with_name=ours.issue(CLIENT_COMMON_NAME),
        stranger=other.issue("stranger", x509.RFC822Name(CLIENT_EMAIL)),
    )
