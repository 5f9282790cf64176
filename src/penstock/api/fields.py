"""The vocabulary in which configurations, requests and answers declare their fields.

A field is declared once: its type, its default, its prose and how it travels. The codec, the
rules of updates and the reference pages read these marks; msgspec sees them as metadata only.
Bounds are no marks: each has an error of its own, so it is a rule. Marks may be combined freely,
`Annotated[Int64, Doc("..."), EMIT]`. Nothing here knows JSON.
"""

from typing import Annotated, Final

from msgspec import Meta


def Doc(text: str) -> Meta:
    """What the field means, for the reference page."""
    return Meta(description=text)


def SINCE(level: int) -> Meta:
    """The API level a server must have to know the field."""
    return Meta(extra={"since": level})


def _wire(kind: str) -> Meta:
    return Meta(extra={"wire": kind})


#: Written even when empty.
EMIT: Final = Meta(extra={"emit": True})
#: An update that changes it is refused.
FIXED: Final = Meta(extra={"fixed": True})
#: The fields of the value stand in place of the field, under no name of their own.
FLAT: Final = Meta(extra={"flat": True})

# Whole numbers as the reference keeps them: one that does not fit is refused as of a wrong type.
Int32 = Annotated[int, _wire("int32")]
Int64 = Annotated[int, _wire("int64")]
UInt64 = Annotated[int, _wire("uint64")]
#: A duration: nanoseconds, a plain number in JSON.
Nanos = Annotated[int, _wire("time.Duration")]
#: Nanoseconds since 1970, RFC 3339 text in JSON. 0 is no time at all: the year 1 in JSON.
Time = Annotated[int, _wire("time.Time")]
