"""Versions, cursors, updates and scopes as values."""

from __future__ import annotations

import pytest

from penstock.kv.errors import CursorExpired, KvError, RevisionMismatch
from penstock.kv.kv_types import (
    KvEntry,
    KvUpdate,
    Op,
    Scope,
    VersionToken,
    WatchCursor,
    WriteVersion,
    disjoint,
)


def test_revision_is_eight_bytes_in_order_of_network() -> None:
    assert VersionToken.of(258).raw == b"\0\0\0\0\0\0\1\2"
    assert WatchCursor.of(258).revision == 258


@pytest.mark.parametrize("raw", [b"", b"1234567", b"123456789"])
def test_token_of_another_length_is_no_revision(raw: bytes) -> None:
    assert VersionToken(raw).revision is None
    assert WatchCursor(raw).rank == 0


@pytest.mark.parametrize("kind", [VersionToken, WatchCursor])
def test_token_has_at_most_ten_bytes(kind: type[VersionToken] | type[WatchCursor]) -> None:
    assert kind(bytes(10)).raw == bytes(10)
    with pytest.raises(ValueError, match="at most 10 bytes"):
        kind(bytes(11))


def test_no_cursor_is_false_and_the_first_one_is_true() -> None:
    assert not WatchCursor.NONE
    assert WatchCursor.of(0)


def test_tokens_are_values_of_their_own_kind() -> None:
    assert len({WatchCursor.of(1), WatchCursor.of(1), WatchCursor.of(2)}) == 2
    assert VersionToken.of(1) != WatchCursor.of(1)


def test_update_knows_its_version() -> None:
    assert KvUpdate(Op.PUT, "k", b"v", 5).version == VersionToken.of(5)
    assert KvUpdate(Op.DELETE, "k").version == VersionToken.UNKNOWN
    assert KvUpdate(Op.PUT, "k", token=b"0123456789").version.raw == b"0123456789"
    assert KvEntry("k", b"v", VersionToken.of(5)).revision == 5


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("",), ("",)),
        (("", "a."), ("",)),
        (("b.", "a.", "a."), ("a.", "b.")),
        (("a.b.", "a.", "ab."), ("a.", "ab.")),
    ],
)
def test_prefixes_are_reduced_to_those_that_do_not_overlap(
    given: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    assert disjoint(given) == kept
    assert Scope.of(given).prefixes == kept


@pytest.mark.parametrize("prefixes", [(), ("a",), ("a.", "b"), ("b.", "a."), ("a.", "a.b.")])
def test_scope_that_no_watch_could_have_is_refused(prefixes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="prefix"):
        Scope(prefixes)


def test_scope_covers_what_lies_within_it() -> None:
    assert Scope.all().covers(Scope.of(["a.", "b."]))
    assert Scope.of(["a.", "b."]).covers(Scope.prefix("a.b."))
    assert not Scope.prefix("a.").covers(Scope.of(["a.b.", "b."]))
    assert not Scope.prefix("a.").covers(Scope.all())
    assert Scope.prefix("a.").holds("a.x")
    assert not Scope.prefix("a.").holds("ab")


def test_error_reports_where_and_what_to_do() -> None:
    error = CursorExpired("gone", first_seq=9, cursor=WatchCursor.of(3), bucket="b")
    assert isinstance(error, KvError)
    assert str(error) == "bucket b: gone (repair the fold, or read everything again)"
    assert (error.first_seq, error.cursor.rank) == (9, 3)
    mismatch = RevisionMismatch("no", expected=VersionToken.of(4))
    assert mismatch.expected == VersionToken.of(4)


def test_version_of_write_equals_version_alone() -> None:
    version = WriteVersion.in_log(7, "KV_b@1")
    assert version == VersionToken.of(7)
    assert VersionToken.of(7) == version
    assert VersionToken.of(8) != version
    assert {version, VersionToken.of(7)} == {version}
    assert (version.revision, version.log_identity) == (7, "KV_b@1")
    assert VersionToken.of(7).log_identity == ""
