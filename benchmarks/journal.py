"""Durable publishes spread over many streams: acks per second and server CPU per message.

    python -m benchmarks.journal [--rounds 3] [--seconds 2] [--json FILE]
    python -m benchmarks.journal --streams 10 --streams 100 --only penstock

One publisher with a window of WINDOW sends messages of PAYLOAD_BYTES to 1 to 1,000 file streams in
turn, and every ack must have the sequence that its stream is due. Ours runs as shipped (it syncs
before it acknowledges) and lazily, the reference as shipped (lazily) and with `sync_interval:
always`. All of them take turns within a round, each with a server and a directory of its own.
Figures are medians over the rounds; creating the streams is measured beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from penstock.bench.bench_error import BenchError
from penstock.bench.load.asset_control import open_control
from penstock.bench.load.load_frames import encode_asks
from penstock.bench.load.raw_client import deadline_after, open_client
from penstock.bench.load.request_load import publish_acked
from penstock.bench.process_stats import cpu_seconds
from penstock.bench.server_process import our_command, reference_command, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.bench.server_process import RunningServer, ServerCommand

JSON_VERSION = 1
STREAMS = (1, 10, 100, 300, 1000)
PAYLOAD_BYTES = 128
WINDOW = 1000
PASSES_MIN = 3
PROBE_PASSES = 2
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Mode:
    """A server and how it syncs; `setting` is a line of the jetstream section."""

    label: str
    is_ours: bool
    setting: str

    @property
    def command(self) -> ServerCommand:
        return our_command() if self.is_ours else reference_command()


MODES = (
    Mode("penstock, as shipped", True, ""),
    Mode("penstock, lazy", True, 'sync_interval: "2m"'),
    Mode("nats-server, as shipped", False, ""),
    Mode("nats-server, always", False, "sync_interval: always"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One run: a mode, and how many streams shared its messages."""

    mode: str
    streams: int
    messages: int
    acks_per_s: float
    cpu_us: float
    create_s: float


class Publisher:
    """Publishes to all streams in turn, and knows which sequences are due."""

    def __init__(self, server: RunningServer, streams: int, stack: contextlib.ExitStack) -> None:
        self._server = server
        self._streams = streams
        self._next_seq = 1
        self._client = stack.enter_context(open_client(server.endpoint))
        inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._client.subscribe(f"{inbox}.*", 1, deadline_after(LIMIT_S))
        subjects = [subject_of(number) for number in range(streams)]
        self._asks = encode_asks(subjects, inbox, PAYLOAD_BYTES)

    def publish(self, per_stream: int) -> tuple[float, float]:
        """Publish so many messages to each stream; return seconds and server CPU seconds."""
        count = per_stream * self._streams
        before = cpu_seconds(self._server.pid)
        start_ns, end_ns = publish_acked(
            self._client.fd,
            self._asks.data,
            self._asks.frame_bytes,
            self._asks.token_at,
            WINDOW,
            self._next_seq,
            array("q", bytes(8 * count)),
            deadline_after(LIMIT_S),
            0,
            self._streams,
        )
        self._next_seq += per_stream
        return (end_ns - start_ns) / 1e9, cpu_seconds(self._server.pid) - before


def subject_of(number: int) -> str:
    return f"journal.{number:05d}"


def measure(mode: Mode, streams: int, seconds: float) -> Row:
    """Run a server with so many streams, and publish for about so many seconds."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(mode.command, mode.setting))
        create_s = create_streams(server, streams)
        publisher = Publisher(server, streams, stack)
        probe = max(PROBE_PASSES, WINDOW // streams)
        publisher.publish(probe)  # opens the files
        took_s, _ = publisher.publish(probe)
        per_stream = max(PASSES_MIN, round(probe * seconds / took_s))
        took_s, cpu_s = publisher.publish(per_stream)
    count = per_stream * streams
    return Row(mode.label, streams, count, count / took_s, cpu_s / count * 1e6, create_s)


def create_streams(server: RunningServer, streams: int) -> float:
    began = time.monotonic()
    with open_control(server.endpoint) as control:
        for number in range(streams):
            control.create_stream(f"J{number:05d}", [subject_of(number)], "file")
    return time.monotonic() - began


def rounds_of(options: argparse.Namespace) -> Iterator[Row]:
    modes = [mode for mode in MODES if mode.label.startswith(options.only)]
    for number in range(options.rounds):
        for streams in options.streams or STREAMS:
            # Reverse the order in every other round: the machine's load changes with time.
            for mode in modes if number % 2 == 0 else reversed(modes):
                row = measure(mode, streams, options.seconds)
                print(shown(row), file=sys.stderr, flush=True)
                yield row


def medians(rows: list[Row]) -> list[Row]:
    """Return one row per mode and number of streams."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.streams, row.mode), []).append(row)
    return [
        Row(
            mode,
            streams,
            sum(row.messages for row in group),
            median(row.acks_per_s for row in group),
            median(row.cpu_us for row in group),
            median(row.create_s for row in group),
        )
        for (streams, mode), group in groups.items()
    ]


def shown(row: Row) -> str:
    return (
        f"{row.streams:8,}  {row.mode:26}{row.acks_per_s:12,.0f} acks/s"
        f"{row.cpu_us:9.2f} us CPU/message{row.create_s:9.2f} s to create"
    )


def arguments_of_command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="wanted length of one run")
    parser.add_argument("--only", default="", metavar="PREFIX", help="modes by label")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    options = arguments_of_command_line()
    try:
        rows = list(rounds_of(options))
    except BenchError as error:
        print(f"journal: {error}", file=sys.stderr)
        return 1
    for row in medians(rows):
        print(shown(row))
    if options.json is not None:
        answer = {
            "version": JSON_VERSION,
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
            "rounds": options.rounds,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(answer, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
