"""Cron patterns of six fields: second, minute, hour, day of month, month, day of week.

A field is a list of numbers, names, ranges and steps; `*` and `?` match everything. If day of month
or day of week is open, a day must match both; if both are restricted, one match is enough. An hour
that a time change skips has no times; an hour that it repeats has them twice. The parser accepts
exactly what Go's widely used cron parser accepts.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

YEARS_AHEAD: Final = 5
"""The search for the next time stops after this many years."""

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_DAYS: Final = {
    name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
}
_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}")
_NO_NAMES: Final[Mapping[str, int]] = {}
_FIELDS: Final[tuple[tuple[int, int, Mapping[str, int]], ...]] = (
    (0, 59, _NO_NAMES),
    (0, 59, _NO_NAMES),
    (0, 23, _NO_NAMES),
    (1, 31, _NO_NAMES),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)


class Field(NamedTuple):
    """The values of a field, and whether it is open (`*` or `?`)."""

    values: frozenset[int]
    is_open: bool


class Cron(NamedTuple):
    """A parsed pattern."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field


def parse_cron(pattern: str) -> Cron | None:
    """Parse a pattern; None if it is invalid."""
    texts = pattern.split()
    if len(texts) != len(_FIELDS):
        return None
    try:
        return Cron(*(_field(text, *bounds) for text, bounds in zip(texts, _FIELDS, strict=True)))
    except ValueError:
        return None


def _field(text: str, least: int, most: int, names: Mapping[str, int]) -> Field:
    values: set[int] = set()
    is_open = False
    for part in filter(None, text.split(",")):
        span, is_whole = _span(part, least, most, names)
        values.update(span)
        is_open = is_open or is_whole
    return Field(frozenset(values), is_open)


def _span(part: str, least: int, most: int, names: Mapping[str, int]) -> tuple[range, bool]:
    """Return the values of one list item, and whether it is open. ValueError if it is invalid."""
    body, *steps = part.split("/")
    low, *highs = body.split("-")
    step = _number(steps[0]) if steps else 1
    is_any = low in ("*", "?")
    if len(steps) > 1 or (len(highs) > 1 and not is_any) or step == 0:
        raise ValueError(part)
    if is_any:
        first, last = least, most
    else:
        first = _named(low, names)
        last = _named(highs[0], names) if highs else first
    if steps and not highs:
        last = most
    if not least <= first <= last <= most:
        raise ValueError(part)
    return range(first, last + 1, step), is_any and step == 1


def _named(text: str, names: Mapping[str, int]) -> int:
    known = names.get(text.lower())
    return _number(text) if known is None else known


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def next_fire(cron: Cron, after: datetime) -> datetime | None:
    """Return the pattern's first time after `after`, in its zone, to the second; None if there is
    none."""
    start = after.replace(microsecond=0).astimezone(UTC) + timedelta(seconds=1)
    begin = start.astimezone(after.tzinfo)
    day = begin.date()
    year_max = day.year + YEARS_AHEAD
    while day.year <= year_max:
        if day.month not in cron.month.values:
            day = _next_month(day)
        else:
            found = _within(cron, day, begin) if _day_matches(cron, day) else None
            if found is not None:
                return found
            day += timedelta(days=1)
    return None


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _day_matches(cron: Cron, day: date) -> bool:
    by_month = day.day in cron.day.values
    by_week = day.isoweekday() % 7 in cron.weekday.values
    if cron.day.is_open or cron.weekday.is_open:
        return by_month and by_week
    return by_month or by_week


def _within(cron: Cron, day: date, begin: datetime) -> datetime | None:
    """Return the first matching time of a day, not before `begin`."""
    zone = begin.tzinfo
    assert zone is not None
    at = (begin if begin.date() == day else _midnight(day, zone)).astimezone(UTC)
    while (local := at.astimezone(zone)).date() <= day:
        # Add to the UTC hour instead of setting local fields: the local hour may occur twice.
        hour = at - timedelta(minutes=local.minute, seconds=local.second)
        if local.hour in cron.hour.values and local.date() == day:
            found = _within_hour(cron, local)
            if found is not None:
                return (hour + found).astimezone(zone)
        at = hour + timedelta(hours=1)
    return None


def _midnight(day: date, zone: tzinfo) -> datetime:
    naive = datetime(day.year, day.month, day.day, tzinfo=zone)
    return naive.astimezone(UTC).astimezone(zone)


def _within_hour(cron: Cron, since: datetime) -> timedelta | None:
    for minute in sorted(cron.minute.values):
        if minute < since.minute:
            continue
        floor = since.second if minute == since.minute else 0
        second = min((value for value in cron.second.values if value >= floor), default=None)
        if second is not None:
            return timedelta(minutes=minute, seconds=second)
    return None
