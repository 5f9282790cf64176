"""X.509 names as the text users are called by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.auth.x509_names import SUBJECT_ORDER, format_subject, parse_name

VALUE = st.text(alphabet='ab ,+"\\<>;#=é', min_size=1, max_size=8).filter(
    lambda v: v.strip(" ") != ""
)


def test_subject_is_written_in_fixed_order_with_equal_types_joined() -> None:
    attributes = [("C", "DE"), ("O", "Acme, Inc"), ("OU", "x"), ("OU", "y"), ("CN", "alice")]
    assert format_subject(attributes) == r"CN=alice,OU=x+OU=y,O=Acme\, Inc,C=DE"


def test_attribute_types_without_short_name_are_left_out() -> None:
    assert format_subject([("DC", "org"), ("CN", "bob"), ("1.2.3", "x")]) == "CN=bob"


def test_last_common_name_counts() -> None:
    assert format_subject([("CN", "a"), ("CN", "b")]) == "CN=b"


@pytest.mark.parametrize(
    ("value", "written"),
    [("a,b", r"a\,b"), (" a", r"\ a"), ("a ", r"a\ "), ("#a", r"\#a"), ("a#", "a#"), (" ", r"\ ")],
)
def test_ambiguous_text_is_escaped(value: str, written: str) -> None:
    assert format_subject([("CN", value)]) == f"CN={written}"


@given(st.dictionaries(st.sampled_from(SUBJECT_ORDER), VALUE, min_size=1))
def test_written_subject_is_read_back(attributes: dict[str, str]) -> None:
    parsed = parse_name(format_subject(attributes.items()))
    assert parsed is not None
    assert {pair for part in parsed for pair in part} == set(attributes.items())


def test_blanks_and_case_of_types_do_not_matter() -> None:
    assert parse_name("cn=alice , OU=x") == parse_name("CN=alice,ou=x")


def test_attribute_types_may_be_written_as_numbers() -> None:
    assert parse_name("2.5.4.3=alice") == parse_name("CN=alice")


def test_escapes_may_be_hexadecimal() -> None:
    assert parse_name(r"CN=Lu\C4\8Di\C4\87") == (frozenset({("CN", "Lučić")}),)


@pytest.mark.parametrize("text", ["", "alice", "a,b", "CN=a,b", "=x", "CN=a\\", "CN=a+CN=a"])
def test_text_that_is_no_name_gives_none(text: str) -> None:
    assert parse_name(text) is None


@given(st.text(max_size=30))
def test_reading_name_never_raises(text: str) -> None:
    parse_name(text)
