"""The demo: a server in this process, and two clients that talk through it.

Prints what happens and ends with code 1 if anything is not as it should be.
"""

import asyncio
import sys
import time

import nats
from nats.aio.msg import Msg
from rich.console import Console
from rich.table import Table

import penstock

READINGS = 10_000
console = Console()


async def temperature(request: Msg) -> None:
    """A service: answers with the temperature of the room asked for."""
    await request.respond(b"21.5 C in " + request.data)


async def main() -> int:
    started = time.perf_counter()
    async with penstock.Server(http_port=-1) as server:
        ready_ms = 1000 * (time.perf_counter() - started)
        console.print(f"server ready in {ready_ms:.0f} ms at [bold]{server.url}[/]")
        console.print(f"monitoring at {server.monitor_url}/varz")
        publisher, subscriber = await nats.connect(server.url), await nats.connect(server.url)

        rooms: dict[str, int] = {}
        everything = asyncio.Event()

        async def count(reading: Msg) -> None:
            rooms[reading.subject] = rooms.get(reading.subject, 0) + 1
            if sum(rooms.values()) == READINGS:
                everything.set()

        await subscriber.subscribe("sensors.*.temperature", cb=count)
        await subscriber.subscribe("services.temperature", cb=temperature)
        await subscriber.flush()

        began = time.perf_counter()
        for number in range(READINGS):
            room = ("kitchen", "hall", "cellar")[number % 3]
            await publisher.publish(f"sensors.{room}.temperature", b"21.5")
        await asyncio.wait_for(everything.wait(), 30)
        rate = READINGS / (time.perf_counter() - began)

        answer = await publisher.request("services.temperature", b"hall", timeout=5)
        await publisher.drain()
        await subscriber.drain()

    table = Table(title="What happened")
    table.add_column("subject")
    table.add_column("messages", justify="right")
    for subject, messages in sorted(rooms.items()):
        table.add_row(subject, f"{messages:,}")
    console.print(table)
    console.print(
        f"{rate:,.0f} messages/s through nats-py; a request was answered: {answer.data!r}"
    )
    delivered = sum(rooms.values()) == READINGS
    answered = answer.data == b"21.5 C in hall"
    console.print("[green]all as it should be[/]" if delivered and answered else "[red]wrong![/]")
    return 0 if delivered and answered else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
