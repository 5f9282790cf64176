"""Subjects are spelled as the reference spells them; expected texts were recorded from it."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.x509 import Name, NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from penstock.server.net.codecs.peer_certificate import spki_sha256, summarise_certificate
from support.certs import shared_authority

C, ST, L = NameOID.COUNTRY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME
ORG, OU, CN = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
STREET, POSTAL, SERIAL = NameOID.STREET_ADDRESS, NameOID.POSTAL_CODE, NameOID.SERIAL_NUMBER
DC, EMAIL, UID = NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS, NameOID.USER_ID


def name(*pairs: tuple[ObjectIdentifier, str]) -> Name:
    return Name([NameAttribute(oid, value) for oid, value in pairs])


RECORDED = [
    (
        name(
            *((C, "US"), (ST, "CA"), (L, "LA"), (ORG, "o"), (OU, "u1"), (OU, "u2"), (STREET, "st")),
            *((POSTAL, "pc"), (SERIAL, "sn"), (CN, "cn"), (CN, "cn2"), (SERIAL, "sn2")),
        ),
        "SERIALNUMBER=sn2,CN=cn2,OU=u1+OU=u2,O=o,POSTALCODE=pc,STREET=st,L=LA,ST=CA,C=US",
    ),
    (
        name(
            *((CN, "cn"), (DC, "d1"), (DC, "d2"), (EMAIL, "e@x"), (UID, "uid")),
            *((NameOID.TITLE, "ti"), (ORG, "o"), (C, "US")),
        ),
        "CN=cn,O=o,C=US,2.5.4.12=ti,0.9.2342.19200300.100.1.1=uid,1.2.840.113549.1.9.1=e@x,"
        "0.9.2342.19200300.100.1.25=d2,0.9.2342.19200300.100.1.25=d1",
    ),
    (
        name(
            *((CN, ' #a,b+c"d\\e<f>g;h=i '), (ORG, "#x"), (OU, " "), (L, "é ü"), (ST, "é ")),
            (EMAIL, "a,b"),
        ),
        'CN=\\ #a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h=i\\ ,OU=\\ ,O=\\#x,L=é ü,ST=é\\ ,'
        "1.2.840.113549.1.9.1=a\\,b",
    ),
    (
        Name(
            [
                RelativeDistinguishedName(
                    [NameAttribute(CN, "cn"), NameAttribute(UID, "uid"), NameAttribute(OU, "ou")]
                ),
                RelativeDistinguishedName([NameAttribute(OU, "ou2")]),
            ]
        ),
        "CN=cn,OU=ou+OU=ou2,0.9.2342.19200300.100.1.1=uid",
    ),
    (name(), ""),
]


@pytest.mark.parametrize(("subject", "text"), RECORDED)
def test_subject_is_printed_as_reference_prints_it(subject: Name, text: str) -> None:
    leaf = shared_authority().sign(subject)
    assert summarise_certificate(leaf.der).subject == text


def test_digests_are_those_of_key_and_of_whole_certificate() -> None:
    authority = shared_authority()
    one, other = authority.sign(name((CN, "a"))), authority.sign(name((CN, "a")))
    summary = summarise_certificate(one.der)
    assert summary.cert_sha256 == hashlib.sha256(one.der).hexdigest()
    assert summary.spki_sha256 == spki_sha256(one.der) != spki_sha256(other.der)


def test_bytes_that_are_no_certificate_are_refused() -> None:
    with pytest.raises(ValueError, match="pars"):
        summarise_certificate(b"nonsense")
