"""Messages as text and as documents. The shapes are the same in every command.

`data` is text if the payload is text, else base64; `encoding` says which. A payload shown to people
cannot drive their terminal.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from penstock.cli.output import printable, show_bytes, show_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.msg import Msg

    from penstock.cli.api_calls import FetchedMessage


def payload_document(data: bytes) -> dict[str, str]:
    """A payload in JSON."""
    try:
        return {"data": data.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode(), "encoding": "base64"}


def payload_text(data: bytes) -> str:
    """A payload for people."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"({show_bytes(len(data))} that are not text)"


def message_document(message: Msg) -> dict[str, Any]:
    """A message that was delivered."""
    return {
        "subject": message.subject,
        "reply": message.reply or "",
        "headers": dict(message.headers or {}),
        **payload_document(message.data),
    }


def stored_document(message: FetchedMessage) -> dict[str, Any]:
    """A message that a stream keeps."""
    return {
        "subject": message.subject,
        "seq": message.seq,
        "time": message.time,
        "headers": message.headers,
        **payload_document(message.data),
    }


def message_text(title: str, headers: Mapping[str, str] | None, data: bytes) -> str:
    """A title line, the headers, the payload, an empty line."""
    lines = [printable(title), *(printable(f"{k}: {v}") for k, v in (headers or {}).items())]
    if headers:
        lines.append("")
    return "\n".join([*lines, payload_text(data), ""])


def stored_text(message: FetchedMessage) -> str:
    """A stored message for people."""
    title = f"[{message.seq}] {message.subject} at {show_time(message.time)}"
    return message_text(title, message.headers, message.data)
