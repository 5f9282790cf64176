"""Filter pushdown: query filters on subject, seq and timestamp that the server or the plan applies.

A filter that is understood narrows what is read. `is_exact` returns True for filters that every row
read satisfies: Spark shows those as pushed in its plan and evaluates the others itself. A filter
that is not understood costs time, never rows. No I/O: the caller resolves times to sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader

from penstock.spark.compat import (
    HAS_FILTERS,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from penstock.spark.message_rows import SEQ, SUBJECT, TIMESTAMP
from penstock.spark.read.start_positions import US_NS, time_ns
from penstock.subjects.match import match_literal
from penstock.subjects.tokens import ANY_TAIL, FORBIDDEN, SEPARATOR, WILDCARDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SUBJECTS_MAX: Final = 64
"""Spark evaluates a longer list of subjects itself."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What filters leave to be read: sequences from `first_seq` to `last_seq`, times from
    `first_ns` up to but excluding `stop_ns`, and subjects (None for all)."""

    first_seq: int = 1
    last_seq: int | None = None
    first_ns: int | None = None
    stop_ns: int | None = None
    subjects: tuple[str, ...] | None = None

    def subjects_within(self, filters: Sequence[str]) -> tuple[str, ...] | None:
        """Narrow the filters of the options to what the query wants; None if nothing is left."""
        if self.subjects is None:
            return tuple(filters)
        if not filters:
            return self.subjects or None
        if any(one.endswith(ANY_TAIL) for one in self.subjects):
            return tuple(filters)
        kept = [one for one in self.subjects if any(match_literal(one, two) for two in filters)]
        return tuple(kept) or None


def narrowed(filters: Iterable[Filter]) -> Narrowing:
    """Combine all filters."""
    found = Narrowing()
    for one in filters:
        if isinstance(one, EqualTo | In | StringStartsWith) and one.attribute == (SUBJECT,):
            found = _by_subject(found, one)
        elif getattr(one, "attribute", None) == (SEQ,):
            found = _by_seq(found, one)
        elif getattr(one, "attribute", None) == (TIMESTAMP,):
            found = _by_time(found, one)
    return found


def is_exact(one: Filter, found: Narrowing, options: Sequence[str]) -> bool:
    """Return True if every row read satisfies a filter; `options` is the list of the subjects
    option."""
    attribute = getattr(one, "attribute", None)
    if attribute == (SEQ,):
        is_bound = isinstance(
            one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        )
        return is_bound and isinstance(getattr(one, "value", None), int)
    if attribute != (SUBJECT,) or not isinstance(one, EqualTo | In | StringStartsWith):
        return False
    applied = _by_subject(Narrowing(), one).subjects
    if not applied or applied != found.subjects or not all(map(str.isascii, applied)):
        return False
    return not (options and isinstance(one, StringStartsWith))


def _by_subject(found: Narrowing, one: EqualTo | In | StringStartsWith) -> Narrowing:
    if found.subjects is not None:
        return found
    if isinstance(one, StringStartsWith):
        prefix = str(one.value)
        # Only whole tokens: "a.bc" starts with "a.b" too.
        wanted: tuple[str, ...] = (f"{prefix}{ANY_TAIL}",) if prefix.endswith(SEPARATOR) else ()
        if not wanted or not _is_literal(prefix.removesuffix(SEPARATOR)):
            return found
        return replace(found, subjects=wanted)
    values = [one.value] if isinstance(one, EqualTo) else list(one.value)
    literals = tuple(dict.fromkeys(str(value) for value in values if value is not None))
    if len(literals) > SUBJECTS_MAX or not all(map(_is_literal, literals)):
        return found
    return replace(found, subjects=literals)


def _is_literal(subject: str) -> bool:
    tokens = subject.split(SEPARATOR)
    return (
        "" not in tokens
        and WILDCARDS.isdisjoint(tokens)
        and FORBIDDEN.isdisjoint(subject)
        and "," not in subject
    )


def _by_seq(found: Narrowing, one: Filter) -> Narrowing:
    value: Any = getattr(one, "value", None)
    if not isinstance(value, int):
        return found
    first, last = found.first_seq, found.last_seq
    if isinstance(one, EqualTo | GreaterThanOrEqual):
        first = max(first, value)
    elif isinstance(one, GreaterThan):
        first = max(first, value + 1)
    if isinstance(one, EqualTo | LessThanOrEqual):
        last = value if last is None else min(last, value)
    elif isinstance(one, LessThan):
        last = value - 1 if last is None else min(last, value - 1)
    return replace(found, first_seq=first, last_seq=last)


def _by_time(found: Narrowing, one: Filter) -> Narrowing:
    value: Any = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return found
    start = time_ns(value)
    # The time of a row is truncated to microseconds: the message may be up to one microsecond
    # later.
    stop = start + US_NS
    if isinstance(one, EqualTo | GreaterThanOrEqual | GreaterThan):
        found = replace(found, first_ns=max(start, found.first_ns or 0))
    if isinstance(one, EqualTo | LessThanOrEqual | LessThan):
        found = replace(found, stop_ns=min(stop, found.stop_ns or stop))
    return found


class Pushing:
    """A reader's `pushFilters` that Spark treats as not overridden while filter pushdown is
    disabled.

    Spark then rejects a reader that overrides it, and does not pass the setting to the reader. To
    detect an override it reads `__func__`, as of a bound method.
    """

    def __init__(self, take: Callable[[list[Filter]], list[Filter]]) -> None:
        self._take = take
        if HAS_FILTERS:
            self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return the filters that Spark must still evaluate."""
        return self._take(filters)
