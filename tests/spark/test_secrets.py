"""Secrets in options are in no plan, event log, UI page, checkpoint, report or error.

The exception is Spark's own: it logs the options of `CREATE TABLE` before it asks a source. Such
statements are refused, and leave no table.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base import nkeys
from support.spark_sinks import make_stream, with_client

if TYPE_CHECKING:
    from nats.aio.client import Client

    from support.servers import ServerUnderTest

PROGRAM = Path(__file__).with_name("secrets_program.py")
SECONDS = 600
OF_TABLES = "ddl-4711"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


def test_secrets_are_shown_nowhere(server: ServerUnderTest, tmp_path: Path) -> None:
    """A program of its own, since event logs and the UI are settings of a session."""
    assert nkeys.public_from_seed(SEED)
    make_stream(server, "EV")
    make_stream(server, "OUT")

    async def fill(client: Client) -> None:
        for n in range(3):
            await client.jetstream().publish(f"EV.{n}", b"x")

    with_client(server, fill)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), server.url, str(tmp_path), SEED],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "every way was tried" in done.stdout
    shown = {"stdout": done.stdout, "stderr": done.stderr}
    shown |= {str(p): p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file()}
    assert any("events" in name for name in shown)
    assert any("offsets" in name for name in shown)
    for name, text in shown.items():
        for secret in (SEED, "hunter2", "tok-en-4711", "creds-4711"):
            assert secret not in text, (name, secret, text[max(0, text.find(secret) - 200) :][:400])
        if "events" not in name and "page-" not in name:
            assert OF_TABLES not in text, name
    assert done.stdout.count("so replace this secret. Name a credsFile or nkeySeedFile") == 4
    assert done.stdout.count("so replace this secret. Set credentials of the object store") == 1
    assert "tables: ['plain']" in done.stdout
