"""The demo: a server in this process, clients that talk through it, and what it remembers.

Prints what happens and ends with code 1 if anything is not as it should be.
"""

import asyncio
import sys
import tempfile
import time

import nats
from nats.aio.msg import Msg
from rich.console import Console
from rich.table import Table

import penstock

READINGS = 10_000
ORDERS = 100
console = Console()


async def temperature(request: Msg) -> None:
    """A service: answers with the temperature of the room asked for."""
    await request.respond(b"21.5 C in " + request.data)


async def talk(server: penstock.Server) -> tuple[dict[str, int], float, bytes]:
    """Core NATS: who heard how much, at what rate, and the answer to a request."""
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
    return rooms, rate, answer.data


async def persist(server: penstock.Server) -> None:
    """JetStream: orders in a stream, half of them done, and a setting in a bucket."""
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(ORDERS):
        await jetstream.publish("orders.new", b"order %d" % number)
    worker = await jetstream.pull_subscribe("orders.>", durable="kitchen")
    for order in await worker.fetch(ORDERS // 2, timeout=5):
        await order.ack_sync()
    settings = await jetstream.create_key_value(bucket="settings")
    await settings.put("colour", b"blue")
    await client.close()


async def resume(server: penstock.Server) -> tuple[int, list[bytes], bytes]:
    """What another server on the same directory has: messages, work left, the setting."""
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    stored = (await jetstream.stream_info("ORDERS")).state.messages
    worker = await jetstream.pull_subscribe("orders.>", durable="kitchen")
    left = [order.data for order in await worker.fetch(ORDERS, timeout=1)]
    settings = await jetstream.key_value("settings")
    colour = (await settings.get("colour")).value or b""
    await client.close()
    return stored, left, colour


async def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        async with penstock.Server(http_port=-1, jetstream=True, store_dir=directory) as server:
            ready_ms = 1000 * (time.perf_counter() - started)
            console.print(f"server ready in {ready_ms:.0f} ms at [bold]{server.url}[/]")
            console.print(f"monitoring at {server.monitor_url}/varz")
            rooms, rate, answer = await talk(server)
            await persist(server)
        console.print("server stopped; another one starts on the same directory")
        async with penstock.Server(jetstream=True, store_dir=directory) as server:
            stored, left, colour = await resume(server)

    table = Table(title="What happened")
    table.add_column("what")
    table.add_column("messages", justify="right")
    for subject, messages in sorted(rooms.items()):
        table.add_row(subject, f"{messages:,}")
    table.add_row("orders kept over the restart", f"{stored:,}")
    table.add_row("orders still to be done", f"{len(left):,}")
    console.print(table)
    console.print(f"{rate:,.0f} messages/s through nats-py; a request was answered: {answer!r}")
    console.print(f"the bucket still says that the colour is {colour.decode()}")
    is_right = (
        sum(rooms.values()) == READINGS
        and answer == b"21.5 C in hall"
        and stored == ORDERS
        and left == [b"order %d" % number for number in range(ORDERS // 2, ORDERS)]
        and colour == b"blue"
    )
    console.print("[green]all as it should be[/]" if is_right else "[red]wrong![/]")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
