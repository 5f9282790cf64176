"""What tests of the jobs share: streams with messages, and what is in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats

from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from support.servers import ServerUnderTest


def url_of(server: ServerUnderTest) -> str:
    return f"nats://127.0.0.1:{server.port}"


async def _publish(url: str, stream: str, first: int, last: int, config: dict[str, Any]) -> None:
    client = await nats.connect(url)
    context = client.jetstream()
    if config.pop("make", True):
        await context.add_stream(name=stream, subjects=[f"{stream}.>"], **config)
    for n in range(first, last + 1):
        headers = {"N": str(n)} if n % 10 == 0 else None
        await client.publish(f"{stream}.{n % 3}.x", b"message %d" % n, headers=headers)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await context.stream_info(stream)).state.last_seq < last:
            await client.flush()
    await client.close()


def fill(server: ServerUnderTest, stream: str, first: int, last: int, **config: Any) -> None:
    """Publish messages `first` to `last`, each saying its number; makes the stream with 1."""
    config.setdefault("make", first == 1)
    asyncio.run(_publish(url_of(server), stream, first, last, config))


def tell(server: ServerUnderTest, ask: Any) -> Any:
    """What a coroutine that is given a JetStream context answers."""

    async def run() -> Any:
        client = await nats.connect(url_of(server))
        try:
            context: JetStreamContext = client.jetstream()
            return await ask(context)
        finally:
            await client.close()

    return asyncio.run(run())
