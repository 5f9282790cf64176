"""Answers to publishers, byte for byte as the reference writes them.

Clients compare some of these as text, so the blank in `"duplicate": true` and the order of fields
are part of the protocol. An acknowledgement is the stream's prefix and a sequence; nothing here
decides who gets which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.json_codec import encode_plain
from penstock.base.text import go_quoted as quoted_text

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError


def go_quoted(text: str) -> bytes:
    """Text in double quotes as Go writes it, which is not quite how JSON would."""
    return quoted_text(text).encode(errors="replace")


def error_json(error: ApiError) -> bytes:
    """The object that stands for a refusal in every answer."""
    return b'{"code":%d,"err_code":%d,"description":%b}' % (
        error.code,
        error.err_code,
        encode_plain(error.description),
    )


class PubAcks:
    """What one stream says to its publishers."""

    def __init__(self, stream: str, domain: str = "") -> None:
        where = b',"domain":%b' % go_quoted(domain) if domain else b""
        self.prefix: Final = b'{"stream":%b%b,"seq":' % (go_quoted(stream), where)
        self._refused: Final = b',"stream":%b,"seq":0}' % encode_plain(stream)

    def stored(self, seq: int) -> bytes:
        """The message has this sequence."""
        return b"%b%d}" % (self.prefix, seq)

    def duplicate(self, seq: int) -> bytes:
        """A message with the same id has this sequence."""
        return b'%b%d,"duplicate": true}' % (self.prefix, seq)

    def counted(self, seq: int, value: str) -> bytes:
        """The increment has this sequence, the counter now this value."""
        return b'%b%d,"val":%b}' % (self.prefix, seq, go_quoted(value))

    def committed(self, seq: int, batch_id: str, count: int) -> bytes:
        """The batch was stored, its last message under this sequence."""
        return b'%b%d,"batch":%b,"count":%d}' % (self.prefix, seq, go_quoted(batch_id), count)

    def duplicate_batch(self, seq: int, batch_id: str, count: int) -> bytes:
        """The only message of a batch is a duplicate."""
        return b'%b%d,"duplicate": true,"batch":%b,"count":%d}' % (
            self.prefix,
            seq,
            go_quoted(batch_id),
            count,
        )

    def refused(self, error: ApiError) -> bytes:
        """The message was not stored."""
        return b'{"error":%b%b' % (error_json(error), self._refused)
