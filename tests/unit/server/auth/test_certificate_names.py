"""From a certificate to the user it stands for."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.server.auth import Accepted, PeerCertificate, read_certificate
from penstock.server.auth.user_table import UserTable
from penstock.server.config.options import Authorization, Options, UserOptions
from support.certs import common_name, shared_authority


def certificate(
    *attributes: tuple[x509.ObjectIdentifier, str], names: tuple[x509.GeneralName, ...] = ()
) -> PeerCertificate:
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return read_certificate(shared_authority().sign(subject, names).der)


def found(peer: PeerCertificate, *users: str, connection_type: str = "STANDARD") -> str | None:
    configured = tuple(UserOptions(user=user) for user in users)
    table = UserTable(Options(authorization=Authorization(users=configured)))
    user = table.find_by_certificate(peer, connection_type)
    return None if user is None else user.accepted.user


ALICE = certificate(
    (NameOID.COUNTRY_NAME, "DE"),
    (NameOID.ORGANIZATION_NAME, "Acme, Inc"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "x"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "y"),
    (NameOID.COMMON_NAME, "alice"),
)
BOB = certificate(
    (NameOID.DOMAIN_COMPONENT, "org"),
    (NameOID.DOMAIN_COMPONENT, "acme"),
    (NameOID.ORGANIZATION_NAME, "O1"),
    (NameOID.COMMON_NAME, "bob"),
)
CAROL = certificate(
    (NameOID.COMMON_NAME, "carol"),
    names=(
        x509.DNSName("host.x"),
        x509.RFC822Name("a@b.c"),
        x509.UniformResourceIdentifier("spiffe://a/b"),
    ),
)


def test_alternative_names_come_before_subject_and_mail_before_hosts() -> None:
    names = ["CN=carol", "spiffe://a/b", "host.x", "a@b.c"]
    while names:
        assert found(CAROL, *names) == names.pop()
    assert found(CAROL, "carol") is None


@pytest.mark.parametrize(
    "user",
    [
        r"CN=alice,OU=x+OU=y,O=Acme\, Inc,C=DE",
        r"C=DE,O=Acme\, Inc,OU=x,OU=y,CN=alice",
        r"CN=alice,OU=y,OU=x,O=Acme\, Inc,C=DE",
        r"CN=alice, OU=x, OU=y, O=Acme\, Inc, C=DE",
        r"cn=alice,OU=x,OU=y,O=Acme\, Inc,C=DE",
    ],
)
def test_subject_is_found_as_one_line_or_by_its_parts_in_any_order(user: str) -> None:
    assert found(ALICE, user) == user


@pytest.mark.parametrize(
    "user", ["alice", "CN=alice", r"CN=alice,OU=y+OU=x,O=Acme\, Inc,C=DE", "CN=Alice,C=DE"]
)
def test_part_of_subject_is_not_subject(user: str) -> None:
    assert found(ALICE, user) is None


@pytest.mark.parametrize(
    "user", ["CN=bob,O=O1,DC=acme,DC=org", "DC=org,DC=acme,O=O1,CN=bob", "CN=bob,O=O1"]
)
def test_domain_components_may_be_written_out_or_left_out_of_line(user: str) -> None:
    assert found(BOB, user) == user


def test_leaving_out_domain_components_needs_exact_line() -> None:
    assert found(BOB, "O=O1,CN=bob") is None


def test_order_of_certificate_wins_among_equal_sets() -> None:
    in_order, reversed_order = "DC=org,DC=acme,O=O1,CN=bob", "CN=bob,O=O1,DC=acme,DC=org"
    assert found(BOB, reversed_order, in_order) == in_order


def test_users_not_allowed_on_connection_are_passed_over() -> None:
    table = UserTable(
        Options(
            authorization=Authorization(
                users=(
                    UserOptions(user="a@b.c", allowed_connection_types=("WEBSOCKET",)),
                    UserOptions(user="host.x"),
                )
            )
        )
    )
    user = table.find_by_certificate(CAROL, "STANDARD")
    assert user is not None
    assert user.accepted == Accepted("host.x")


def test_certificate_without_alternative_names_has_only_its_subject() -> None:
    peer = read_certificate(shared_authority().sign(common_name("dave")).der)
    assert (peer.emails, peer.dns_names, peer.uris) == ((), (), ())
    assert peer.subject == "CN=dave"


def test_invalid_certificate_is_value_error() -> None:
    with pytest.raises(ValueError, match=r"."):
        read_certificate(b"\x30\x03\x02\x01\x01")
