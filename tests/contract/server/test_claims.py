"""Operator mode: accounts and users that come as signed tokens, and who is let in by them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from support.claims import (
    AMY,
    BOB,
    GUEST,
    ISSUED_S,
    OPERATOR,
    REFUSED,
    SHOP,
    SIGNING_KEY,
    UNLIMITED,
    Issuer,
    Realm,
    login,
    refused,
    refused_token,
    user_token,
)
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter


@pytest.fixture
def plain(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server with one unlimited account."""
    return pool.get(implementation, Realm().add(SHOP).config())


# -- who is let in


def test_user_proves_its_key(plain: ServerUnderTest) -> None:
    with login(plain, user_token(SHOP)) as wire:
        assert wire.info["auth_required"] is True
        wire.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
        wire.expect("MSG a 1 2", "hi")


def test_user_without_its_key_is_refused(plain: ServerUnderTest) -> None:
    refused_token(plain, user_token(SHOP), BOB)
    refused(plain, jwt=user_token(SHOP))
    refused(plain, jwt=user_token(SHOP), sig="AAAA")


def test_login_without_token_is_refused(plain: ServerUnderTest) -> None:
    refused(plain)
    refused(plain, user="amy", **{"pass": "x"})
    refused(plain, jwt="nonsense", sig="x")


@pytest.mark.parametrize("kind", ["account", "operator", "activation", "other"])
def test_token_of_another_kind_is_refused(plain: ServerUnderTest, kind: str) -> None:
    refused_token(plain, SHOP.claim(AMY, kind))


def test_changed_token_is_refused(plain: ServerUnderTest) -> None:
    head, _, signature = user_token(SHOP).split(".")
    _, body, _ = user_token(SHOP, BOB).split(".")
    refused_token(plain, f"{head}.{body}.{signature}", BOB)


def test_unknown_account_cannot_issue_users(plain: ServerUnderTest) -> None:
    refused_token(plain, user_token(GUEST))


def test_operator_cannot_issue_users(plain: ServerUnderTest) -> None:
    refused_token(plain, user_token(OPERATOR, issuer_account=SHOP.public))


def test_account_of_another_operator_is_unknown(start: Starter) -> None:
    realm = Realm().add(SHOP)
    stranger = Issuer(OPERATOR.kind, 98)
    realm.accounts[GUEST] = stranger.claim(GUEST, "account", limits=UNLIMITED)
    server = start(realm.config())
    refused_token(server, user_token(GUEST))
    login(server, user_token(SHOP)).close()


def test_tokens_of_version_1_are_accepted(start: Starter) -> None:
    realm = Realm(operator=OPERATOR.old_claim(OPERATOR, "operator"))
    limits = {key: UNLIMITED[key] for key in UNLIMITED}
    realm.accounts[SHOP] = OPERATOR.old_claim(SHOP, "account", limits=limits)
    server = start(realm.config())
    with login(server, SHOP.old_claim(AMY, "user", pub={"allow": ["a"]})) as wire:
        wire.send("PUB b 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"b\"'")


# -- when and where


@pytest.mark.parametrize("about", [{"exp": ISSUED_S + 1}, {"nbf": 4_000_000_000}])
def test_claims_are_valid_only_in_their_time(plain: ServerUnderTest, about: dict[str, int]) -> None:
    refused_token(plain, user_token(SHOP, about=about))


def test_expired_user_is_disconnected(plain: ServerUnderTest) -> None:
    token = user_token(SHOP, about={"exp": int(time.time()) + 2})
    with login(plain, token) as wire:
        wire.expect("-ERR 'User Authentication Expired'")
        wire.expect_closed()


def test_expired_account_is_unknown(start: Starter) -> None:
    server = start(Realm().add(SHOP, about={"exp": ISSUED_S}).config())
    refused_token(server, user_token(SHOP))


@pytest.mark.parametrize(
    ("src", "comes_in"),
    [
        (["127.0.0.0/8"], True),
        ("10.0.0.0/8,127.0.0.1/32", True),
        (["10.0.0.0/8"], False),
        (["nonsense"], False),
        (["127.0.0.1"], False),
    ],
)
def test_user_is_limited_to_its_networks(
    plain: ServerUnderTest, src: object, comes_in: bool
) -> None:
    token = user_token(SHOP, src=src)
    if comes_in:
        login(plain, token).close()
    else:
        refused_token(plain, token)


@pytest.mark.parametrize(
    ("times", "comes_in"),
    [
        ([{"start": "00:00:00", "end": "23:59:59"}], True),
        ([{"start": "00:00:01", "end": "00:00:00"}], True),
        ([{"start": "00:00:00", "end": "00:00:01"}], False),
        ([{"start": "x", "end": "y"}], False),
        ([{"start": "00:00:00"}], False),
    ],
)
def test_user_is_limited_to_its_hours(
    plain: ServerUnderTest, times: object, comes_in: bool
) -> None:
    token = user_token(SHOP, times=times, times_location="UTC")
    if comes_in:
        login(plain, token).close()
    else:
        refused_token(plain, token)


@pytest.mark.parametrize(
    ("kinds", "comes_in"),
    [
        (["STANDARD"], True),
        (["standard", "MQTT"], True),
        (["WEBSOCKET"], False),
        (["NONSENSE"], False),
        (["NONSENSE", "STANDARD"], True),
    ],
)
def test_user_is_limited_to_its_connection_types(
    plain: ServerUnderTest, kinds: list[str], comes_in: bool
) -> None:
    token = user_token(SHOP, allowed_connection_types=kinds)
    if comes_in:
        login(plain, token).close()
    else:
        refused_token(plain, token)


# -- bearers, revocations, signing keys


def test_bearer_token_needs_no_key(plain: ServerUnderTest) -> None:
    with Wire(plain.address) as wire:
        wire.connect(jwt=user_token(SHOP, bearer_token=True))


def test_account_may_refuse_bearer_tokens(start: Starter) -> None:
    server = start(Realm().add(SHOP, limits={**UNLIMITED, "disallow_bearer": True}).config())
    refused(server, jwt=user_token(SHOP, bearer_token=True))
    login(server, user_token(SHOP)).close()


@pytest.mark.parametrize("who", [AMY.public, "*"])
def test_tokens_issued_before_revocation_are_refused(start: Starter, who: str) -> None:
    server = start(Realm().add(SHOP, revocations={who: ISSUED_S}).config())
    refused_token(server, user_token(SHOP))
    login(server, user_token(SHOP, about={"iat": ISSUED_S + 1})).close()


def test_revocation_ends_connection(start: Starter) -> None:
    server = start(Realm().add(SHOP).config())
    with login(server, user_token(SHOP)) as amy, login(server, user_token(SHOP, BOB), BOB) as bob:
        server.reload(Realm().add(SHOP, revocations={AMY.public: ISSUED_S}).config())
        amy.expect("-ERR 'User Authentication Revoked'")
        amy.expect_closed()
        bob.expect_quiet()


def test_signing_key_issues_users_of_its_account(start: Starter) -> None:
    server = start(Realm().add(SHOP, signing_keys=[SIGNING_KEY.public]).add(GUEST).config())
    signed = user_token(SIGNING_KEY, issuer_account=SHOP.public)
    with login(server, signed) as wire, login(server, user_token(SHOP, BOB), BOB) as other:
        other.send("SUB a 1\r\n")
        other.expect_quiet()
        wire.send("PUB a 2\r\nhi\r\n")
        other.expect("MSG a 1 2", "hi")
    refused_token(server, user_token(SIGNING_KEY))
    refused_token(server, user_token(SIGNING_KEY, issuer_account=GUEST.public))
    refused_token(server, user_token(GUEST, issuer_account=SHOP.public))


def test_strict_operator_requires_signing_keys(start: Starter) -> None:
    signer = Issuer(OPERATOR.kind, 97)
    realm = Realm(
        operator=OPERATOR.claim(
            OPERATOR, "operator", signing_keys=[signer.public], strict_signing_key_usage=True
        )
    )
    realm.add(GUEST)
    realm.accounts[SHOP] = signer.claim(
        SHOP, "account", limits=UNLIMITED, signing_keys=[SIGNING_KEY.public]
    )
    server = start(realm.config())
    refused_token(server, user_token(GUEST))
    refused_token(server, user_token(SHOP))
    login(server, user_token(SIGNING_KEY, issuer_account=SHOP.public)).close()


def scoped(**template: object) -> dict[str, Any]:
    return {"kind": "user_scope", "key": SIGNING_KEY.public, "role": "r", "template": template}


def scoped_user(**about: object) -> str:
    return SIGNING_KEY.claim(
        AMY, "user", about=about, issuer_account=SHOP.public, tags=["team:red", "team:blue"]
    )


def test_scope_sets_permissions_of_its_users(start: Starter) -> None:
    template = {
        "pub": {"allow": ["u.{{name()}}.>", "t.{{tag(team)}}", "no.{{tag(none)}}"]},
        "sub": {"allow": ["k.{{subject()}}", "a.{{account-name()}}.{{account-subject()}}"]},
    }
    server = start(Realm().add(SHOP, signing_keys=[scoped(**template)]).config())
    refused_token(server, user_token(SIGNING_KEY, issuer_account=SHOP.public))
    with login(server, scoped_user(name="amy")) as wire:
        allowed = ("u.amy.x", "t.red", "t.blue")
        wire.send("".join(f"PUB {one} 0\r\n\r\n" for one in allowed))
        wire.send(f"SUB k.{AMY.public} 1\r\nSUB a.account.{SHOP.public} 2\r\n")
        wire.expect_quiet()
        for one in ("u.bob.x", "t.green", "no.thing"):
            wire.send(f"PUB {one} 0\r\n\r\n")
            wire.expect(f"-ERR 'Permissions Violation for Publish to \"{one}\"'")
        wire.send("SUB k.other 3\r\n")
        wire.expect("-ERR 'Permissions Violation for Subscription to \"k.other\"'")


@pytest.mark.parametrize(
    ("template", "refusal"),
    [
        ({"pub": {"allow": ["no.{{tag(none)}}"]}}, None),
        ({"pub": {"deny": ["no.{{tag(none)}}"]}}, REFUSED),
        ({"pub": {"allow": ["no.{{nonsense()}}"]}}, REFUSED),
    ],
)
def test_scope_that_cannot_be_expanded_allows_nothing(
    start: Starter, template: dict[str, Any], refusal: str | None
) -> None:
    server = start(Realm().add(SHOP, signing_keys=[scoped(**template)]).config())
    if refusal:
        refused_token(server, scoped_user())
        return
    with login(server, scoped_user()) as wire:
        wire.send("PUB a 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"a\"'")
