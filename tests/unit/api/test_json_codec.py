"""JSON both ways: the reference's reading, its error texts, its spelling."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from penstock.api.fields import EMIT, FLAT, Int32, Nanos, Time, UInt64
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import STREAM_NOT_FOUND, ApiError
from penstock.api.request_bodies import StreamConfigRequest
from penstock.api.stream_config import (
    Compression,
    ConsumerLimits,
    PersistMode,
    Retention,
    StreamConfig,
    StreamInfo,
    StreamSource,
)
from penstock.base.json_depth import NESTING_MAX
from support.json_cases import Body, bodies


class Inner(Struct, frozen=True, kw_only=True):
    here: Annotated[int, EMIT] = 0
    gone: int = 0


class Outer(Struct, frozen=True, kw_only=True):
    text: str = ""
    kept: Annotated[str, EMIT] = ""
    inner: Annotated[Inner | None, FLAT] = None
    nested: Inner | None = None
    at: Time | None = None
    since: Annotated[Time, EMIT] = 0
    many: Annotated[tuple[str, ...] | None, EMIT] = None
    map: dict[str, int] = {}
    raw: bytes = b""
    mode: PersistMode = PersistMode.DEFAULT
    error: ApiError | None = None
    small: Int32 = 0
    large: UInt64 = 0
    wait: Nanos = 0


def refused(raw: bytes, kind: type[Struct] = StreamConfigRequest) -> str:
    with pytest.raises(ApiError) as caught:
        decode(kind, raw)
    assert (caught.value.code, caught.value.err_code) == (400, 10025)
    return caught.value.description.removeprefix("invalid JSON: ")


# -- in


def test_lists_of_objects_are_cut_after_limit() -> None:
    body = {"name": "S", "subjects": ["a", "b", "c"], "sources": [{"name": n} for n in "OPQ"]}
    raw = json.dumps(body).encode()
    assert len(decode(StreamConfigRequest, raw).config.sources) == 3
    cut = decode(StreamConfigRequest, raw, objects_max=1).config
    assert [source.name for source in cut.sources] == ["O", "P"]
    assert cut.subjects == ("a", "b", "c")


@pytest.mark.parametrize("body", bodies(), ids=lambda body: body.label)
def test_fault_has_words_of_reference(body: Body) -> None:
    if body.fault:
        assert refused(body.raw) == body.fault
    else:
        decode(StreamConfigRequest, body.raw)


def test_empty_body_is_all_defaults() -> None:
    assert decode(StreamConfig, b"") == decode(StreamConfig, b" {} ") == StreamConfig()
    assert decode(StreamConfig, b"null") == StreamConfig()


def test_keys_match_in_any_case() -> None:
    assert decode(StreamConfig, b'{"NAME":"A","Max_Msgs":5}') == StreamConfig(name="A", max_msgs=5)


def test_null_leaves_field_as_it_is() -> None:
    raw = b'{"name":null,"max_msgs":null,"subjects":null,"mirror":null,"consumer_limits":null}'
    assert decode(StreamConfig, raw) == StreamConfig()


def test_null_inside_list_is_empty_value() -> None:
    raw = b'{"subjects":["a",null],"sources":[null],"metadata":{"k":null}}'
    cfg = decode(StreamConfig, raw)
    assert cfg.subjects == ("a", "")
    assert cfg.sources == (StreamSource(),)
    assert cfg.metadata == {"k": ""}


def test_several_values_are_read_into_one() -> None:
    assert decode(StreamConfig, b'{"name":"A"}{"max_msgs":5}\n{"name":"B"}') == StreamConfig(
        name="B", max_msgs=5
    )


def test_unknown_fields_pass_where_they_may() -> None:
    raw = b'{"name":"A","new":{"x":1},"mirror":{"name":"B","newer":2}}'
    cfg = decode(StreamConfig, raw, strict=False)
    assert (cfg.name, cfg.mirror) == ("A", StreamSource(name="B"))


@pytest.mark.parametrize(
    ("field", "least", "most", "name"),
    [
        ("max_msgs", -(2**63), 2**63 - 1, "int64"),
        ("max_msg_size", -(2**31), 2**31 - 1, "int32"),
        ("first_seq", 0, 2**64 - 1, "uint64"),
        ("max_consumers", -(2**63), 2**63 - 1, "int"),
        ("max_age", -(2**63), 2**63 - 1, "time.Duration"),
    ],
)
def test_number_must_fit_its_field(field: str, least: int, most: int, name: str) -> None:
    for fits in (least, most):
        assert getattr(decode(StreamConfig, b'{"%s":%d}' % (field.encode(), fits)), field) == fits
    for outside in (least - 1, most + 1, 10**5000):
        text = refused(b'{"%s":%s}' % (field.encode(), _digits(outside)))
        assert text.endswith((f"of type {name}", "number out of range"))


def _digits(number: int) -> bytes:
    return b"1" + b"0" * 5000 if number == 10**5000 else b"%d" % number


def test_choices_are_words_and_null_is_none_of_them() -> None:
    cfg = decode(StreamConfig, b'{"retention":"interest","compression":"s2","persist_mode":""}')
    assert cfg.retention is Retention.INTEREST
    assert cfg.compression is Compression.S2
    assert cfg.persist_mode is PersistMode.DEFAULT
    assert refused(b'{"retention":null}') == 'can not unmarshal "null"'


def test_text_that_is_no_unicode_is_read_as_far_as_it_can_be() -> None:
    assert decode(StreamConfig, b'{"name":"a\xffb"}').name == "a\ufffdb"
    assert decode(StreamConfig, b'{"name":"a\\ud800b"}').name == "a\ufffdb"


def test_body_nested_beyond_reason_is_refused() -> None:
    assert refused(b"[" * 100_000) == f"exceeded max depth at offset {NESTING_MAX + 1}"


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\ntfu0123456789.eE+- x', max_size=30))
def test_any_bytes_are_read_or_refused(raw: bytes | str) -> None:
    refusal = attempted(raw.encode() if isinstance(raw, str) else raw)
    if refusal is not None:
        assert refusal.err_code == 10025
        assert refusal.description != "invalid JSON: "


def attempted(body: bytes) -> ApiError | None:
    try:
        decode(StreamConfig, body)
    except ApiError as refusal:
        return refusal
    return None


# -- out


def test_empty_fields_are_left_out_unless_marked() -> None:
    assert json.loads(encode(Outer())) == {
        "kept": "",
        "since": "0001-01-01T00:00:00Z",
        "many": None,
    }


def test_nested_value_is_written_even_if_empty_and_flat_one_without_name() -> None:
    written = json.loads(encode(Outer(inner=Inner(), nested=Inner(), many=())))
    assert written["here"] == 0
    assert written["nested"] == {"here": 0}
    assert written["many"] == []
    assert "inner" not in written


def test_order_of_declaration_is_order_on_wire() -> None:
    names = list(json.loads(encode(StreamConfig(name="A", subjects=("a",), description="d"))))
    wanted = [name for name in StreamConfig.__struct_fields__ if name in names]
    assert names == wanted


def test_maps_are_sorted_bytes_are_base64_times_are_text() -> None:
    value = Outer(map={"b": 1, "a": 2}, raw=b"\x00\xff", at=1, since=1_500_000_000)
    written = encode(value)
    assert b'"map":{"a":2,"b":1}' in written
    assert b'"raw":"AP8="' in written
    assert b'"at":"1970-01-01T00:00:00.000000001Z"' in written
    assert b'"since":"1970-01-01T00:00:01.5Z"' in written


def test_markup_is_escaped() -> None:
    written = encode(Outer(text='<a>&\u2028\u2029\x01\t"\\é'))
    assert rb'"text":"\u003ca\u003e\u0026\u2028\u2029\u0001\t\"\\' in written
    assert json.loads(written)["text"] == '<a>&\u2028\u2029\x01\t"\\é'


def test_text_that_is_no_unicode_is_written_as_far_as_it_can_be() -> None:
    broken = b"a\xffb".decode(errors="surrogateescape")
    value = Outer(text=broken, many=(broken,), map={broken: 1})
    assert json.loads(encode(value))["text"] == "a\ufffdb"


def test_error_is_written_as_object() -> None:
    assert json.loads(encode(Outer(error=STREAM_NOT_FOUND)))["error"] == {
        "code": 404,
        "err_code": 10059,
        "description": "stream not found",
    }


def test_information_of_empty_stream_is_byte_for_byte_as_reference_writes_it() -> None:
    assert encode(StreamInfo(config=StreamConfig(name="S1", subjects=("s1.>",)))) == (
        b'{"config":{"name":"S1","subjects":["s1.\\u003e"],"retention":"limits","max_consumers":0,'
        b'"max_msgs":0,"max_bytes":0,"max_age":0,"max_msgs_per_subject":0,"discard":"old",'
        b'"storage":"file","num_replicas":0,"compression":"none","allow_direct":false,'
        b'"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,'
        b'"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false},'
        b'"created":"0001-01-01T00:00:00Z","state":{"messages":0,"bytes":0,"first_seq":0,'
        b'"first_ts":"0001-01-01T00:00:00Z","last_seq":0,"last_ts":"0001-01-01T00:00:00Z",'
        b'"consumer_count":0},"ts":"0001-01-01T00:00:00Z"}'
    )


# -- both

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times = st.integers(0, 253_402_300_799_999_999_999)
configs = st.builds(
    StreamConfig,
    name=texts,
    subjects=st.lists(texts, max_size=3).map(tuple),
    retention=st.sampled_from(Retention),
    max_msgs=st.integers(-(2**63), 2**63 - 1),
    first_seq=st.integers(0, 2**64 - 1),
    mirror=st.none()
    | st.builds(
        StreamSource, name=texts, opt_start_time=st.none() | times, opt_start_seq=st.integers(0, 9)
    ),
    consumer_limits=st.builds(ConsumerLimits, max_ack_pending=st.integers(0, 9)),
    persist_mode=st.sampled_from(PersistMode),
    allow_direct=st.booleans(),
    metadata=st.dictionaries(texts, texts, max_size=3),
)


@given(configs)
def test_written_bytes_are_read_back(cfg: StreamConfig) -> None:
    assert decode(StreamConfig, encode(cfg)) == cfg
