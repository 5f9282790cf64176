"""Publish acks and errors, byte for byte as the reference writes them.

Clients compare some of these as text, so the blank in `"duplicate": true` and the order of fields
are part of the protocol. An ack is the stream's prefix and a sequence. The planner and the applier
decide which reply a publisher gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.json_codec import encode_plain
from penstock.base.text import go_quoted as quoted_text

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError


def go_quoted(text: str) -> bytes:
    """Return text in double quotes as Go writes it, which differs slightly from JSON."""
    return quoted_text(text).encode(errors="replace")


def error_json(error: ApiError) -> bytes:
    """Return the JSON object of an error, as contained in every reply."""
    return b'{"code":%d,"err_code":%d,"description":%b}' % (
        error.code,
        error.err_code,
        encode_plain(error.description),
    )


class PubAcks:
    """The replies of one stream to its publishers."""

    def __init__(self, stream: str, domain: str = "") -> None:
        where = b',"domain":%b' % go_quoted(domain) if domain else b""
        self.prefix: Final = b'{"stream":%b%b,"seq":' % (go_quoted(stream), where)
        self._refused: Final = b',"stream":%b,"seq":0}' % encode_plain(stream)

    def stored(self, seq: int) -> bytes:
        """Return the ack of a message stored under this sequence."""
        return b"%b%d}" % (self.prefix, seq)

    def duplicate(self, seq: int) -> bytes:
        """Return the ack of a duplicate; a message with the same id has this sequence."""
        return b'%b%d,"duplicate": true}' % (self.prefix, seq)

    def counted(self, seq: int, value: str) -> bytes:
        """Return the ack of a counter increment, with the new total."""
        return b'%b%d,"val":%b}' % (self.prefix, seq, go_quoted(value))

    def committed(self, seq: int, batch_id: str, count: int) -> bytes:
        """Return the ack of a batch whose last message has this sequence."""
        return b'%b%d,"batch":%b,"count":%d}' % (self.prefix, seq, go_quoted(batch_id), count)

    def duplicate_batch(self, seq: int, batch_id: str, count: int) -> bytes:
        """Return the ack of a batch whose only message is a duplicate."""
        return b'%b%d,"duplicate": true,"batch":%b,"count":%d}' % (
            self.prefix,
            seq,
            go_quoted(batch_id),
            count,
        )

    def refused(self, error: ApiError) -> bytes:
        """Return the reply for a message that was not stored."""
        return b'{"error":%b%b' % (error_json(error), self._refused)
