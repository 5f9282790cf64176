"""What a peer's certificate says, in the spelling the reference uses for it.

Users are looked up by these strings (`verify_and_map`) and connz shows them, so they must be equal
to the reference's letter for letter: known attributes in one fixed order whatever the certificate
says, the rest after them by number, values escaped as RFC 2253 asks, values that are not strings
left out. Trust is not decided here: TLS has verified the chain before anyone asks.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509

#: Dotted number -> short name, in the order of the printed name read backwards.
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
#: Of these only the last value counts; of the others all do.
SINGLE_ATTRIBUTES = frozenset({"2.5.4.3", "2.5.4.5"})
DOMAIN_COMPONENT = "0.9.2342.19200300.100.1.25"
ESCAPED = frozenset(',+"\\<>;')

#: (dotted number, value) in certificate order, one inner tuple per relative name.
RelativeNames = tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """One certificate of a peer, parsed; everything a login or a monitor may want of it."""

    subject: str
    """Whole subject, as connz prints it."""
    distinguished_name: str
    """Known attributes of the subject only: the name users are looked up by."""
    domain_components: str
    """`DC=a,DC=b` in certificate order, "" when there are none."""
    relative_names: RelativeNames
    emails: tuple[str, ...]
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    spki_sha256: str
    cert_sha256: str

    @property
    def distinguished_name_with_domain(self) -> str:
        """The distinguished name followed by its domain components."""
        return ",".join(part for part in (self.distinguished_name, self.domain_components) if part)


def parse_certificate(der: bytes) -> PeerCertificate:
    """Raises ValueError when the bytes are no certificate."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    relative = _relative_names(certificate.subject)
    flat = [attribute for rdn in relative for attribute in rdn]
    emails, dns_names, uris = _alternative_names(certificate)
    known = _known_names(flat)
    return PeerCertificate(
        subject=_join([*_unknown_names(flat), *known]),
        distinguished_name=_join(known),
        domain_components=",".join(f"DC={v}" for number, v in flat if number == DOMAIN_COMPONENT),
        relative_names=relative,
        emails=emails,
        dns_names=dns_names,
        uris=uris,
        spki_sha256=_spki_sha256(certificate),
        cert_sha256=hashlib.sha256(der).hexdigest(),
    )


def spki_sha256(der: bytes) -> str:
    """Hex digest of the certificate's public key, as `pinned_certs` lists it."""
    from cryptography import x509

    return _spki_sha256(x509.load_der_x509_certificate(der))


def _spki_sha256(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def _relative_names(name: "x509.Name") -> RelativeNames:
    return tuple(
        tuple(
            (attribute.oid.dotted_string, attribute.value)
            for attribute in rdn
            if isinstance(attribute.value, str)
        )
        for rdn in name.rdns
    )


def _known_names(flat: "Iterable[tuple[str, str]]") -> list[str]:
    values: dict[str, list[str]] = {number: [] for number in KNOWN_ATTRIBUTES}
    for number, value in flat:
        if number in values:
            values[number].append(value)
    names = []
    for number, short in KNOWN_ATTRIBUTES.items():
        kept = values[number][-1:] if number in SINGLE_ATTRIBUTES else values[number]
        if kept and (kept[-1] or number not in SINGLE_ATTRIBUTES):
            names.append("+".join(f"{short}={_escape(value)}" for value in kept))
    return names


def _unknown_names(flat: "Iterable[tuple[str, str]]") -> list[str]:
    return [f"{number}={_escape(v)}" for number, v in flat if number not in KNOWN_ATTRIBUTES]


def _join(names: "list[str]") -> str:
    return ",".join(reversed(names))


def _escape(value: str) -> str:
    last = len(value) - 1
    return "".join(
        f"\\{char}"
        if char in ESCAPED or (char == " " and at in (0, last)) or (char == "#" and at == 0)
        else char
        for at, char in enumerate(value)
    )


def _alternative_names(
    certificate: "x509.Certificate",
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return (), (), ()
    names = extension.value
    return (
        tuple(names.get_values_for_type(x509.RFC822Name)),
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
    )
