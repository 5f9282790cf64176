"""Answers to publishers, byte for byte."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.jetstream.streams.pubacks import PubAcks, go_quoted


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", b'"plain"'),
        ('say "x"', b'"say \\"x\\""'),
        ("a\\b\n\t", b'"a\\\\b\\n\\t"'),
        ("<é>", '"<é>"'.encode()),
        ("\x01\x7f", b'"\\x01\\x7f"'),
        ("\u2028", b'"\\u2028"'),
        ("\U000e0001", b'"\\U000e0001"'),
    ],
)
def test_text_is_quoted_as_go_does(text: str, quoted: bytes) -> None:
    assert go_quoted(text) == quoted


def test_answers_are_bytes_clients_know() -> None:
    acks = PubAcks("S")
    assert acks.stored(5) == b'{"stream":"S","seq":5}'
    assert acks.duplicate(2) == b'{"stream":"S","seq":2,"duplicate": true}'
    assert acks.counted(3, "13") == b'{"stream":"S","seq":3,"val":"13"}'
    assert acks.committed(4, "id", 3) == b'{"stream":"S","seq":4,"batch":"id","count":3}'
    assert acks.refused(refusals.STREAM_NOT_MATCH) == (
        b'{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},'
        b'"stream":"S","seq":0}'
    )


def test_words_of_refusal_are_safe_inside_of_html() -> None:
    fault = refusals.STREAM_WRONG_LAST_MSG_ID(id="<a>&\u2028")
    assert b"\\u003ca\\u003e\\u0026\\u2028" in PubAcks("S").refused(fault)


def test_names_that_are_no_text_do_not_stop_answer() -> None:
    fault = refusals.STREAM_WRONG_LAST_MSG_ID(id="\udcff")
    assert b"wrong last msg ID" in PubAcks("S").refused(fault)
    assert PubAcks("S").committed(1, "\udcff", 1).startswith(b'{"stream":"S"')
