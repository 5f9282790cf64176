"""Marks with which configurations, requests and replies declare their fields.

A field is declared once: its type, its default, its description and its encoding. The JSON codec,
the update rules and the reference pages read the marks; msgspec treats them as metadata. Bounds are
not marks: each bound has its own error and is therefore a rule. Marks combine freely:
`Annotated[Int64, Doc("..."), EMIT]`. This module does not depend on JSON.
"""

from typing import Annotated, Final

from msgspec import Meta


def Doc(text: str) -> Meta:
    """Describe the field for the reference page."""
    return Meta(description=text)


def SINCE(level: int) -> Meta:
    """Name the API level that a server needs to know the field."""
    return Meta(extra={"since": level})


def _wire(kind: str) -> Meta:
    return Meta(extra={"wire": kind})


#: The field is written even when empty.
EMIT: Final = Meta(extra={"emit": True})
#: An update that changes the field is refused.
FIXED: Final = Meta(extra={"fixed": True})
#: The fields of the value are written in place of this field, without its name.
FLAT: Final = Meta(extra={"flat": True})

# Integer types of the reference: a value out of range is refused as a value of the wrong type.
Int32 = Annotated[int, _wire("int32")]
Int64 = Annotated[int, _wire("int64")]
UInt64 = Annotated[int, _wire("uint64")]
#: A duration in nanoseconds; a number in JSON.
Nanos = Annotated[int, _wire("time.Duration")]
#: Nanoseconds since 1970; RFC 3339 text in JSON. 0 means no time and is the year 1 in JSON.
Time = Annotated[int, _wire("time.Time")]
