"""Inbound: a published message as every layer passes it, before it is stored or changed.

A value without behaviour. `header` is the whole NATS/1.0 block as received, with its status line
and final empty line, or empty bytes if there is none.
"""

from __future__ import annotations

from typing import NamedTuple


class Inbound(NamedTuple):
    """A published message. An empty `reply` means that the publisher expects no reply."""

    subject: str
    reply: str
    header: bytes
    payload: bytes
