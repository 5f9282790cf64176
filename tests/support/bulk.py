"""A stream of a test's own, filled by nats-py, for what reads streams in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nats.js import JetStreamContext


class Made:
    """A stream with a name of its own, and its subjects under that name."""

    def __init__(self, name: str, jetstream: JetStreamContext) -> None:
        self.name = name
        self._jetstream = jetstream

    async def publish(self, subject: str, payload: bytes = b"", **more: Any) -> int:
        ack = await self._jetstream.publish(f"{self.name}.{subject}", payload, **more)
        return int(ack.seq)
