"""Mints certificates for tests: one authority, and server or client leaves signed by it.

Elliptic keys, since making them is quick; nothing here is fit for anything but tests.
"""

import datetime as dt
import functools
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOT_BEFORE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
NOT_AFTER = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
EXPIRED = dt.datetime(2021, 1, 1, tzinfo=dt.UTC)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


AUTHORITY_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
LOCAL_NAMES: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
)


@dataclass(frozen=True)
class Leaf:
    """A certificate and its key, with the files that hold them once written."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def write(self, directory: Path, stem: str) -> tuple[str, str]:
        """Writes `stem`.pem and `stem`-key.pem; gives both paths."""
        cert_file, key_file = directory / f"{stem}.pem", directory / f"{stem}-key.pem"
        cert_file.write_bytes(self.pem)
        key_file.write_bytes(self.key_pem)
        return str(cert_file), str(key_file)


@dataclass(frozen=True)
class Authority(Leaf):
    """A certificate that signs others."""

    def sign(
        self,
        subject: x509.Name,
        names: Sequence[x509.GeneralName] = (),
        *,
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        not_after: dt.datetime = NOT_AFTER,
    ) -> Leaf:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key, self.key, not_after)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Leaf(builder.sign(self.key, hashes.SHA256()), key)

    def server(self, *, not_after: dt.datetime = NOT_AFTER) -> Leaf:
        return self.sign(
            common_name("localhost"),
            LOCAL_NAMES,
            usage=ExtendedKeyUsageOID.SERVER_AUTH,
            not_after=not_after,
        )


def make_authority(name: str = "test authority", issuer: Authority | None = None) -> Authority:
    """Self-signed, or signed by `issuer`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = common_name(name)
    above = issuer.certificate.subject if issuer else subject
    signer = issuer.key if issuer else key
    builder = (
        _builder(subject, above, key, signer, NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(AUTHORITY_USAGE, critical=True)
    )
    return Authority(builder.sign(signer, hashes.SHA256()), key)


@functools.cache
def shared_authority() -> Authority:
    """One authority for the whole run: signing is quick, but not free."""
    return make_authority()


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    not_after: dt.datetime,
) -> x509.CertificateBuilder:
    """With the key identifiers that clients demand from Python 3.13 on."""
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(above, critical=False)
    )
