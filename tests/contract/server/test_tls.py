"""TLS on the client port: required, optional, before the greeting, and with client certificates."""

from __future__ import annotations

import ssl
import warnings
from typing import TYPE_CHECKING

import pytest

from support.wire import Wire, WireError

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest
    from support.tls import Certificates, Pair

MAPPED_USERS = (
    "authorization { users: [ "
    '{user: "amy@example.com", permissions: {publish: "amy"}}, '
    '{user: "CN=bob", permissions: {publish: "bob"}} ] }\n'
)


@pytest.fixture
def secure(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> ServerUnderTest:
    """A server that wants TLS."""
    return pool.get(implementation, certificates.block())


def _expect_refused(
    server: ServerUnderTest, certificates: Certificates, client: Pair | None
) -> None:
    """A handshake may fail on either side first, and in TLS 1.3 only after the client's last word:
    then the first write or the first read finds the connection closed."""
    with Wire(server.address) as wire:
        try:
            wire.upgrade(certificates.context(client))
            wire.send('CONNECT {"verbose":false}\r\nPING\r\n')
        except (ssl.SSLError, ConnectionError):
            return
        wire.expect_closed()


def test_required_tls_is_announced(secure: ServerUnderTest) -> None:
    with Wire(secure.address) as wire:
        assert wire.info["tls_required"] is True
        assert not wire.info.keys() & {"tls_verify", "tls_available"}


def test_client_upgrades_to_tls_and_continues(
    secure: ServerUnderTest, certificates: Certificates
) -> None:
    with Wire(secure.address) as wire:
        wire.upgrade(certificates.context())
        wire.connect()
        wire.send("SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
        wire.expect("MSG foo 1 2", "hi")


def test_second_info_comes_under_tls_too(
    secure: ServerUnderTest, certificates: Certificates
) -> None:
    with Wire(secure.address) as wire:
        wire.upgrade(certificates.context())
        wire.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        wire.expect("PONG")
        told = wire.expect_info()
        assert told["connect_info"] is True
        assert told["tls_required"] is True


def test_large_message_passes_tls(secure: ServerUnderTest, certificates: Certificates) -> None:
    body = "0123456789abcdef" * 65536
    with Wire(secure.address) as wire:
        wire.upgrade(certificates.context())
        wire.connect()
        wire.send(f"SUB large 1\r\nPUB large {len(body)}\r\n{body}\r\n")
        wire.expect(f"MSG large 1 {len(body)}", body)


def test_client_without_tls_is_closed_without_error_line(secure: ServerUnderTest) -> None:
    with Wire(secure.address) as wire:
        wire.send('CONNECT {"verbose":false}\r\nPING\r\n')
        wire.expect_closed()


def test_old_tls_is_refused(secure: ServerUnderTest, certificates: Certificates) -> None:
    context = certificates.context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of what we refuse
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with Wire(secure.address) as wire, pytest.raises((ssl.SSLError, ConnectionError)):
        wire.upgrade(context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_tls_is_accepted(
    secure: ServerUnderTest, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = certificates.context()
    context.minimum_version = context.maximum_version = version
    with Wire(secure.address) as wire:
        wire.upgrade(context)
        wire.connect()


def test_client_without_handshake_is_closed(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    server = pool.get(implementation, certificates.block("timeout: 0.1"))
    with Wire(server.address) as wire:
        wire.expect_closed()


def test_tls_can_be_configured_by_flags(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    pair = certificates.server
    flags = ["--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key)]
    with Wire(pool.get(implementation, "", flags).address) as wire:
        assert wire.info["tls_required"] is True
        wire.upgrade(certificates.context())
        wire.connect()


@pytest.fixture
def verifying(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> ServerUnderTest:
    """A server that wants a certificate from its clients."""
    return pool.get(implementation, certificates.verifying("verify: true"))


def test_required_client_certificate_is_announced(verifying: ServerUnderTest) -> None:
    with Wire(verifying.address) as wire:
        assert wire.info["tls_required"] is True
        assert wire.info["tls_verify"] is True


def test_trusted_certificate_is_accepted(
    verifying: ServerUnderTest, certificates: Certificates
) -> None:
    with Wire(verifying.address) as wire:
        wire.upgrade(certificates.context(certificates.with_email))
        wire.connect()


def test_missing_certificate_is_refused(
    verifying: ServerUnderTest, certificates: Certificates
) -> None:
    _expect_refused(verifying, certificates, None)


def test_untrusted_certificate_is_refused(
    verifying: ServerUnderTest, certificates: Certificates
) -> None:
    _expect_refused(verifying, certificates, certificates.stranger)


@pytest.mark.parametrize("user", ["amy", "bob"])
def test_certificate_names_its_user(
    pool: ServerPool, implementation: Implementation, certificates: Certificates, user: str
) -> None:
    config = certificates.verifying("verify_and_map: true") + MAPPED_USERS
    pair = {"amy": certificates.with_email, "bob": certificates.with_name}[user]
    with Wire(pool.get(implementation, config).address) as wire:
        wire.upgrade(certificates.context(pair))
        wire.connect()
        wire.send(f"PUB {user} 0\r\n\r\nPUB other 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"other\"'")
        wire.expect_quiet()


@pytest.fixture
def optional(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> ServerUnderTest:
    """A server that offers TLS and takes plain clients too."""
    return pool.get(implementation, certificates.block() + "allow_non_tls: true\n")


def test_optional_tls_is_announced(optional: ServerUnderTest) -> None:
    with Wire(optional.address) as wire:
        assert wire.info["tls_available"] is True
        assert "tls_required" not in wire.info


def test_optional_tls_takes_plain_and_secure_clients(
    optional: ServerUnderTest, certificates: Certificates
) -> None:
    with Wire(optional.address) as plain, Wire(optional.address) as secure:
        plain.connect()
        secure.upgrade(certificates.context())
        secure.connect()
        plain.send("SUB foo 1\r\n")
        plain.expect_quiet()
        secure.send("PUB foo 2\r\nhi\r\n")
        plain.expect("MSG foo 1 2", "hi")


@pytest.fixture
def tls_first(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> ServerUnderTest:
    """A server that shakes hands before it greets."""
    return pool.get(implementation, certificates.block("handshake_first: true", "timeout: 0.3"))


def test_handshake_may_precede_greeting(
    tls_first: ServerUnderTest, certificates: Certificates
) -> None:
    with Wire(tls_first.address, greeting=False) as wire:
        wire.upgrade(certificates.context())
        assert wire.expect_info()["tls_required"] is True
        wire.connect()


def test_handshake_first_sends_no_plain_greeting(tls_first: ServerUnderTest) -> None:
    with Wire(tls_first.address, greeting=False) as wire:
        wire.expect_closed()


def test_handshake_first_refuses_plain_text(tls_first: ServerUnderTest) -> None:
    with Wire(tls_first.address, greeting=False) as wire:
        wire.send('CONNECT {"verbose":false}\r\n')
        with pytest.raises(WireError, match="closed"):
            wire.line()


def test_handshake_first_auto_accepts_both_orders(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    server = pool.get(implementation, certificates.block("handshake_first: auto"))
    with Wire(server.address, greeting=False) as first:
        first.upgrade(certificates.context())
        first.expect_info()
        first.connect()
    with Wire(server.address) as greeted:
        greeted.upgrade(certificates.context())
        greeted.connect()
