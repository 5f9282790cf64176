"""Origins: decisions recorded from the reference, for each kind of rule."""

from __future__ import annotations

import pytest

from penstock.server.net.codecs.origin_check import OriginRules

SAME = [
    ("http://x", "x", ""),
    ("http://x:80", "x", ""),
    ("http://X", "x", ""),
    ("http://user@x", "x", ""),
    ("http://x/path", "x", ""),
    ("http://x:8080", "x:8080", ""),
    ("http://[::1]", "[::1]", ""),
    ("", "x", ""),
    ("https://x", "x", "not same origin"),
    ("https://x:443", "x", "not same origin"),
    ("http://x:8080", "x", "not same origin"),
    ("https://x:8080", "x:8080", "not same origin"),
    ("ws://x:8080", "x:8080", "not same origin"),
    ("http://", "x", "not same origin"),
    ("http://x:", "x", "not same origin"),
    ("http://x", "x:", "not same origin"),
    ("http://[::1]", "x", "not same origin"),
    ("file:///a", "x", "not same origin"),
    ("null", "x", "cannot parse 'null'"),
    ("x", "x", "cannot parse 'x'"),
    ("http://x:abc", "x", "cannot parse 'http://x:abc'"),
    ("http://x y", "x", "cannot parse 'http://x y'"),
    ("http://x%20y", "x", "cannot parse 'http://x%20y'"),
]


@pytest.mark.parametrize(("origin", "host", "complaint"), SAME)
def test_same_origin(origin: str, host: str, complaint: str) -> None:
    rules = OriginRules.parse(True, ())
    assert rules.complaint(origin, host, secure=False) == complaint


def test_page_in_clear_is_not_of_tls_listener() -> None:
    rules = OriginRules.parse(True, ())
    assert rules.complaint("http://x:8080", "x:8080", secure=True) == "not same origin"
    assert rules.complaint("https://x:8080", "x:8080", secure=True) == ""


def test_host_of_tls_listener_means_port_443() -> None:
    rules = OriginRules.parse(True, ())
    assert rules.complaint("https://x", "x", secure=True) == ""
    assert rules.complaint("http://x", "x", secure=True) == "not same origin"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://x", True),
        ("http://x:80", True),
        ("http://x:81", True),
        ("http://X:81", True),
        ("https://y:444", True),
        ("https://x", False),
        ("https://y", False),
        ("http://y:444", False),
        ("http://q", False),
    ],
)
def test_only_listed_origins_are_allowed(origin: str, allowed: bool) -> None:
    rules = OriginRules.parse(False, ("http://x", "https://y:444", "http://x:81"))
    complaint = rules.complaint(origin, "z", secure=False)
    assert complaint == ("" if allowed else "not in the allowed list")


def test_both_rules_must_be_met() -> None:
    rules = OriginRules.parse(True, ("http://x",))
    assert rules.complaint("http://x", "x", secure=False) == ""
    assert rules.complaint("http://x", "y", secure=False) == "not same origin"
    assert rules.complaint("http://y", "y", secure=False) == "not in the allowed list"


def test_without_rules_every_origin_is_allowed() -> None:
    assert OriginRules().complaint("garbage", "x", secure=False) == ""


def test_allowed_origin_that_is_no_url_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot parse 'nonsense'"):
        OriginRules.parse(False, ("nonsense",))
