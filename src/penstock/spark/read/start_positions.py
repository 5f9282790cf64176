"""Parse the start and end of a read from the options: words, numbers, times, or JSON by stream.

No I/O. `StreamMetadata` resolves a place to a sequence: from the state of the stream, and for a
time with a request to the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MS_NS: Final = 1_000_000
US_NS: Final = 1_000
EARLIEST_WORD: Final = "earliest"
LATEST_WORD: Final = "latest"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message of the stream."""


@dataclass(frozen=True, slots=True)
class Latest:
    """After the last message of the stream."""


@dataclass(frozen=True, slots=True)
class AtSeq:
    """A sequence."""

    seq: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after a time."""

    time_ns: int


StartPosition = Earliest | Latest | AtSeq | AtTime


def places(
    streams: Sequence[str],
    *,
    seq: tuple[str, str],
    timestamp: tuple[str, str],
    default: StartPosition,
) -> dict[str, StartPosition]:
    """Return a place for each stream. `seq` and `timestamp` are pairs of option name and value."""
    if seq[1] and timestamp[1]:
        raise OptionError(f"give one of {seq[0]}, {timestamp[0]}, not both")
    if seq[1]:
        return _each(streams, seq, _seq_place, default)
    if timestamp[1]:
        return _each(streams, timestamp, _time_place, default)
    return dict.fromkeys(streams, default)


def _each(
    streams: Sequence[str],
    option: tuple[str, str],
    read: Callable[[str, Any], StartPosition],
    default: StartPosition,
) -> dict[str, StartPosition]:
    name, text = option
    if not text.lstrip().startswith("{"):
        return dict.fromkeys(streams, read(name, text.strip()))
    by_stream = _json(name, text)
    unknown = sorted(set(by_stream) - set(streams))
    if unknown:
        raise OptionError(f"option {name} names {', '.join(unknown)}, which stream does not")
    return {
        stream: read(name, by_stream[stream]) if stream in by_stream else default
        for stream in streams
    }


def _json(name: str, text: str) -> Mapping[str, Any]:
    try:
        value: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is no JSON: {error}") from None
    return value


def _seq_place(name: str, value: Any) -> StartPosition:
    text = str(value).lower()
    if text == EARLIEST_WORD:
        return Earliest()
    if text == LATEST_WORD:
        return Latest()
    if text.isascii() and text.isdigit():
        return AtSeq(int(text))
    raise OptionError(
        f"option {name}: expected earliest, latest, a number or JSON by stream, got {value!r}"
    )


def _time_place(name: str, value: Any) -> StartPosition:
    text = str(value)
    if text.isascii() and text.isdigit():
        return AtTime(int(text) * MS_NS)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"option {name}: expected ISO 8601, milliseconds since 1970 or JSON by stream, "
            f"got {value!r}"
        ) from None
    return AtTime(time_ns(time))


def time_ns(time: datetime) -> int:
    """Return nanoseconds since 1970; a time without a zone is in UTC."""
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * US_NS
