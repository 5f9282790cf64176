"""Republish: publishes stored messages again, on another subject and with their stream position.

The copy keeps the stored header and adds stream, subject, sequence and time; with `headers_only`
the body is omitted and its size stated instead. If the target subject is invalid, no copy is sent;
the message is still stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.timestamps import format_time
from penstock.base.effects import Send
from penstock.subjects.tokens import is_valid_literal
from penstock.subjects.transform import Transform

if TYPE_CHECKING:
    from penstock.api.stream_config import Republish


class Republisher:
    """Builds the copies for one stream."""

    def __init__(self, stream: str, cfg: Republish) -> None:
        self._stream = stream.encode()
        self._transform = Transform(cfg.src, cfg.dest)
        self._headers_only = cfg.headers_only

    def destination(self, subject: str) -> str:
        """Return the target subject for messages of this subject; empty if there is none."""
        to = self._transform.match(subject)
        return to if to and is_valid_literal(to) else ""

    def copy(
        self,
        to: str,
        subject: str,
        header: bytes,
        payload: bytes,
        *,
        seq: int,
        ts_ns: int,
        previous_seq: int,
    ) -> Send:
        """Return the copy of a stored message; `previous_seq` is the subject's sequence before it,
        or 0."""
        lines = (
            b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n"
            b"Nats-Time-Stamp: %b\r\nNats-Last-Sequence: %d\r\n"
        ) % (
            self._stream,
            subject.encode("utf-8", "surrogateescape"),
            seq,
            format_time(ts_ns).encode(),
            previous_seq,
        )
        start = header[:-2] if header else b"NATS/1.0\r\n"
        if self._headers_only:
            size = b"Nats-Msg-Size: %d\r\n\r\n" % len(payload)
            return Send(to, b"", start + lines + size)
        return Send(to, payload, start + lines + b"\r\n")
