"""Login by nkey: the nonce of the greeting, signed, opens the door, and nothing else does."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from support.nkeys import public_nkey, signed, url_safe
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest

SEED = bytes(range(32))
OTHER_SEED = bytes(range(1, 33))
REFUSED = "-ERR 'Authorization Violation'"


@pytest.fixture
def guarded(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server that knows one nkey and one named user."""
    keyed = f'{{nkey: {public_nkey(SEED)}, permissions: {{publish: "mine"}}}}'
    users = f"{keyed}, {{user: bob, password: b}}"
    return pool.get(implementation, f"authorization {{ users: [ {users} ] }}\n")


def test_signed_nonce_logs_in(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        signature = url_safe(signed(SEED, wire.info["nonce"]))
        wire.connect(nkey=public_nkey(SEED), sig=signature)


def test_nkey_user_has_its_permissions(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        signature = url_safe(signed(SEED, wire.info["nonce"]))
        wire.connect(nkey=public_nkey(SEED), sig=signature)
        wire.send("PUB mine 0\r\n\r\nPUB other 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"other\"'")
        wire.expect_quiet()


def test_signature_in_standard_base64_is_accepted(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        signature = base64.b64encode(signed(SEED, wire.info["nonce"])).decode()
        wire.connect(nkey=public_nkey(SEED), sig=signature)


def test_signature_by_another_key_is_refused(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        signature = url_safe(signed(OTHER_SEED, wire.info["nonce"]))
        wire.send(f'CONNECT {{"nkey":"{public_nkey(SEED)}","sig":"{signature}"}}\r\n')
        wire.expect(REFUSED)
        wire.expect_closed()


def test_unknown_key_is_refused(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        signature = url_safe(signed(OTHER_SEED, wire.info["nonce"]))
        wire.send(f'CONNECT {{"nkey":"{public_nkey(OTHER_SEED)}","sig":"{signature}"}}\r\n')
        wire.expect(REFUSED)
        wire.expect_closed()


def test_nonce_of_another_connection_is_refused(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as first, Wire(guarded.address) as second:
        signature = url_safe(signed(SEED, first.info["nonce"]))
        second.send(f'CONNECT {{"nkey":"{public_nkey(SEED)}","sig":"{signature}"}}\r\n')
        second.expect(REFUSED)
        second.expect_closed()


@pytest.mark.parametrize("signature", ["", "AAAA", "%%%%", "A" * 86])
def test_malformed_signature_is_refused(guarded: ServerUnderTest, signature: str) -> None:
    with Wire(guarded.address) as wire:
        wire.send(f'CONNECT {{"nkey":"{public_nkey(SEED)}","sig":"{signature}"}}\r\n')
        wire.expect(REFUSED)
        wire.expect_closed()


def test_named_user_may_log_in_beside_nkey(guarded: ServerUnderTest) -> None:
    with Wire(guarded.address) as wire:
        wire.connect(user="bob", **{"pass": "b"})
