"""Subject transforms: every function, every fault, as the reference has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.subjects.match import match_literal
from penstock.subjects.transform import (
    Transform,
    TransformFault,
    check_mapping,
    fnv1a,
    shared_transform,
)

BAD = "invalid mapping destination: "
TOO_FEW = f"{BAD}not enough arguments passed to the function in "
TOO_MANY = f"{BAD}too many arguments passed to the function in "
BAD_ARGUMENT = f"{BAD}function argument is invalid or in the wrong format in "
OUT_OF_RANGE = f"{BAD}wildcard index out of range in "


@pytest.mark.parametrize(
    ("src", "dest", "subject", "wanted"),
    [
        ("a.*.*", "b.$2.$1", "a.x.y", "b.y.x"),
        ("a.*.*", "b.{{wildcard(2)}}.{{ Wildcard ( 1 ) }}", "a.x.y", "b.y.x"),
        ("a.*", "b.$0", "a.x", "b.a"),
        ("a.*", "b.$x.$", "a.x", "b.$x.$"),
        ("a.*", "b.a{{wildcard(1)}}", "a.x", "b.a{{wildcard(1)}}"),
        ("a.>", "b.>", "a.x.y", "b.x.y"),
        ("a.*.>", "b.$1.c.>", "a.x.y.z", "b.x.c.y.z"),
        (">", "b.>", "x.y", "b.x.y"),
        ("", "b.>", "x.y", "b.x.y"),
        (">", ">", "x.y", "x.y"),
        ("a", "b", "a", "b"),
        ("*.*", "{{partition(10,1,2)}}.x", "foo.bar", f"{fnv1a(b'foobar') % 10}.x"),
        ("*.*", "{{partition(10)}}.x", "foo.bar", f"{fnv1a(b'foo.bar') % 10}.x"),
        ("a", "{{partition(10,1)}}.x", "a", f"{fnv1a(b'a') % 10}.x"),
        ("*", "{{partition(0,1)}}", "foo", "0"),
        ("*", "{{partition(-3)}}", "foo", str(fnv1a(b"foo") % (2**32 - 3))),
        ("*", "{{split(1,-)}}", "-a--b-c-", "a.b.c"),
        ("*", "{{split(1,)}}", "abc", "a.b.c"),
        ("*", "{{splitFromLeft(1,3)}}", "abcdef", "abc.def"),
        ("*", "{{splitfromleft(1,9)}}", "abcdef", "abcdef"),
        ("*", "{{SplitFromRight(1,2)}}", "abcdef", "abcd.ef"),
        ("*", "{{sliceFromLeft(1,3)}}", "abcdefgh", "abc.def.gh"),
        ("*", "{{sliceFromLeft(1,2)}}", "abcd", "ab.cd"),
        ("*", "{{sliceFromRight(1,3)}}", "abcdefgh", "ab.cde.fgh"),
        ("*", "{{SliceFromRight(1,2)}}", "abcd", "ab.cd"),
        ("*", "{{left(1,3)}}", "abcdef", "abc"),
        ("*", "{{left(1,-3)}}", "abcdef", "abcdef"),
        ("*", "{{right(1,3)}}", "abcdef", "def"),
        ("*", "{{right(1,9)}}", "abcdef", "abcdef"),
        ("*", "{{left(1,2)}}", "äöü", "ä"),
        ("*", "{{random(1)}}", "x", "0"),
        ("*", "{{random(0)}}", "x", "0"),
    ],
)
def test_matching_subject_is_recreated(src: str, dest: str, subject: str, wanted: str) -> None:
    check_mapping(src, dest)
    assert Transform(src, dest).match(subject) == wanted


@pytest.mark.parametrize(
    ("src", "subject"),
    [
        ("a.*", "b.x"),
        ("a.*", "a"),
        ("a.*", "a.x.y"),
        ("a.>", "a"),
        ("a.*", "a.*"),
        (">", "a.>"),
        (">", "a..b"),
        ("a.*", "a."),
    ],
)
def test_unmatched_subject_is_unchanged(src: str, subject: str) -> None:
    assert Transform(src, "z.>" if ">" in src else "z").match(subject) is None


@pytest.mark.parametrize(
    ("src", "dest", "fault"),
    [
        ("a.*", "b.*", "invalid subject"),
        ("a.>", "b", "invalid subject"),
        ("a", "b.>", "invalid subject"),
        ("a..", "b", "invalid subject"),
        ("a", "b..c", f"{BAD}invalid transform"),
        ("a.>", "b.>.c", f"{BAD}invalid transform in c"),
        ("a", "b c", f"{BAD}invalid transform"),
        ("a", "b.$1", f"{OUT_OF_RANGE}$1"),
        ("a.*", "b.$2", f"{OUT_OF_RANGE}$2: [2]"),
        ("a.*", "b.{{left(2,1)}}", f"{OUT_OF_RANGE}{{{{left(2,1)}}}}: [2]"),
        ("a.*", "b.{{foo(1)}}", f"{BAD}unknown function in {{{{foo(1)}}}}"),
        ("a.*", "b.{{wildcard()}}", f"{TOO_FEW}{{{{wildcard()}}}}"),
        ("a.*", "b.{{wildcard(1,2)}}", f"{TOO_MANY}{{{{wildcard(1,2)}}}}"),
        ("a.*", "b.{{wildcard(x)}}", f"{BAD_ARGUMENT}{{{{wildcard(x)}}}}"),
        ("a.*", "b.{{left(1)}}", f"{TOO_FEW}{{{{left(1)}}}}"),
        ("a.*", "b.{{left(1,2,3)}}", f"{TOO_MANY}{{{{left(1,2,3)}}}}"),
        ("a.*", "b.{{left(1,x)}}", f"{BAD_ARGUMENT}{{{{left(1,x)}}}}"),
        ("a.*", "b.{{split(1)}}", f"{TOO_FEW}{{{{split(1)}}}}"),
        ("a.*", "b.{{split(1,-,-)}}", f"{TOO_MANY}{{{{split(1,-,-)}}}}"),
        ("a.*", "b.{{partition()}}", f"{BAD_ARGUMENT}{{{{partition()}}}}"),
        ("a.*", "b.{{partition(2147483648)}}", f"{BAD_ARGUMENT}{{{{partition(2147483648)}}}}"),
        ("a.*", "b.{{random(1,2)}}", f"{TOO_FEW}{{{{random(1,2)}}}}"),
    ],
)
def test_fault_has_words_of_reference(src: str, dest: str, fault: str) -> None:
    with pytest.raises(TransformFault) as caught:
        check_mapping(src, dest)
    assert str(caught.value) == fault


def test_no_destination_is_no_fault() -> None:
    check_mapping("a.*", "")


def test_imports_must_use_every_wildcard_and_nothing_else() -> None:
    assert Transform("a.*.*", "b.$2.$1", strict=True).match("a.x.y") == "b.y.x"
    with pytest.raises(TransformFault, match="not using all of the token wildcard"):
        Transform("a.*.*", "b.$1", strict=True)
    with pytest.raises(TransformFault, match="the only mapping function allowed"):
        Transform("a.*", "b.{{left(1,2)}}", strict=True)


def test_chance_comes_from_outside_and_turns_are_taken_without() -> None:
    drawn = Transform("*", "{{random(5)}}", draw=lambda ceiling: ceiling - 1)
    assert drawn.match("x") == "4"
    turns = Transform("*", "{{random(3)}}")
    assert [turns.match("x") for _ in range(4)] == ["0", "1", "2", "0"]


def test_tokens_that_are_no_unicode_survive() -> None:
    broken = b"ab\xffcd".decode(errors="surrogateescape")
    cut = Transform("*", "{{splitFromLeft(1,3)}}").match(broken)
    assert cut is not None
    assert cut.encode(errors="surrogateescape") == b"ab\xff.cd"


tokens = st.sampled_from(["a", "bb", "ccc"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(".".join)
patterns = st.lists(tokens | st.just("*"), min_size=1, max_size=4).map(".".join)


@given(patterns, st.booleans(), subjects)
def test_it_matches_what_subscription_would(pattern: str, open_end: bool, subject: str) -> None:
    src, dest = (f"{pattern}.>", "z.>") if open_end else (pattern, "z")
    assert (Transform(src, dest).match(subject) is not None) == match_literal(subject, src)


@given(st.lists(tokens, min_size=1, max_size=4), st.data())
def test_strict_transforms_are_invertible(parts: list[str], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(1, len(parts) + 1)))
    stars = ".".join("*" * len(parts))
    there = Transform(stars, ".".join(f"${index}" for index in order), strict=True)
    back = Transform(stars, ".".join(f"${order.index(i) + 1}" for i in range(1, len(parts) + 1)))
    subject = ".".join(parts)
    assert back.match(there.match(subject) or "") == subject


def test_equal_transforms_are_built_once_unless_they_draw_numbers() -> None:
    check_mapping("a.*", "b.$1")
    assert shared_transform("a.*", "b.$1") is shared_transform("a.*", "b.$1")
    drawing = shared_transform("a.*", "b.{{random(10)}}")
    assert drawing is not shared_transform("a.*", "b.{{random(10)}}")
