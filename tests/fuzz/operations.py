"""Fuzzes JetStream of a server process: `python -m tests.fuzz.operations --operations 100000`.

Sends random requests, publishes, pulls and acks, valid and invalid, over several connections, and
restarts the server after every `--restart-every` operations, by SIGTERM and by SIGKILL in turn.
Ends with 1 if the server ends, logs a traceback or a sanitizer's report, leaves a request
unanswered, does not start again, or has lost something that it had confirmed. The same seed sends
the same operations, except that acks and archives follow what the server has sent. `--sanitized`
runs the server that `make asan` builds.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from .peer import Ledger, Lost, Peer, Sent
from .requests import Operations
from .server_process import Harm, ServerProcess
from .survey import differences, survey

BATCH: Final = 150
"""Operations per round trip; far below the 10,000 requests that may wait in an account."""
UNANSWERED_MAX: Final = 1000
ANSWER_SECONDS: Final = 60.0
TAIL: Final = 40
SUBSCRIPTIONS: Final = ([], ["dlv.>"], ["dlv.1 q", "_INBOX.archive"])


class Fuzz:
    """One run: a server, its clients, and what must hold."""

    def __init__(self, directory: Path, seed: int, *, sanitized: bool) -> None:
        self.directory = directory
        self.operations = Operations(seed)
        self.ledger = Ledger()
        self.server = ServerProcess(directory, sanitized=sanitized)
        self.peers: list[Peer] = []
        self.restarts = 0
        self.slowest_start = 0.0
        self._turn = 0
        self._connect()

    def _connect(self) -> None:
        self.peers = [
            Peer(self.server.port, number, self.ledger, subscribes)
            for number, subscribes in enumerate(SUBSCRIPTIONS)
        ]

    def run(self, count: int, restart_every: int) -> None:
        """Send this many operations; raises Harm."""
        next_restart = restart_every
        while self.ledger.number < count:
            size = min(BATCH, count - self.ledger.number)
            if self.ledger.number + size >= next_restart:
                self.restart(size)
                next_restart += restart_every
            else:
                self.batch(size)
        self.settle()
        self.check()

    # -- batches

    def batch(self, size: int) -> None:
        """One client sends operations and waits until the server has read them."""
        peer = self._next_peer()
        self._send(peer, size)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not peer.is_fenced():
            if not self._receive(peer, 1.0) and time.monotonic() > deadline:
                self.server.abort()
                raise Harm(f"no PONG within {ANSWER_SECONDS} s")
        for other in self.peers:
            while self._receive(other, 0):
                pass
        self.check()
        if len(self.ledger.unanswered) > UNANSWERED_MAX:
            self.settle()

    def _next_peer(self) -> Peer:
        self._turn += 1
        return self.peers[self._turn % len(self.peers)]

    def _send(self, peer: Peer, size: int) -> None:
        size -= peer.add_archives()
        for _ in range(size):
            peer.add(self.operations.draw())
        try:
            peer.send()
        except Lost as lost:
            self._lost(lost)

    def _receive(self, peer: Peer, seconds: float) -> bool:
        try:
            return peer.receive(seconds)
        except Lost as lost:
            self._lost(lost)
            return False

    def _lost(self, lost: Lost) -> None:
        self.server.check()
        told = [error for peer in self.peers for error in peer.errors]
        raise Harm(f"a client lost its connection: {lost} {told}") from None

    def settle(self) -> None:
        """Wait until everything that must be answered is answered."""
        while self.ledger.unanswered:
            heard = [self._receive(peer, 0.02) for peer in self.peers]
            if not any(heard):
                self.check()

    def check(self) -> None:
        self.server.check()
        errors = [error for peer in self.peers for error in peer.errors]
        if errors:
            raise Harm(f"a client was told {errors[0]}")
        oldest = next(iter(self.ledger.unanswered.values()), None)
        if oldest is not None and time.monotonic() - oldest.sent_at > ANSWER_SECONDS:
            raise Harm(f"not answered within {ANSWER_SECONDS} s: {shown(oldest)}")

    # -- restarts

    def restart(self, size: int) -> None:
        """Every second restart is clean; every fourth kills the server while it works."""
        self.restarts += 1
        way = self.restarts % 4
        if way == 0:
            self._send(self._next_peer(), size)
            self.server.kill()
            self._forget_unanswered()
            self._start()
            self._check_streams(set(survey(self.server.port)))
            return
        self.batch(size)
        self.settle()
        for peer in self.peers:
            peer.close()
        before = survey(self.server.port)
        self._check_streams(set(before))
        is_clean = way != 2
        if is_clean:
            self.server.stop()
            self.server.check_log()
        else:
            self.server.kill()
        self._start()
        after = survey(self.server.port)
        found = differences(before, after, is_clean=is_clean)
        if found:
            how = "SIGTERM" if is_clean else "SIGKILL"
            raise Harm(f"after restart {self.restarts} ({how}): " + "; ".join(sorted(found)[:10]))

    def _start(self) -> None:
        self.slowest_start = max(self.slowest_start, self.server.start())
        self.server.check()
        self.server.check_health()
        self._connect()

    def _forget_unanswered(self) -> None:
        """What was under way when the server was killed may have happened or not."""
        for peer in self.peers:
            try:
                while peer.receive(0):
                    pass
            except Lost:
                peer.close()
        pending = [*self.ledger.unanswered.values(), *self.ledger.optional.values()]
        for sent in pending:
            self.ledger.exists.pop(sent.operation.stream, None)
        self.ledger.unanswered.clear()
        self.ledger.optional.clear()

    def _check_streams(self, served: set[str]) -> None:
        for name, (number, is_there) in self.ledger.exists.items():
            if is_there is not None and is_there != (name in served):
                fact = "is not served" if is_there else "is served although it was deleted"
                raise Harm(f"stream {name} {fact} (operation {number})")

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.server.kill()

    # -- reports

    def story(self, tail: int) -> str:
        sent = list(self.ledger.log)[-tail:]
        lines = ["the last operations:", *(shown(one) for one in sent)]
        waiting = list(self.ledger.unanswered.values())[:tail]
        lines += ["unanswered:", *(shown(one) for one in waiting)]
        return "\n".join([*lines, "the log:", self.server.log_tail()])


def shown(sent: Sent) -> str:
    """An operation on one line."""
    operation = sent.operation
    subject = operation.subject.encode("utf-8", "backslashreplace").decode()
    parts = [f"{sent.number} {subject}"]
    shown_max = 1000 if operation.kind != "publish" else 30
    if operation.header:
        parts.append(f"header {operation.header[:300]!r}")
    if operation.payload:
        parts.append(f"body ({len(operation.payload)}) {operation.payload[:shown_max]!r}")
    parts.append(f"-> {sent.code} {sent.answer[:160]!r}" if sent.code else "-> no answer yet")
    return "  ".join(parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.operations", description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restart-every", type=int, default=10_000)
    parser.add_argument("--sanitized", action="store_true", help="the server of `make asan`")
    parser.add_argument("--directory", type=Path, help="keep the store and the log here")
    parser.add_argument("--tail", type=int, default=TAIL, help="operations shown after a failure")
    parser.add_argument("--answers", action="store_true", help="show how often which answer came")
    options = parser.parse_args(arguments)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="penstock-fuzz-"))
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    fuzz = Fuzz(directory, options.seed, sanitized=options.sanitized)
    try:
        fuzz.run(options.operations, options.restart_every)
    except Harm as harm:
        number = fuzz.ledger.number
        print(
            f"seed {options.seed}, operation {number}: {harm}\n{fuzz.story(options.tail)}",
            flush=True,
        )
        print(f"seed {options.seed}, operation {number}: {harm}\nstore and log: {directory}")
        return 1
    finally:
        fuzz.close()
    if options.answers:
        for code, times in sorted(fuzz.ledger.codes.items()):
            print(f"{times:>9}  {code}")
    print(
        f"{fuzz.ledger.number} operations, {fuzz.restarts} restarts in"
        f" {time.monotonic() - began:.0f} s, nothing found;"
        f" slowest answer {fuzz.ledger.slowest:.1f} s, slowest start {fuzz.slowest_start:.1f} s"
    )
    if options.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
