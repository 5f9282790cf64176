"""How deep JSON may be nested before a decoder sees it."""

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.json_codec import decode, decode_one
from penstock.api.pull_request import PullBody, parse_pull
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import PurgeRequest, is_empty_body
from penstock.base.json_depth import NESTING_MAX, TooDeep, check_nesting
from penstock.jetstream.sources.source_requests import NOT_AN_ANSWER, read_answer
from penstock.server.auth.claims import ClaimsFault, _json
from penstock.server.net.connect_info import ConnectOptions, parse_connect
from penstock.server.system.system_requests import ConnzOptions, MalformedRequest, read_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LEVELS = 5_000


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_bound_is_number_of_open_brackets() -> None:
    check_nesting(nested(NESTING_MAX))
    check_nesting(b"[" + b"[],{}," * 10_000 + b"[]]")
    with pytest.raises(TooDeep) as refused:
        check_nesting(b' {"a":' + nested(NESTING_MAX) + b"}")
    assert refused.value.offset == len(b' {"a":') + NESTING_MAX


def test_brackets_in_texts_are_no_levels() -> None:
    check_nesting(b'["' + b"[" * 1_000 + b'\\"' + b"{" * 1_000 + b'"]')
    with pytest.raises(TooDeep):
        check_nesting(b'["\\\\",' + nested(NESTING_MAX) + b"]")


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(
    st.recursive(
        st.text('[]{}"\\a') | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\a'), inner),
    )
)
def test_any_document_is_counted_right(document: object) -> None:
    raw = json.dumps(document, ensure_ascii=False).encode()
    around = NESTING_MAX - depth_of(document)
    check_nesting(b"[" * around + raw + b"]" * around)
    if isinstance(document, list | dict):
        with pytest.raises(TooDeep):
            check_nesting(b"[" * (around + 1) + raw + b"]" * (around + 1))


def test_requests_that_are_too_deep_are_refused_as_bad_json() -> None:
    body = b'{"x":' + nested(LEVELS) + b"}"
    with pytest.raises(ApiError) as refused:
        decode(PurgeRequest, body)
    assert refused.value.err_code == 10025
    assert (
        refused.value.description == f"invalid JSON: exceeded max depth at offset {5 + NESTING_MAX}"
    )
    with pytest.raises(ApiError) as refused:
        decode_one(PullBody, body)
    assert refused.value.description == "invalid JSON: exceeded max depth"


class Witness:
    """A callback of the collector that calls a few functions, as those of the server do."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        self.calls += len(str(info)) > 0
        self._deeper(30)

    def _deeper(self, levels: int) -> None:
        if levels:
            self._deeper(levels - 1)


@pytest.fixture
def failures() -> Iterator[list[object]]:
    """What callbacks of a collector that runs all the time could not do."""
    found: list[object] = []
    hook, thresholds, witness = sys.unraisablehook, gc.get_threshold(), Witness()
    sys.unraisablehook = found.append
    gc.callbacks.append(witness)
    gc.set_threshold(1, 1_000_000, 1_000_000)
    try:
        yield found
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(witness)
        sys.unraisablehook = hook
    assert witness.calls > 0


def _purge(body: bytes) -> None:
    with pytest.raises(ApiError):
        decode(PurgeRequest, body)


def _connect(body: bytes) -> None:
    with pytest.raises(ValueError, match="max depth"):
        parse_connect(body, ConnectOptions())


def _system(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_body(body, ConnzOptions)


def _claims(body: bytes) -> None:
    import base64

    with pytest.raises(ClaimsFault):
        _json(base64.urlsafe_b64encode(body).decode().rstrip("="))


def _pull(body: bytes) -> None:
    assert parse_pull(body) == "exceeded max depth"


def _empty(body: bytes) -> None:
    assert not is_empty_body(body)


def _answer(body: bytes) -> None:
    assert read_answer(b"", body) == NOT_AN_ANSWER


@pytest.mark.parametrize("read", [_purge, _connect, _system, _claims, _pull, _empty, _answer])
def test_collector_has_room_whatever_clients_nest(
    read: Callable[[bytes], None], failures: list[object]
) -> None:
    inner = b"[[]," * LEVELS + b"[]" + b"]" * LEVELS
    read(b'{"x":' + inner + b"}")
    assert not failures
