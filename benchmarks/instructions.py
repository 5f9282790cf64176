"""Instructions that a server executes for each message, counted by callgrind.

    python -m benchmarks.instructions                                  # this tree
    python -m benchmarks.instructions --ours-cmd '.venv/bin/penstock serve' \\
        --base-cmd '../before/.venv/bin/penstock serve'                # before and after a change

The counts cover what the process executes, not the kernel. They differ by about 1 % between runs,
however busy the machine is, so they show changes of the fast path that CPU times hide in noise.
Needs valgrind. A scenario runs once to warm up; then it runs with counting on.
"""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.stalls.operation import create_consumer, create_stream
from benchmarks.stalls.site import publish, start

from penstock.bench.bench_error import BenchError
from penstock.bench.server_process import ServerCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.stalls.site import Peer, Site

    Scenario = Callable[[Site, int], Iterator[None]]

MESSAGES = 20_000
WINDOW = 1_000
CHUNK_BYTES = 60_000
PAYLOAD = b"x" * 128
HEADER = b"NATS/1.0\r\nTraceparent: 00-4bf92f35-01\r\n\r\n"


def headed(subject: str, reply: str = "") -> bytes:
    head = f"HPUB {subject} {reply} " if reply else f"HPUB {subject} "
    sizes = b"%d %d" % (len(HEADER), len(HEADER) + len(PAYLOAD))
    return b"%b%b\r\n%b%b\r\n" % (head.encode(), sizes, HEADER, PAYLOAD)


def flood(peer: Peer, message: bytes, count: int) -> None:
    """Send the message `count` times, in pieces that do not end where a message ends."""
    data = message * count
    for at in range(0, len(data), CHUNK_BYTES):
        peer.send(data[at : at + CHUNK_BYTES])
    peer.sync()


def delivered(site: Site, message: Callable[[str], bytes], count: int) -> Iterator[None]:
    """One publisher, one subscriber."""
    with site.connect() as publisher, site.connect() as subscriber:
        subject = f"{subscriber.inbox}.m"
        while True:
            wanted = subscriber.replies + count
            flood(publisher, message(subject), count)
            subscriber.wait_replies(wanted)
            yield


def acknowledged(site: Site, message: Callable[[str], bytes], count: int) -> Iterator[None]:
    """Publishes to a memory stream, 1,000 acks outstanding."""
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["stored"], storage="memory")
        window = message(f"{peer.inbox}.a") * WINDOW
        while True:
            for _ in range(count // WINDOW):
                wanted = peer.replies + WINDOW
                peer.send(window)
                peer.wait_replies(wanted)
            yield


def publishes(site: Site, count: int) -> Iterator[None]:
    with site.connect() as peer:
        while True:
            flood(peer, publish("nowhere", PAYLOAD), count)
            yield


def headed_publishes(site: Site, count: int) -> Iterator[None]:
    with site.connect() as peer:
        while True:
            flood(peer, headed("nowhere"), count)
            yield


def deliveries(site: Site, count: int) -> Iterator[None]:
    yield from delivered(site, lambda subject: publish(subject, PAYLOAD), count)


def headed_deliveries(site: Site, count: int) -> Iterator[None]:
    yield from delivered(site, headed, count)


def stored(site: Site, count: int) -> Iterator[None]:
    yield from acknowledged(site, lambda reply: publish("stored", PAYLOAD, reply), count)


def headed_stored(site: Site, count: int) -> Iterator[None]:
    yield from acknowledged(site, lambda reply: headed("stored", reply), count)


def pushed(site: Site, count: int) -> Iterator[None]:
    """Reads of a filled stream through new push consumers without acks."""
    with site.connect() as peer:
        create_stream(peer, "S", subjects=["stored"], storage="memory")
        flood(peer, publish("stored", PAYLOAD), count)
        number = 0
        while True:
            number += 1
            wanted = peer.replies + count
            subject = f"{peer.inbox}.d"
            create_consumer(peer, "S", f"c{number}", ack_policy="none", deliver_subject=subject)
            peer.wait_replies(wanted)
            yield


SCENARIOS: dict[str, Scenario] = {
    "publish": publishes,
    "publish-headers": headed_publishes,
    "1-1": deliveries,
    "1-1-headers": headed_deliveries,
    "js-publish-memory": stored,
    "js-publish-memory-headers": headed_stored,
    "js-push": pushed,
}


def count_instructions(command: ServerCommand, scenario: Scenario, messages: int) -> float:
    """Return the instructions of a fresh server per message of the scenario's second run."""
    with tempfile.TemporaryDirectory(prefix="penstock-instructions-") as name:
        out = Path(name) / "callgrind"
        # A command such as `env NAME=VALUE penstock serve` executes the server.
        valgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes")
        argv = (*valgrind, f"--callgrind-out-file={out}.%p", *command.argv)
        with start(ServerCommand(command.label, argv)) as site:
            steps = scenario(site, messages)
            next(steps)
            control(site, "--instr=on")
            next(steps)
            control(site, "--dump")
            steps.close()
        dumps = [path.read_text(errors="replace") for path in Path(name).glob("callgrind*")]
    totals = [int(line.split()[1]) for text in dumps for line in text.splitlines() if is_sum(line)]
    return max(totals) / messages


def control(site: Site, flag: str) -> None:
    subprocess.run(["callgrind_control", flag, str(site.pid)], check=True, capture_output=True)


def is_sum(line: str) -> bool:
    return line.startswith(("summary:", "totals:"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="scenarios by name")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--ours-cmd", default=f"{shlex.quote(sys.executable)} -m penstock serve")
    parser.add_argument("--base-cmd", help="another build of the server, to compare with")
    arguments = parser.parse_args()
    if not shutil.which("callgrind_control"):
        print("instructions: valgrind is not installed", file=sys.stderr)
        return 2
    commands = [ServerCommand("ours", tuple(shlex.split(arguments.ours_cmd)))]
    if arguments.base_cmd:
        commands.append(ServerCommand("base", tuple(shlex.split(arguments.base_cmd))))
    print(f"{'scenario':28}" + "".join(f"{each.label:>10}" for each in commands) + "   ours/base")
    for name, scenario in SCENARIOS.items():
        if not fnmatch.fnmatch(name, arguments.only):
            continue
        try:
            counts = [count_instructions(each, scenario, arguments.messages) for each in commands]
        except BenchError as error:
            print(f"instructions: {name}: {error}", file=sys.stderr)
            return 1
        ratio = f"{counts[0] / counts[-1]:12.3f}" if len(counts) > 1 else ""
        print(f"{name:28}" + "".join(f"{each:10.0f}" for each in counts) + ratio, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
