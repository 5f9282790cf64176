"""The configuration language: what a text means, and that every bad one is a ConfigError."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.config_file import (
    INCLUDE_DEPTH_MAX,
    NESTING_MAX,
    ConfigError,
    Node,
    digest,
    parse_file,
    parse_text,
)

if TYPE_CHECKING:
    from pathlib import Path


def plain(value: object) -> object:
    """A tree without positions."""
    if isinstance(value, Node):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def read(text: str, **environ: str) -> object:
    return plain(parse_text(text, environ))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1", {"a": 1}),
        ("a: 1", {"a": 1}),
        ("a 1", {"a": 1}),
        ("a\n 1", {"a": 1}),
        ("a { b: 1 }", {"a": {"b": 1}}),
        ("a: {b: 1, c: 2; d: 3\n e: 4}", {"a": {"b": 1, "c": 2, "d": 3, "e": 4}}),
        ("a [1, 2]", {"a": [1, 2]}),
        ("a [\n x\n y\n]", {"a": ["x", "y"]}),
        ("a [1, 2,]", {"a": [1, 2]}),
        ("a: 1; b: 2, c: 3", {"a": 1, "b": 2, "c": 3}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1\n}\nb: 2', {"a": 1, "b": 2}),
        ("a: 1 # x\n// y\nb: 2 // z", {"a": 1, "b": 2}),
        ("a: [1 # x\n // y\n 2]", {"a": [1, 2]}),
        ("a: 1\na: 2", {"a": 2}),
        ("'a b': 1", {"a b": 1}),
        ("", {}),
        ("# nothing", {}),
    ],
)
def test_structure(text: str, meaning: object) -> None:
    assert read(text) == meaning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("word", "word"),
        ("nats://127.0.0.1:6222", "nats://127.0.0.1:6222"),
        ("A.>", "A.>"),
        ("id:abc", "id:abc"),
        ("§12§12", "§12§12"),
        ("a#b", "a#b"),
        (r"a\tb", "a\tb"),
        (r'"a\n\t\r\"\\\x41"', 'a\n\t\r"\\A'),
        (r'"\xc3\xa9"', "é"),
        (r"'raw\n'", r"raw\n"),
        ("(\nline\n  two\n)\n", "\nline\n  two\n"),
        ("TRUE", True),
        ("off", False),
        ('"true"', "true"),
        ("42", 42),
        ("-42", -42),
        ("64MB", 67108864),
        ("10k", 10000),
        ("1.5", 1.5),
        ("-1.5", -1.5),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("10.0.0.1:-1", "10.0.0.1:-1"),
        ("2s", "2s"),
        ("12_000", "12_000"),
        ("1k5", "1k5"),
        ("2020-01-02T03:04:05Z", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("$2a$11$abc", "$2a$11$abc"),
        (",", ""),
    ],
)
def test_scalar(text: str, value: object) -> None:
    found = read(f"k: {text}")
    assert isinstance(found, dict)
    assert found == {"k": value}
    assert type(found["k"]) is type(value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"port": : "x"', "Parse error on line 1: 'Expected a top-level value to end"),
        ("a: 1\nb: 2 c", "Parse error on line 2: 'Expected a top-level value to end"),
        ("a", r"config is invalid \(f:1:1\)"),
        (": 1", "Unexpected key separator ':'"),
        ("a { : 1 }", "Unexpected key separator ':'"),
        ("a {b", "Unexpected EOF processing map key"),
        ('a {"b', "Unexpected EOF processing double quoted map key"),
        ("a { ]", "Unexpected array end"),
        ("a {b: ,", "Unexpected map value terminator"),
        ("a {b:}", "found end of map"),
        ("a {b: 1", "Expected a map value terminator"),
        ("a [1", "Expected an array value terminator"),
        ("a [,", "Unexpected array value terminator"),
        ("{a: 1", "Expected a block-level value"),
        ('a: "x', "Unexpected EOF"),
        ("a: 'x", "Unexpected EOF"),
        ("a: (x\n) \n", "Unexpected EOF processing block"),
        (r'a: "\q"', "Invalid escape character 'q'"),
        (r'a: "\xzz"', "Expected two hexadecimal digits"),
        (r'a: "\xff"', "Invalid UTF-8"),
        ("a: .5", "Floats must start with a digit"),
        ("a: 1.x", "Floats must have a digit after the '.'"),
        ("a: -x", "Expected a digit but got 'x'"),
        ("a:\n1", "Expected value but found new line"),
        ("a: 2020-01", "full Zulu form"),
        ("a: 2020-13-01T00:00:00Z", "expected Zulu formatted DateTime"),
        ("a: 99999999999999999999", "integer '99999999999999999999' is out of the range"),
        ("a: 10kbb", "expected integer, but got '10kbb'"),
        ("a: $NOPE", "variable reference for 'NOPE' on line 1 can not be found"),
        ("/x", "Unexpected EOF"),
        ("include [1]", "Expected include value but found start of an array"),
        ("include 5", "Expected include value but found start of a number"),
    ],
)
def test_bad_text_is_reported_with_its_reason(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_text(text, {}, file="f")


def test_variable_is_looked_up_from_inside_out() -> None:
    text = "x: 1\na { x: 2, b: {y: $x} }\nc: $x"
    assert read(text) == {"x": 1, "a": {"x": 2, "b": {"y": 2}}, "c": 1}


def test_variable_falls_back_to_environment_and_is_parsed_there() -> None:
    assert read("a: $N, b: $L", N="42", L="[x, yes]") == {"a": 42, "b": ["x", True]}


def test_key_shadows_environment() -> None:
    assert read("N: 1\na: $N", N="2") == {"N": 1, "a": 1}


def test_variable_cannot_be_used_before_it_is_set() -> None:
    with pytest.raises(ConfigError, match="reference for 'b' on line 1"):
        read("a: $b\nb: $a")


def test_environment_cycle_ends() -> None:
    with pytest.raises(ConfigError, match="could not be parsed"):
        read("a: $X", X="$Y", Y="$X")


def test_bad_environment_text_is_reported_with_variable() -> None:
    with pytest.raises(ConfigError, match="reference for 'X' on line 2 could not be parsed"):
        read("\na: $X", X="[1")


def test_use_as_variable_is_remembered() -> None:
    tree = parse_text("x: 1\ny: 2\na: $x", {})
    assert [tree[key].used_as_variable for key in ("x", "y", "a")] == [True, False, False]


def test_position_is_that_of_key_or_of_list_item() -> None:
    tree = parse_text('a: 1\n  b {\n    c: [ "x", y ] }', {}, file="f.conf")
    inner = tree["b"].value
    assert isinstance(inner, dict)
    items = inner["c"].value
    assert isinstance(items, list)
    where = [node.where for node in (tree["a"], tree["b"], inner["c"], *items)]
    assert where == ["f.conf:1:0", "f.conf:2:3", "f.conf:3:5", "f.conf:3:11", "f.conf:3:15"]


def test_include_merges_relative_to_including_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text('a: 1\ninclude "sub/one.conf"\nm { include sub/two.conf }')
    (tmp_path / "sub/one.conf").write_text("a: 2\ninclude 'two.conf'")
    (tmp_path / "sub/two.conf").write_text("b: 3")
    found = plain(parse_file(str(tmp_path / "main.conf"), {}))
    assert found == {"a": 2, "b": 3, "m": {"b": 3}}


def test_value_from_include_knows_its_file(tmp_path: Path) -> None:
    (tmp_path / "main.conf").write_text("include one.conf")
    (tmp_path / "one.conf").write_text("\nb: 3")
    tree = parse_file(str(tmp_path / "main.conf"), {})
    assert tree["b"].where == f"{tmp_path / 'one.conf'}:2:1"


def test_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf")
    (tmp_path / "b.conf").write_text("include ./a.conf")
    with pytest.raises(ConfigError, match="includes itself"):
        parse_file(str(tmp_path / "a.conf"), {})


def test_includes_are_bounded(tmp_path: Path) -> None:
    for number in range(INCLUDE_DEPTH_MAX + 1):
        (tmp_path / f"{number}.conf").write_text(f"include 'x{number}.conf'")
        (tmp_path / f"x{number}.conf").write_text(f'include "{number + 1}.conf"')
    with pytest.raises(ConfigError, match="nested deeper than"):
        parse_file(str(tmp_path / "0.conf"), {})


def test_missing_files_are_reported_with_system_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^open .*nope.conf: no such file or directory$"):
        parse_file(str(tmp_path / "nope.conf"), {})
    (tmp_path / "a.conf").write_text("include nope.conf")
    with pytest.raises(ConfigError, match=r"^error parsing include file 'nope.conf', open "):
        parse_file(str(tmp_path / "a.conf"), {})
    with pytest.raises(ConfigError, match="is a directory"):
        parse_file(str(tmp_path), {})


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="Parse error on line 2: 'Invalid UTF-8'"):
        parse_file(str(tmp_path / "a.conf"), {})


@pytest.mark.parametrize("opener", ["[", "{a:"])
def test_nesting_is_bounded(opener: str) -> None:
    with pytest.raises(ConfigError, match="Nested deeper"):
        parse_text("k: " + opener * (NESTING_MAX + 1), {})
    closer = "]" if opener == "[" else "}"
    inner = "" if opener == "[" else "1"
    parse_text("k: " + opener * NESTING_MAX + inner + closer * NESTING_MAX, {})


# Recorded with the reference, `nats-server -t -c FILE`.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 4222", "797533ebd0dfba7d34a0f9337ecf147e442871f48ddfd07ed751575a5737267e"),
        ("a: 5\nport: $a", "f4cf9dbcb3b4aa49c6e7e5b3c3314a0947dad9da80d428051ba678cbb33474bf"),
        (
            "max_payload: 10KiB",
            "d7daea71149063f1608de987547d80f3c21cb8544216f9eaf4f197dcd6d84d79",
        ),
        (
            "server_name: a#b",
            "accdc0f90560b798884a35bbc16d6d88e9a8d7e8cc2f481daff3158a6f807b54",
        ),
    ],
)
def test_digest_is_references(text: str, expected: str) -> None:
    assert digest(parse_text(text, {})) == f"sha256:{expected}"


def test_digest_does_not_depend_on_spelling() -> None:
    spelled = [
        'b: {y: 1.0, x: "<"}, a: [yes, 2]',
        "{'a': [true\n 2]\n b { x = '<'; y 1.00 }\n}",
    ]
    assert len({digest(parse_text(text, {})) for text in spelled}) == 1


# Property laws

_words = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=8
)
_json = st.recursive(
    st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(min_value=-1e9, max_value=1e9).map(lambda x: round(x, 3)).filter(bool)
    | st.text(st.characters(exclude_categories=("Cs", "Cc"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_words, _json, max_size=4), st.sampled_from([None, 2]))
def test_json_means_what_it_means_in_json(document: dict[str, object], indent: int | None) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    assert read(text) == json.loads(text)


_SIGNS = ", \n\t;{}[]=:\"'#/()-.\\\x00"
_WORDS = ("a", "//", "1", "k", "$a", "$E", "\\x4", "include ", "é", "\r\n", "2020-", "yes")
_fragments = st.sampled_from((*_SIGNS, *_WORDS))


@given(st.lists(_fragments, max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_is_tree_or_config_error(text: str) -> None:
    try:
        tree = parse_text(text, {"E": "[1, $a]"})
    except ConfigError:
        return
    assert isinstance(tree, dict)
    digest(tree)
