"""Signed claims: what is read, what is refused, and when they hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.server.auth.claim_rules import is_revoked, open_for_s, source_allowed, user_faults
from penstock.server.auth.claims import (
    AccountClaims,
    ClaimsFault,
    Hours,
    Licence,
    OperatorClaims,
    UserClaims,
    decode,
)
from penstock.server.auth.login_values import Accepted, Login, LoginRefused
from penstock.server.auth.trust_chain import TrustChain
from penstock.server.config.operator_config import check_operators
from penstock.server.config.options import AccountOptions, Authorization, Options, UserOptions
from support.claims import AMY, ISSUED_S, OPERATOR, SHOP, UNLIMITED, Issuer, user_token

NOW_S = ISSUED_S + 100


def test_token_is_read_as_it_was_written() -> None:
    token = user_token(SHOP, about={"exp": 5}, pub={"allow": ["a"]}, tags=["x:y"])
    claims = decode(token, UserClaims)
    assert claims.about.subject == AMY.public
    assert claims.account == claims.about.issuer == SHOP.public
    assert (claims.about.expires_s, claims.tags) == (5, ("x:y",))
    assert claims.licence.pub.allow == ("a",)


def test_versions_differ_in_what_is_signed_only() -> None:
    new = decode(SHOP.claim(AMY, "user", subs=-1, data=-1, payload=-1), UserClaims)
    old = decode(SHOP.old_claim(AMY, "user"), UserClaims)
    assert new == old


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: "",
        lambda token: token + ".x",
        lambda token: token.rsplit(".", 1)[0],
        lambda token: token[:-1] + ("A" if token[-2] != "A" else "B") + "=",
        lambda token: f"e30.{token.split('.', 1)[1]}",
        lambda token: "x" * (1024 * 1024 + 1),
        lambda token: f"{token.split('.')[0]}.bnVsbA.{token.split('.')[2]}",
    ],
)
def test_invalid_token_is_refused(spoil: Any) -> None:
    with pytest.raises(ClaimsFault):
        decode(spoil(user_token(SHOP)), UserClaims)


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (user_token(SHOP), AccountClaims),
        (user_token(OPERATOR), UserClaims),
        (SHOP.claim(SHOP, "operator"), OperatorClaims),
        (SHOP.claim(AMY, "user", version=3), UserClaims),
        (SHOP.claim(AMY, "user", subs="many"), UserClaims),
        (OPERATOR.claim(SHOP, "account", signing_keys=[{"kind": "odd"}]), AccountClaims),
    ],
)
def test_claims_of_another_kind_or_by_another_are_refused(token: str, kind: Any) -> None:
    with pytest.raises(ClaimsFault):
        decode(token, kind)


def test_null_is_nothing() -> None:
    claims = decode(user_token(SHOP, pub=None, tags=None), UserClaims)
    assert claims.tags == ()


def test_repr_shows_no_token() -> None:
    login = Login(jwt=user_token(SHOP, bearer_token=True), now_s=NOW_S)
    decision = TrustChain(options(), NOW_S).decide(login)
    assert isinstance(decision, Accepted)
    assert decision.claimed is not None
    assert decision.claimed.token == ""
    assert "eyJ" not in repr(decision) + repr(login)


def options(**given: Any) -> Options:
    token = OPERATOR.claim(SHOP, "account", limits=UNLIMITED)
    return Options(
        operators=(OPERATOR.claim(OPERATOR, "operator"),),
        resolver="MEMORY",
        resolver_preload={SHOP.public: token},
        **given,
    )


@pytest.mark.parametrize(
    ("hours", "at", "left_s"),
    [
        (("08:00:00", "17:00:00"), "12:00:00", 5 * 3600),
        (("08:00:00", "17:00:00"), "17:00:00", None),
        (("08:00:00", "17:00:00"), "07:59:59", None),
        (("22:00:00", "06:00:00"), "23:00:00", 7 * 3600),
        (("22:00:00", "06:00:00"), "05:00:00", 3600),
        (("22:00:00", "06:00:00"), "06:00:00", None),
    ],
)
def test_hours_may_cross_midnight(hours: tuple[str, str], at: str, left_s: float | None) -> None:
    licence = Licence(times=(Hours(start=hours[0], end=hours[1]),), times_location="UTC")
    now = datetime.fromisoformat(f"2024-05-05T{at}").replace(tzinfo=UTC)
    assert open_for_s(licence, now.timestamp()) == left_s


def test_longest_of_several_hours_counts() -> None:
    times = (Hours(start="08:00:00", end="13:00:00"), Hours(start="10:00:00", end="18:00:00"))
    now = datetime(2024, 5, 5, 12, tzinfo=UTC)
    assert open_for_s(Licence(times=times, times_location="UTC"), now.timestamp()) == 6 * 3600


def test_no_hours_and_no_networks_bound_nothing() -> None:
    assert open_for_s(Licence(), NOW_S) == 0.0
    assert source_allowed((), "")


@pytest.mark.parametrize(
    ("networks", "ip", "is_allowed"),
    [
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "11.1.2.3", False),
        (("10.0.0.0/8",), "::1", False),
        (("::/0",), "::1", True),
        (("10.0.0.0/8",), "", False),
    ],
)
def test_networks(networks: tuple[str, ...], ip: str, is_allowed: bool) -> None:
    assert source_allowed(networks, ip) is is_allowed


def test_revocation_takes_what_was_issued_until_then() -> None:
    assert is_revoked({"U": 5}, "U", 5)
    assert not is_revoked({"U": 5}, "U", 6)
    assert not is_revoked({"U": 5}, "V", 1)
    assert is_revoked({"*": 5}, "V", 1)


@pytest.mark.parametrize(
    "nats",
    [
        {"pub": {"allow": ["a b"]}},
        {"sub": {"allow": ["a b c"]}},
        {"sub": {"deny": [""]}},
        {"pub": {"deny": [".a"]}},
        {"pub": {"deny": ["a..b"]}},
        {"src": ["x"]},
        {"times": [{"start": "1", "end": "2"}]},
        {"times_location": "Nowhere/Land"},
        {"issuer_account": "x"},
    ],
)
def test_user_that_makes_no_sense_has_faults(nats: dict[str, Any]) -> None:
    assert user_faults(decode(user_token(SHOP, **nats), UserClaims), NOW_S)


def test_permissions_on_what_is_no_subject_are_refused() -> None:
    token = user_token(SHOP, bearer_token=True, pub={"deny": ["a.>.b"]})
    assert isinstance(
        TrustChain(options(), NOW_S).decide(Login(jwt=token, now_s=NOW_S)), LoginRefused
    )


def test_same_permissions_are_compiled_once() -> None:
    trust = TrustChain(options(), NOW_S)
    tokens = [user_token(SHOP, bearer_token=True, pub={"allow": ["a"]}, tags=[t]) for t in "xy"]
    first, second = (trust.decide(Login(jwt=token, now_s=NOW_S)) for token in tokens)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert first.permissions is second.permissions is not None


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, None),
        ({"resolver": ""}, "operators require an account resolver to be configured"),
        (
            {"accounts": (AccountOptions(name="A"),)},
            "operators do not allow Accounts to be configured directly",
        ),
        (
            {"authorization": Authorization(users=(UserOptions(user="a"),))},
            "operators do not allow users to be configured directly",
        ),
        (
            {"trusted_keys": (OPERATOR.public,)},
            "conflicting options for 'TrustedKeys' and 'TrustedOperators'",
        ),
        ({"default_sentinel": "x"}, "default sentinel JWT not valid"),
        ({"default_sentinel": user_token(SHOP)}, "default sentinel must be a bearer token"),
        (
            {"resolver_pinned_accounts": ("x",)},
            'pinned account key "x" is not a valid public account nkey',
        ),
        (
            {"operators": (OPERATOR.claim(OPERATOR, "operator", assert_server_version="3.0.0"),)},
            f"operator {OPERATOR.public} expected major version 3 > server major version 2",
        ),
        (
            {
                "operators": (OPERATOR.claim(OPERATOR, "operator", system_account=SHOP.public),),
                "system_account": Issuer(SHOP.kind, 50).public,
            },
            "system_account in config and operator JWT must be identical",
        ),
    ],
)
def test_operators_go_with_some_options_only(given: dict[str, Any], fault: str | None) -> None:
    assert check_operators(replace(options(), **given)) == fault
