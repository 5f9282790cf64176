"""The error texts with which a trace reports that a stream refuses a message, as in the reference.

Most are the text of the refusal and its code. Some differ from what the publisher gets, and include
the expected value. `traced_publish` calls this for refused and duplicate messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.base.text import go_quoted
from penstock.jetstream.streams import publish_headers
from penstock.server.system.message_trace import DUPLICATE, TOO_LARGE
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.jetstream.streams.entries import Answer

_SIZE: Final = refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code
_TTL_INVALID: Final = refusals.MESSAGE_TTL_INVALID.err_code
_WRONG_LAST_MSG_ID: Final = refusals.STREAM_WRONG_LAST_MSG_ID.err_code
_WRONG_LAST_SEQ: Final = refusals.STREAM_WRONG_LAST_SEQUENCE.err_code
_STORE_FAILED: Final = refusals.STREAM_STORE_FAILED.err_code
_WITHOUT_CODE: Final = (
    refusals.STREAM_NOT_MATCH.err_code,
    _STORE_FAILED,
    refusals.STREAM_ROLLUP_FAILED.err_code,
)
_OTHER_WORDS: Final = {
    refusals.MESSAGE_TTL_DISABLED.err_code: "message TTL disabled",
    refusals.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.err_code: DUPLICATE,
}
_NO_NUMBER: Final = 2**64 - 1
"""The value that the reference uses for a header that is not a number."""


def trace_error(answer: Answer, header: bytes, batched_in: str) -> tuple[str, bool]:
    """Return the error, and whether the store detects it: the event then includes the subject.

    `batched_in` is account and stream for a message of a batch, else empty.
    """
    refusal = answer.refusal
    if refusal is None:
        return DUPLICATE, False
    code, text = refusal.err_code, refusal.description
    is_of_store = not batched_in and code in (_STORE_FAILED, _TTL_INVALID)
    header = answer.at_fault or header
    if code == _SIZE:
        over = f"JetStream message size exceeds limits for '{batched_in}'"
        return over if batched_in else TOO_LARGE, is_of_store
    if code == _WRONG_LAST_SEQ:
        return _wrong_sequence(header, text), is_of_store
    if code == _WRONG_LAST_MSG_ID:
        wanted = headers.get(header, publish_headers.EXPECTED_LAST_MSG_ID) or b""
        actual = text.partition(": ")[2]
        shown = f"{go_quoted(_text(wanted))} vs {go_quoted(actual)}"
        return f"last msgid mismatch: {shown}", is_of_store
    if code in _WITHOUT_CODE:
        return text, is_of_store
    return _OTHER_WORDS.get(code, f"{text} ({code})"), is_of_store


def _wrong_sequence(header: bytes, text: str) -> str:
    actual = text.partition(": ")[2]
    of_stream = headers.get(header, publish_headers.EXPECTED_LAST_SEQ)
    if of_stream is not None and _number(of_stream) != actual:
        return f"last sequence mismatch: {_number(of_stream)} vs {actual}"
    of_subject = headers.get(header, publish_headers.EXPECTED_SUBJECT_SEQ) or b""
    return f"last sequence by subject mismatch: {_number(of_subject)} vs {actual}"


def _number(value: bytes) -> str:
    return str(int(value)) if value.isdigit() else str(_NO_NUMBER)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
