"""Pull requests."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.consumer_config import ConsumerConfig, PriorityPolicy
from penstock.api.pull_request import ONE_MESSAGE, PullRequest, parse_pull, refuse_pull

MINUTE = 60 * 10**9


@pytest.mark.parametrize("body", [b"", b"  \r\n", b"x", b"1.5", b"[1]", b"9" * 20, b"5 6", b"1_0"])
def test_empty_body_requests_one_message(body: bytes) -> None:
    assert parse_pull(body) == ONE_MESSAGE


@pytest.mark.parametrize(("body", "batch"), [(b"5", 5), (b"+2", 2), (b" -3\n", -3), (b"0", 0)])
def test_number_is_batch(body: bytes, batch: int) -> None:
    assert parse_pull(body) == PullRequest(batch)


def test_json_output_is_complete() -> None:
    said = {
        "batch": 3,
        "expires": MINUTE,
        "max_bytes": 4,
        "no_wait": True,
        "idle_heartbeat": 5,
        "group": "g",
        "min_pending": 6,
        "min_ack_pending": 7,
        "id": "pin",
        "priority": 8,
    }
    assert parse_pull(json.dumps(said).encode()) == PullRequest(**said, formal=True)


@pytest.mark.parametrize(
    "body", [b'{"BATCH":2}', b'{"batch":2,"more":[1,{}]}', b' {"batch":2,"expires":null} ']
)
def test_unusual_spellings_mean_the_same(body: bytes) -> None:
    assert parse_pull(body) == PullRequest(2, formal=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "unexpected end of JSON input"),
        (b'{"batch":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a":[[}', "invalid character '}' looking for beginning of value"),
        (b'{"no_wait":tru}', "invalid character '}' in literal true (expecting 'e')"),
        (b'{"batch":1\x00}', "invalid character '\\x00' after object key:value pair"),
        (b'{"batch":1} x', "invalid character 'x' after top-level value"),
        (b'{"batch":"x"}{}', "invalid character '{' after top-level value"),
        (
            b'{"batch":"x"}',
            "json: cannot unmarshal string into Go struct field .batch of type int",
        ),
        (
            b'{"batch":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field .batch of type int",
        ),
        (
            b'{"batch":9223372036854775808}',
            "json: cannot unmarshal number 9223372036854775808 into Go struct field .batch"
            " of type int",
        ),
        (
            b'{"min_pending":"a"}',
            "json: cannot unmarshal string into Go struct field .min_pending of type int64",
        ),
        (
            b'{"no_wait":1}',
            "json: cannot unmarshal number into Go struct field .no_wait of type bool",
        ),
        (b'{"expires":100,"idle_heartbeat":51}', "heartbeat value too large"),
        (b'{"idle_heartbeat":1}', "heartbeat value too large"),
    ],
)
def test_read_errors_have_text_of_reference(body: bytes, reason: str) -> None:
    assert parse_pull(body) == reason


@given(st.binary(max_size=60) | st.text(string.printable).map(lambda text: f"{{{text}".encode()))
def test_any_body_is_request_or_reason(body: bytes) -> None:
    assert isinstance(parse_pull(body), PullRequest | str)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "batch": st.integers(-5, 2**63 - 1),
            "expires": st.integers(-(2**63), 2**63 - 1),
            "no_wait": st.booleans() | st.none(),
            "group": st.text(max_size=5),
        },
    )
)
def test_spelling_in_capitals_never_matters(said: dict[str, object]) -> None:
    shouted = {name.upper(): value for name, value in said.items()}
    assert parse_pull(json.dumps(shouted).encode()) == parse_pull(json.dumps(said).encode())


# -- refused by the configuration

OVERFLOW = ConsumerConfig(priority_policy=PriorityPolicy.OVERFLOW, priority_groups=("g",))
PINNED = ConsumerConfig(priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=("g",))
CAPPED = ConsumerConfig(max_batch=5, max_expires=90 * 10**9, max_bytes=7)


@pytest.mark.parametrize(
    ("cfg", "pull", "status"),
    [
        (CAPPED, PullRequest(6, 10**12, 9), "409 Exceeded MaxRequestBatch of 5"),
        (CAPPED, PullRequest(5, 10**12, 9), "409 Exceeded MaxRequestExpires of 1m30s"),
        (CAPPED, PullRequest(5, 90 * 10**9, 9), "409 Exceeded MaxRequestMaxBytes of 7"),
        (CAPPED, PullRequest(5, 90 * 10**9, 7), None),
        (CAPPED, PullRequest(-1), None),
        (ConsumerConfig(), PullRequest(10**9, 10**15, 10**12), None),
        (
            ConsumerConfig(),
            PullRequest(min_pending=1, id="x", formal=True),
            "400 Bad Request - Not a Overflow Priority consumer",
        ),
        (
            ConsumerConfig(),
            PullRequest(id="x", priority=10, formal=True),
            "400 Bad Request - Not a Pinned Client Priority consumer",
        ),
        (
            OVERFLOW,
            PullRequest(priority=-1, formal=True),
            "400 Bad Request - Priority must be between 0 and 9",
        ),
        (OVERFLOW, PullRequest(formal=True), "400 Bad Request - Priority Group missing"),
        (OVERFLOW, PullRequest(formal=False), None),
        (OVERFLOW, PullRequest(group="h", formal=True), "400 Bad Request - Invalid Priority Group"),
        (OVERFLOW, PullRequest(group="g", min_ack_pending=1, formal=True), None),
        (PINNED, PullRequest(group="g", id="x", priority=9, formal=True), None),
        (ConsumerConfig(), PullRequest(group="whatever", formal=True), None),
    ],
)
def test_configuration_refuses_in_order(
    cfg: ConsumerConfig, pull: PullRequest, status: str | None
) -> None:
    assert refuse_pull(pull, cfg) == status


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a":\xff}', r"invalid character '\xff' looking for beginning of value"),
        (b'{"a":1\xc3\xa9}', "invalid character '\u00e9' after object key:value pair"),
        (b'{"a":1\xe2\x80\xa8}', r"invalid character '\u2028' after object key:value pair"),
        (b'{"a":1\xf3\xa0\x80\x81}', r"invalid character '\U000e0001' after object key:value pair"),
        (b'{"a":1\'}', r"invalid character '\'' after object key:value pair"),
        (b'{"a":"\\\xff"}', r'invalid escape sequence "\\\xff" in string'),
        (b'{"a":"\\u"`}', r'invalid escape sequence "\\u\"`}" in string'),
        (b'{"a":"\\u"}', r'invalid escape sequence `\u"}` in string'),
        (b'{"a":"\\u12', "unexpected end of JSON input"),
    ],
)
def test_unprintable_characters_are_escaped(body: bytes, shown: str) -> None:
    assert parse_pull(body) == shown


def test_text_that_is_not_utf_8_is_no_fault() -> None:
    assert parse_pull(b'{"id":"\xff","batch":2}') == PullRequest(2, id="\ufffd", formal=True)
