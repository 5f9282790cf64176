"""Filters narrow what is read, and never by too much."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.spark.read.filter_pushdown import Narrowing, Pushing, is_exact, narrowed

SUBJECT, SEQ, TIME = ("subject",), ("seq",), ("timestamp",)
DAY = datetime(1970, 1, 2, tzinfo=UTC)
DAY_NS = 86_400_000_000_000


def test_sequences_are_tightest_of_all() -> None:
    filters = [GreaterThan(SEQ, 4), GreaterThanOrEqual(SEQ, 3), LessThan(SEQ, 10)]
    found = narrowed([*filters, LessThanOrEqual(SEQ, 20)])
    assert (found.first_seq, found.last_seq) == (5, 9)
    assert narrowed([EqualTo(SEQ, 7)]) == Narrowing(first_seq=7, last_seq=7)


def test_times_allow_for_what_was_cut_off() -> None:
    found = narrowed([GreaterThan(TIME, DAY), LessThanOrEqual(TIME, DAY)])
    assert (found.first_ns, found.stop_ns) == (DAY_NS, DAY_NS + 1000)


def test_subjects_become_filters() -> None:
    assert narrowed([EqualTo(SUBJECT, "a.b")]).subjects_within([]) == ("a.b",)
    assert narrowed([In(SUBJECT, ("a.b", "a.c"))]).subjects_within([]) == ("a.b", "a.c")
    assert narrowed([StringStartsWith(SUBJECT, "a.")]).subjects_within([]) == ("a.>",)


def test_subjects_stay_within_options() -> None:
    found = narrowed([In(SUBJECT, ("a.b", "c.d"))])
    assert found.subjects_within(["a.*"]) == ("a.b",)
    assert found.subjects_within(["x.>"]) is None
    assert narrowed([StringStartsWith(SUBJECT, "a.")]).subjects_within(["a.*"]) == ("a.*",)
    assert Narrowing().subjects_within(["a.*"]) == ("a.*",)


def test_unknown_filters_narrow_nothing() -> None:
    unknown: list[Filter] = [
        Not(EqualTo(SEQ, 1)),
        StringStartsWith(SUBJECT, "a.b"),
        EqualTo(SUBJECT, "a.*"),
        EqualTo(SUBJECT, ""),
        EqualTo(("data",), b"x"),
        EqualTo(("headers", "seq"), 5),
        EqualTo(SEQ, None),
        In(SUBJECT, tuple(f"s{number}" for number in range(1000))),
    ]
    assert narrowed(unknown) == Narrowing()


def test_spark_takes_override_for_absent() -> None:
    pushing = Pushing(lambda filters: filters[1:])
    assert pushing.__func__ is DataSourceReader.pushFilters
    filters: list[Filter] = [EqualTo(SEQ, 1), EqualTo(SEQ, 2)]
    assert list(pushing(filters)) == filters[1:]


def exact(filters: list[Filter], options: tuple[str, ...] = ()) -> list[bool]:
    found = narrowed(filters)
    return [is_exact(one, found, options) for one in filters]


def test_filters_that_hold_for_every_row_read_are_exact() -> None:
    assert exact([EqualTo(SEQ, 7), GreaterThan(SEQ, 1), EqualTo(SUBJECT, "a.b")]) == [True] * 3
    assert exact([In(SUBJECT, ("a", "b"))], ("a",)) == [True]
    assert exact([StringStartsWith(SUBJECT, "a.")]) == [True]


def test_filters_that_spark_must_evaluate_are_not_exact() -> None:
    assert exact([GreaterThan(TIME, DAY), Not(EqualTo(SEQ, 1))]) == [False, False]
    assert exact([StringStartsWith(SUBJECT, "a."), EqualTo(SUBJECT, "a.b")]) == [True, False]
    assert exact([StringStartsWith(SUBJECT, "a.")], ("a.*",)) == [False]
    assert exact([EqualTo(SUBJECT, "a.ü"), EqualTo(("headers", "seq"), 5)]) == [False, False]
