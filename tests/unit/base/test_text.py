"""Text as the reference writes it: quotes, escapes, bytes that are not UTF-8."""

from __future__ import annotations

import pytest

from penstock.base.text import go_quoted, is_utf8


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [
        (b"plain", '"plain"'),
        (b"", '""'),
        (b'say "x"', r'"say \"x\""'),
        (b"a\\b\n\t\r\x07", r'"a\\b\n\t\r\a"'),
        ("<é>".encode(), '"<é>"'),
        (b"\x01\x7f", r'"\x01\x7f"'),
        (b"\xff.\x80", r'"\xff.\x80"'),
        ("\u2028".encode(), r'"\u2028"'),
        ("\U000e0001".encode(), r'"\U000e0001"'),
    ],
)
def test_text_is_quoted_as_go_does(raw: bytes, quoted: str) -> None:
    assert go_quoted(raw.decode("utf-8", "surrogateescape")) == quoted


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"", True), ("\u00fc".encode(), True), (b"\xff", False)]
)
def test_text_of_other_bytes_is_not_utf8(raw: bytes, expected: bool) -> None:
    assert is_utf8(raw.decode("utf-8", "surrogateescape")) is expected
