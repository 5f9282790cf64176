"""Counters: a stream whose messages are increments and whose stored bodies are totals.

A publisher sends `Nats-Incr` without a body; the stream stores the running total of the subject,
`{"val":"13"}`. A message sourced from another counter stream carries a total, not an increment.
`Nats-Counter-Sources` records the last total of each origin, so that each difference is added
exactly once. Values are integers of at most DIGITS_MAX characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.api import refusals
from penstock.api.json_codec import encode_plain
from penstock.base.json_depth import check_nesting
from penstock.jetstream.streams import publish_headers
from penstock.store.contract import Cold, Missing
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.jetstream.streams.stream_state import Draft, PlanState

DIGITS_MAX: Final = 4_000
"""Length limit of a number; below the size at which Python refuses int/str conversion."""

_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_CLASHING: Final = (
    publish_headers.ROLLUP,
    publish_headers.EXPECTED_STREAM,
    publish_headers.EXPECTED_LAST_MSG_ID,
    publish_headers.EXPECTED_SUBJECT,
    publish_headers.EXPECTED_LAST_SEQ,
    publish_headers.EXPECTED_SUBJECT_SEQ,
)


class CounterValue(msgspec.Struct):
    """The body of a counter message."""

    val: str = ""


_VALUE: Final = msgspec.json.Decoder(CounterValue)
_SOURCES: Final = msgspec.json.Decoder(dict[str, dict[str, str]])


def number(text: bytes) -> int | None:
    """Parse an integer; None if it is invalid or longer than DIGITS_MAX."""
    if len(text) > DIGITS_MAX or not _NUMBER.fullmatch(text):
        return None
    return int(text)


def increment(plan_state: PlanState, draft: Draft) -> ApiError | None:
    """Check that the increment is a number, and that the message has no payload and no clashing
    header."""
    value = draft.fields.get(publish_headers.INCR)
    if not value:
        return None
    if number(value) is None:
        return refusals.MESSAGE_INCR_INVALID
    if draft.is_internal:
        return None
    if not plan_state.cfg.allow_msg_counter:
        return refusals.MESSAGE_INCR_DISABLED
    if draft.payload:
        return refusals.MESSAGE_INCR_PAYLOAD
    if any(draft.fields.get(key) for key in _CLASHING):
        return refusals.MESSAGE_INCR_INVALID
    return None


def count(plan_state: PlanState, draft: Draft) -> ApiError | Cold | None:
    """Add the increment to the total of its subject and store the total in the draft."""
    if not plan_state.cfg.allow_msg_counter:
        return None
    step = number(draft.fields.get(publish_headers.INCR, b""))
    if step is None:
        return refusals.MESSAGE_INCR_MISSING
    found = plan_state.latest(draft.subject)
    if isinstance(found, Cold):
        return found
    try:
        _add(draft, step, *((b"", b"") if isinstance(found, Missing) else found[-2:]))
    except (msgspec.DecodeError, ValueError):
        return refusals.MESSAGE_COUNTER_BROKEN
    if len(draft.value) > DIGITS_MAX:
        return refusals.MESSAGE_INCR_INVALID  # a longer total could not be read again
    if len(draft.header) + len(draft.payload) > plan_state.max_payload:
        return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
    return None


def _add(draft: Draft, step: int, header: bytes, payload: bytes) -> None:
    """Update the draft from the subject's last message; `header` and `payload` are empty if
    none."""
    check_nesting(payload)
    total = (number(_VALUE.decode(payload).val.encode()) or 0) if payload or header else 0
    listed = headers.get(header, publish_headers.COUNTER_SOURCES)
    check_nesting(listed or b"")
    sources = _SOURCES.decode(listed) if listed else {}
    origin = draft.fields.get(publish_headers.STREAM_SOURCE)
    if origin:
        step = _step_of_copy(draft, origin.decode("utf-8", "replace"), sources)
        draft.header = headers.replaced(draft.header, publish_headers.INCR, b"%d" % step)
    draft.value = str(total + step)
    draft.payload = b'{"val":"%b"}' % draft.value.encode()
    if sources:
        ordered = {name: dict(sorted(of.items())) for name, of in sorted(sources.items())}
        draft.header = headers.replaced(
            draft.header, publish_headers.COUNTER_SOURCES, encode_plain(ordered)
        )


def _step_of_copy(draft: Draft, origin: str, sources: dict[str, dict[str, str]]) -> int:
    """Return the origin's increase since the last sourced total; record the new total in
    `sources`."""
    parts = origin.split(" ")
    subject = parts[4] if len(parts) > 4 else draft.subject
    now = number(_VALUE.decode(draft.payload).val.encode()) or 0
    seen = sources.setdefault(parts[0], {})
    before = number(seen.get(subject, "").encode()) or 0
    seen[subject] = str(now)
    return now - before
