"""Values as objects: codecs refuse what is not theirs, views skip it, the quarantine lists it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zstandard

from penstock.fold import MemorySnapshot
from penstock.fold.derive.quarantine import Quarantine
from penstock.fold.derive.typed_fold import Typed
from penstock.fold.derive.value_codecs import (
    VALUE_BYTES_MAX,
    Codec,
    Json,
    MessagePack,
    Pydantic,
    Raw,
    Undecodable,
    Zstd,
)
from support.folds import at, put

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node(msgspec.Struct):
    region: str
    cores: int = 1


@dataclass
class Plain:
    region: str


EU = Node("eu", 4)


@pytest.fixture
def store() -> Iterator[MemorySnapshot]:
    with MemorySnapshot.open() as opened:
        yield opened


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (Raw(), b"\xff"),
        (Json(), {"a": [1, None]}),
        (Json(Node), EU),
        (Json(Plain), Plain("eu")),
        (Json(dict[str, int]), {"a": 1}),
        (MessagePack(Node), EU),
        (Zstd(Json(Node)), EU),
        (Zstd(Raw()), b"x" * 100_000),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_encoded_values_decode(codec: Codec[Any], value: object) -> None:
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Json(), b"{"),
        (Json(), b'"\xff"'),
        (Json(Node), b'{"region": 7}'),
        (MessagePack(Node), b"\xc1"),
        (Zstd(Raw()), b"plain"),
        (Zstd(Raw()), b""),
        (Zstd(Json(Node)), zstandard.compress(b"{")),
    ],
)
def test_bytes_of_something_else_are_refused(codec: Codec[Any], data: bytes) -> None:
    with pytest.raises(Undecodable):
        codec.decode(data)


def test_value_that_would_grow_too_large_is_refused_unread() -> None:
    bomb = zstandard.compress(bytes(VALUE_BYTES_MAX + 1))
    with pytest.raises(Undecodable, match="at most"):
        Zstd(Raw()).decode(bomb)


def test_model_of_pydantic_is_codec_and_its_errors_quote_no_value() -> None:
    pydantic = pytest.importorskip("pydantic")
    codec = Pydantic(pydantic.create_model("Machine", region=(str, ...)))
    assert codec.decode(b'{"region": "eu"}').region == "eu"
    assert codec.encode(codec.decode(b'{"region": "eu"}')) == b'{"region":"eu"}'
    with pytest.raises(Undecodable) as told:
        codec.decode(b'{"region": "secret", "region": 7777}')
    assert "7777" not in str(told.value)


def test_view_reads_objects(store: MemorySnapshot) -> None:
    store.apply([put("a", b'{"region":"eu","cores":4}', 1), put("b", b"bad", 2)], at(2))
    nodes = Typed(store, Json(Node))
    entry = nodes.get("a")
    assert entry is not None
    assert (entry.value, entry.version.revision) == (EU, 1)
    assert nodes.get("none") is None
    assert [one and one.value for one in nodes.get_many(["none", "a"])] == [None, EU]
    with pytest.raises(Undecodable, match="key 'b'"):
        nodes.get("b")


def test_range_passes_over_what_cannot_be_read_unless_asked_not_to(store: MemorySnapshot) -> None:
    good = b'{"region":"eu"}'
    store.apply(
        [put("a", b"bad", 1), put("b", good, 2), put("c", good, 3), put("d", good, 4)], at(4)
    )
    nodes = Typed(store, Json(Node))
    assert [one.key for one in nodes.range()] == ["b", "c", "d"]
    assert [one.key for one in nodes.range(limit=2)] == ["b", "c"]
    assert [one.key for one in nodes.range(after="b")] == ["c", "d"]
    with pytest.raises(Undecodable, match="key 'a'"):
        list(nodes.range(undecodable="raise"))


class Learning:
    """A codec that can read more as time goes by."""

    name = "learning"

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        if data not in self.known:
            raise Undecodable("not learned yet")
        return data


def test_readable_values_leave_list_by_retry(store: MemorySnapshot) -> None:
    codec = Learning()
    bad = Quarantine(codec)
    store.attach(bad)
    store.apply([put("a", b"1", 1), put("b", b"2", 2)], at(2))
    assert [(one.key, one.reason) for one in bad.listed(store)] == [
        ("a", "not learned yet"),
        ("b", "not learned yet"),
    ]
    codec.known.add(b"1")
    assert bad.retry(store) == 1
    assert [one.key for one in bad.listed(store)] == ["b"]
    assert bad.first(5) == ["b"]


def test_reason_never_quotes_value(store: MemorySnapshot) -> None:
    class Quoting:
        name = "quoting"

        def encode(self, value: bytes) -> bytes:
            return value

        def decode(self, data: bytes) -> bytes:
            raise RuntimeError(f"what is {data!r}?")

    bad = Quarantine(Quoting())
    store.attach(bad)
    store.apply([put("a", b"secret", 1)], at(1))
    assert [one.reason for one in bad.listed(store)] == ["RuntimeError"]


def test_another_schema_looks_at_everything_again(tmp_path: Any) -> None:
    from penstock.fold import SqliteSnapshot

    path = tmp_path / "fold.db"
    with SqliteSnapshot.open(path) as store:
        store.attach(Quarantine(Json(dict[str, int])))
        store.apply([put("a", b'{"n": "one"}', 1)], at(1))
    with SqliteSnapshot.open(path) as store:
        bad = Quarantine(Json(dict[str, str]), schema=2)
        store.attach(bad)
        assert list(bad.listed(store)) == []
