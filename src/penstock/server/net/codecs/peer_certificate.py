"""A peer's certificate as monitoring shows it: subject and digests, spelled as in the reference.

The subject lists known attributes in one fixed order, whatever the certificate's order; the others
follow, named by OID; values are escaped as in RFC 2253. TLS has already verified the certificate.
Authentication decides which of its names identify a user.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509

#: OID -> short name, in reverse order of the printed subject.
KNOWN_ATTRIBUTES = {
    "2.5.4.6": "C",
    "2.5.4.8": "ST",
    "2.5.4.7": "L",
    "2.5.4.9": "STREET",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
}
#: Only the last value of these counts; of the other attributes all values do.
SINGLE_ATTRIBUTES = frozenset({"2.5.4.3", "2.5.4.5"})
ESCAPED = frozenset(',+"\\<>;')


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """One entry of connz's `tls_peer_certs`."""

    subject: str
    spki_sha256: str
    cert_sha256: str


def summarise_certificate(der: bytes) -> CertificateSummary:
    """Return the summary of a DER certificate. Raises ValueError if it is not one."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    return CertificateSummary(
        subject=_subject(certificate.subject),
        spki_sha256=_spki_sha256(certificate),
        cert_sha256=hashlib.sha256(der).hexdigest(),
    )


def spki_sha256(der: bytes) -> str:
    """Return the hex SHA-256 of the certificate's public key info, as `pinned_certs` lists it."""
    from cryptography import x509

    return _spki_sha256(x509.load_der_x509_certificate(der))


def _spki_sha256(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def _subject(name: "x509.Name") -> str:
    pairs = [
        (attribute.oid.dotted_string, attribute.value)
        for attribute in name
        if isinstance(attribute.value, str)
    ]
    unknown = [f"{number}={_escape(v)}" for number, v in pairs if number not in KNOWN_ATTRIBUTES]
    return ",".join(reversed([*unknown, *_known_names(pairs)]))


def _known_names(pairs: "Iterable[tuple[str, str]]") -> list[str]:
    values: dict[str, list[str]] = {number: [] for number in KNOWN_ATTRIBUTES}
    for number, value in pairs:
        if number in values:
            values[number].append(value)
    names = []
    for number, short in KNOWN_ATTRIBUTES.items():
        kept = values[number][-1:] if number in SINGLE_ATTRIBUTES else values[number]
        if kept:
            names.append("+".join(f"{short}={_escape(value)}" for value in kept))
    return names


def _escape(value: str) -> str:
    last = len(value) - 1
    return "".join(
        f"\\{char}"
        if char in ESCAPED or (char == " " and at in (0, last)) or (char == "#" and at == 0)
        else char
        for at, char in enumerate(value)
    )
