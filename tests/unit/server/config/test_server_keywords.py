"""Options of an embedding program: taken, or refused with the name of the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct

import penstock
from penstock.broker.permission_values import Permissions, SubjectPermission
from penstock.server.config.options import (
    AccountOptions,
    Authorization,
    JetStreamOptions,
    Options,
    UserOptions,
)
from penstock.server.config.server_keywords import (
    SIZES,
    _described,
    _hints,
    check_types,
    keyword_values,
)


@pytest.mark.parametrize("kind", [penstock.Server, penstock.ThreadedServer])
def test_size_may_be_text_as_in_configuration_file(kind: type) -> None:
    server: Any = kind(max_payload="1MB")
    inner = server if kind is penstock.Server else server._server
    assert inner.options.max_payload == 1 << 20


@pytest.mark.parametrize("kind", [penstock.Server, penstock.ThreadedServer])
@pytest.mark.parametrize("name", sorted(SIZES))
def test_text_that_is_no_size_is_refused_by_name(kind: type, name: str) -> None:
    with pytest.raises(ValueError, match=f"option '{name}': 'much' is not a size"):
        kind(**{name: "much"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "4222"),
        ("port", 4222.0),
        ("port", True),
        ("host", 1),
        ("debug", "yes"),
        ("debug", 1),
        ("ping_interval_ns", 1.5),
        ("max_payload", 1.5),
        ("max_payload", None),
        ("server_tags", "tag"),
        ("server_tags", ("tag", 1)),
        ("server_metadata", {"a": 1}),
        ("authorization", {"user": "amy"}),
        ("websocket", True),
        ("jetstream", {}),
    ],
)
def test_value_of_wrong_type_is_refused_by_name(name: str, value: object) -> None:
    for kind in (penstock.Server, penstock.ThreadedServer):
        with pytest.raises(TypeError, match=f"option '{name}"):
            kind(**{name: value})


def test_values_inside_of_values_are_checked() -> None:
    users = (UserOptions(user="amy"), UserOptions(user=5))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"option 'authorization\.users\[1\]\.user' must be text"):
        penstock.Server(authorization=Authorization(users=users))
    memory: Any = "1GB"
    with pytest.raises(TypeError, match=r"option 'jetstream_options\.max_memory' must be an int"):
        penstock.Server(jetstream_options=JetStreamOptions(max_memory=memory))


def test_given_options_are_checked_as_well() -> None:
    port: Any = "1"
    with pytest.raises(TypeError, match="option 'port' must be an integer, not str"):
        penstock.Server(Options(port=port))
    nothing: Any = {"port": 1}
    with pytest.raises(TypeError, match=r"options must be penstock\.Options, not dict"):
        penstock.Server(nothing)


def test_unknown_option_is_refused_with_nearest_one() -> None:
    with pytest.raises(TypeError, match="no option 'max_paylod'; did you mean 'max_payload'"):
        penstock.Server(max_paylod=1)


def test_paths_and_lists_are_taken() -> None:
    given = keyword_values({"store_dir": Path("a") / "b", "server_tags": ["x"], "port": -1})
    assert given == {"store_dir": "a/b", "server_tags": ("x",), "port": -1}


def test_secret_is_in_no_refusal() -> None:
    secret: Any = b"hush"
    with pytest.raises(TypeError, match=r"authorization\.password") as caught:
        penstock.Server(authorization=Authorization(user="amy", password=secret))
    assert "hush" not in str(caught.value)


def test_everything_configuration_can_report_has_declared_type() -> None:
    rules = SubjectPermission(allow=("a.>",))
    amy = UserOptions(user="amy", permissions=Permissions(publish=rules))
    check_types(Options(accounts=(AccountOptions(name="A", users=(amy,)),), jetstream=True))


def test_every_declared_type_can_be_checked_and_named() -> None:
    left, seen = [Options], set()
    while left:
        cls: Any = left.pop()
        seen.add(cls)
        for hint in _hints(cls).values():
            assert _described(hint)
            parts = [hint, *get_args(hint), *(a for part in get_args(hint) for a in get_args(part))]
            left += [
                part
                for part in parts
                if isinstance(part, type) and issubclass(part, Struct) and part not in seen
            ]
    assert len(seen) > 10
