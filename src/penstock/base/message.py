"""A message as every layer passes it: what was published, before anybody stored or changed it.

A value without behaviour. `header` is the whole NATS/1.0 block as it came, with its status line
and final empty line, or empty bytes if there was none.
"""

from __future__ import annotations

from typing import NamedTuple


class Inbound(NamedTuple):
    """A message on its way in. An empty `reply` means that nobody waits for an answer."""

    subject: str
    reply: str
    header: bytes
    payload: bytes
