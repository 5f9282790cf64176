"""Names of keys, and what the headers of a record mean."""

from __future__ import annotations

import pytest

from penstock.kv import bucket_records
from penstock.kv.kv_types import Op, Scope


def block(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, "")).encode()


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        (b"", (Op.PUT, None)),
        (block("X: y"), (Op.PUT, None)),
        (block("KV-Operation: DEL"), (Op.DELETE, None)),
        (block("KV-Operation: PURGE", "Nats-Rollup: sub"), (Op.PURGE, None)),
        (block("KV-Operation: PUT"), (Op.PUT, None)),
        (block("Nats-Marker-Reason: MaxAge"), (Op.PURGE, "MaxAge")),
        (block("Nats-Marker-Reason: Purge"), (Op.PURGE, "Purge")),
        (block("Nats-Marker-Reason: Remove"), (Op.DELETE, "Remove")),
        (block("Nats-Marker-Reason: Other"), (Op.PUT, None)),
        (block("Nats-Marker-Reason: Remove", "KV-Operation: PURGE"), (Op.PURGE, None)),
    ],
)
def test_header_reports_what_record_does(header: bytes, meaning: tuple[Op, str | None]) -> None:
    assert bucket_records.operation(header) == meaning


def test_scope_asks_for_whole_tokens() -> None:
    assert bucket_records.filters_of("b", Scope.all()) == ("$KV.b.>",)
    assert bucket_records.filters_of("b", Scope.of(["n.", "a.b."])) == ("$KV.b.a.b.>", "$KV.b.n.>")


@pytest.mark.parametrize(("prefix", "token"), [("", ""), ("a", ""), ("a.", "a."), ("a.bc", "a.")])
def test_prefix_is_enclosed_by_whole_tokens(prefix: str, token: str) -> None:
    assert bucket_records.enclosing(prefix) == token


@pytest.mark.parametrize("name", ["", "a.b", "a b", "b\n"])
def test_invalid_bucket_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        bucket_records.stream_of(name)
