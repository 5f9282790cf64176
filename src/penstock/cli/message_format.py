"""Messages as text and as documents, in the same format in every command.

`data` is text if the payload is text, else base64; `encoding` names the format. A payload shown on
a terminal cannot control it.
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
    """Return a payload as JSON fields."""
    try:
        return {"data": data.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode(), "encoding": "base64"}


def payload_text(data: bytes) -> str:
    """Return a payload as text for display."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"({show_bytes(len(data))} that are not text)"


def message_document(message: Msg) -> dict[str, Any]:
    """Return a delivered message as a document."""
    return {
        "subject": message.subject,
        "reply": message.reply or "",
        "headers": dict(message.headers or {}),
        **payload_document(message.data),
    }


def stored_document(message: FetchedMessage) -> dict[str, Any]:
    """Return a stored message as a document."""
    return {
        "subject": message.subject,
        "seq": message.seq,
        "time": message.time,
        "headers": message.headers,
        **payload_document(message.data),
    }


def message_text(title: str, headers: Mapping[str, str] | None, data: bytes) -> str:
    """Return a title line, the headers, the payload and an empty line."""
    lines = [printable(title), *(printable(f"{k}: {v}") for k, v in (headers or {}).items())]
    if headers:
        lines.append("")
    return "\n".join([*lines, payload_text(data), ""])


def stored_text(message: FetchedMessage) -> str:
    """Return a stored message as text for display."""
    title = f"[{message.seq}] {message.subject} at {show_time(message.time)}"
    return message_text(title, message.headers, message.data)
