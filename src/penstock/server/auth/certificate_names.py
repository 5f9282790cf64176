"""Read the names in a client certificate that TLS has already verified.

The TLS layer decides about trust; this module only extracts names for finding users. It needs the
crypto library, so it is imported only for connections with a client certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.auth.login_values import PeerCertificate
from penstock.server.auth.x509_names import SHORT_NAMES, format_subject

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute, SubjectAlternativeName

    from penstock.server.auth.login_values import Attribute


def read_certificate(der: bytes) -> PeerCertificate:
    """Return the names in a DER certificate; raise ValueError if it cannot be parsed."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    else:
        alternatives = extension.value
    return _collect(certificate.subject, alternatives)


def _collect(subject: Name, alternatives: SubjectAlternativeName) -> PeerCertificate:
    from cryptography import x509

    return PeerCertificate(
        emails=tuple(alternatives.get_values_for_type(x509.RFC822Name)),
        dns_names=tuple(alternatives.get_values_for_type(x509.DNSName)),
        uris=tuple(alternatives.get_values_for_type(x509.UniformResourceIdentifier)),
        subject=format_subject(map(_attribute, subject)),
        name=tuple(frozenset(map(_attribute, part)) for part in subject.rdns),
    )


def _attribute(attribute: NameAttribute[str | bytes]) -> Attribute:
    oid, value = attribute.oid.dotted_string, attribute.value
    return SHORT_NAMES.get(oid, oid), value if isinstance(value, str) else value.hex()
