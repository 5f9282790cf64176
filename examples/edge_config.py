"""Local configuration replicas: two nodes read limits from their own disks, even without a server.

    python examples/edge_config.py

A control plane writes limits to a bucket. Node 1 folds them into SQLite and keeps a parsed copy for
its hot path. The server stops and the node continues to serve; the server restarts and the node
catches up by itself. Node 2 is new: it starts from the artifact that node 1 published. At the end
the digests prove that both hold the same data.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import penstock
from penstock.fold import Fold, FoldDigest, KvUpdate, Op, artifact_at, transport_for
from penstock.kv import BucketConfig, NatsConfig, NatsConnection

BUCKET = "limits"
CUSTOMERS = 1_000


class Limits:
    """Limits by customer for a request handler, parsed once per change."""

    def __init__(self) -> None:
        self.by_customer: dict[str, int] = {}

    @staticmethod
    def parse(update: KvUpdate) -> tuple[str, int | None]:
        """Parse an update; raises for an invalid value, which is logged, kept in the fold, and
        skipped here."""
        value = json.loads(update.value)["limit"] if update.op is Op.PUT else None
        return update.key, value

    def apply(self, batch: list[tuple[str, int | None]]) -> None:
        for key, limit in batch:
            if limit is None:
                self.by_customer.pop(key, None)
            else:
                self.by_customer[key] = limit


def server(directory: Path, port: int = -1) -> penstock.Server:
    options = penstock.Options(
        host="127.0.0.1", port=port, jetstream=True, store_dir=str(directory / "server")
    )
    return penstock.Server(options)


async def write(url: str, limits: dict[str, int]) -> int:
    """Write as the control plane does; return the revision of the last write."""
    async with NatsConnection(NatsConfig.of(url)) as connection:
        writer = (await connection.bucket(BUCKET, BucketConfig())).writer()
        for customer, limit in limits.items():
            version = await writer.put(
                f"customer.{customer}", json.dumps({"limit": limit}).encode()
            )
    assert version.revision is not None
    return version.revision


def node(url: str, path: Path, **settings: Any) -> Fold:
    return Fold.open(f"{url}/{BUCKET}", path, heartbeat=1.0, **settings)


async def main(directory: Path) -> None:
    limits, digests = Limits(), (FoldDigest(), FoldDigest())
    first = server(directory)
    await first.start()
    url, port = first.url, int(first.url.rpartition(":")[2])
    last = await write(url, {str(number): number for number in range(CUSTOMERS)})

    async with node(
        url,
        directory / "node-1.db",
        parse=Limits.parse,
        apply=limits.apply,
        extensions=[digests[0]],
    ) as one:
        await one.wait_for(last)
        seven = limits.by_customer["customer.7"]
        print(f"node 1 has {one.count():,} limits; customer 7 may do {seven}")

        await first.stop()
        print(f"the server is away; node 1 still says {limits.by_customer['customer.7']}")

        async with server(directory, port):
            last = await write(url, {"7": 70})
            await one.wait_for(last)
            print(f"the server is back; node 1 now says {limits.by_customer['customer.7']}")

            await one.export_to(directory / "artifact", form="append-log")
            place = str(directory / "published")
            await transport_for(place).upload(BUCKET, directory / "artifact")
            last = await write(url, {"8": 80})
            source = artifact_at(f"{place}/{BUCKET}")
            async with node(
                url,
                directory / "node-2",
                backend="append-log",
                bootstrap=source,
                extensions=[digests[1]],
            ) as two:
                await asyncio.gather(one.wait_for(last), two.wait_for(last))
                print(f"node 2 began with an artifact and is at revision {two.cursor.rank}, too")
            assert digests[0].report().digest == digests[1].report().digest
            print("both hold the same")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
