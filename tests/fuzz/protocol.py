"""A fuzzer of the client protocol: random and spoilt conversations against a live server.

    python tests/fuzz/protocol.py --port 4222 --seed 1 --conversations 100000

Every conversation comes from its seed alone, so a failing one is repeated with `--seed N
--conversations 1`. After each, another connection must still be answered. Needs nothing but a
server on loopback; it judges only that one answers, its log and memory are judged by the caller.
"""

from __future__ import annotations

import argparse
import itertools
import random
import socket
import struct
import sys

from support.patience import PATIENCE_SECONDS

HOST = "127.0.0.1"
PIECES_MAX = 12
SPOILS_MAX = 6

WORDS = [
    b"a",
    b"b",
    b"a.b",
    b"*",
    b">",
    b"a.*",
    b"a.>",
    b"",
    b".",
    b"a..b",
    b"\xff",
    b"\x00",
    b"x" * 300,
]
NUMBERS = [
    b"0",
    b"1",
    b"5",
    b"-1",
    b"99",
    b"65536",
    b"1048576",
    b"1048577",
    b"999999999",
    b"1e3",
    b"x",
]
CONNECTS = [
    b"{}",
    b'{"verbose":false}',
    b'{"headers":true,"no_responders":true}',
    b'{"echo":false,"pedantic":true}',
    b'{"verbose":1}',
    b'{"protocol":7}',
    b"{",
    b"[]",
    b'{"user":"\\ud800"}',
]
BLANKS = [b" ", b" ", b" ", b"\t", b"  ", b" \t ", b""]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""]
VERBS = [b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR"]


class Speaker:
    """Makes what one peer says, from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def conversation(self) -> list[bytes]:
        """What is sent, piece by piece."""
        dice = self.dice
        said = b"".join(self._frame() for _ in range(dice.randint(1, 30)))
        if dice.random() < 0.5:
            said = self._spoil(said)
        cuts = sorted(dice.randint(0, len(said)) for _ in range(dice.randint(0, PIECES_MAX)))
        edges = [0, *cuts, len(said)]
        return [said[start:end] for start, end in itertools.pairwise(edges) if start < end]

    def _frame(self) -> bytes:
        kinds = [self._publish, self._publish, self._subscribe, self._line, self._connect]
        return self.dice.choice(kinds)() if self.dice.random() < 0.97 else self._noise()

    def _publish(self) -> bytes:
        dice = self.dice
        body = dice.randbytes(
            dice.choice([0, 1, 5, 80, 5000, 70_000]) if dice.random() < 0.3 else 5
        )
        size = b"%d" % len(body) if dice.random() < 0.9 else dice.choice(NUMBERS)
        words = [dice.choice(WORDS[:7]), *([dice.choice(WORDS)] if dice.random() < 0.3 else [])]
        if dice.random() < 0.3:
            header = b"%d" % dice.randint(0, len(body) + 1)
            return self._join(b"HPUB", *words, header, size) + body + b"\r\n"
        return self._join(b"PUB", *words, size) + body + b"\r\n"

    def _subscribe(self) -> bytes:
        dice = self.dice
        sid = b"%d" % dice.randint(1, 9)
        if dice.random() < 0.3:
            return self._join(
                b"UNSUB", sid, *([dice.choice(NUMBERS)] if dice.random() < 0.5 else [])
            )
        queue = [dice.choice([b"q", b"_sys_", b"r"])] if dice.random() < 0.3 else []
        return self._join(b"SUB", dice.choice(WORDS), *queue, sid)

    def _line(self) -> bytes:
        dice = self.dice
        words = [dice.choice(WORDS + NUMBERS) for _ in range(dice.randint(0, 5))]
        return self._join(
            dice.choice(VERBS if dice.random() < 0.05 else [b"PING", b"PONG"]), *words
        )

    def _connect(self) -> bytes:
        return self._join(
            b"CONNECT", self.dice.choice(CONNECTS[: 9 if self.dice.random() < 0.1 else 4])
        )

    def _noise(self) -> bytes:
        dice = self.dice
        return dice.choice([dice.randbytes(dice.randint(1, 200)), b"\x16\x03\x01", b"x" * 70_000])

    def _join(self, *words: bytes) -> bytes:
        dice = self.dice
        blank = dice.choice(BLANKS) if dice.random() < 0.1 else b" "
        verb = words[0].lower() if dice.random() < 0.1 else words[0]
        return blank.join((verb, *words[1:])) + (
            dice.choice(ENDS) if dice.random() < 0.05 else b"\r\n"
        )

    def _spoil(self, said: bytes) -> bytes:
        data, dice = bytearray(said), self.dice
        for _ in range(dice.randint(1, SPOILS_MAX)):
            at = dice.randrange(len(data)) if data else 0
            kind = dice.randrange(4)
            if kind == 0:
                data[at : at + 1] = dice.randbytes(1)
            elif kind == 1:
                del data[at : at + dice.randint(1, 8)]
            elif kind == 2:
                data[at:at] = data[at : at + dice.randint(1, 40)]
            else:
                data[at:at] = dice.choice([b"\r\n", b" ", b"\x00", b"\n"])
        return bytes(data)


class Watcher:
    """A connection of its own that must always be answered."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_SECONDS)
        self._read_until(b"\r\n")
        self._socket.sendall(b'CONNECT {"verbose":false}\r\n')

    def check(self) -> None:
        """Raises OSError when the server is closed or silent."""
        self._socket.sendall(b"PING\r\n")
        self._read_until(b"PONG\r\n")

    def _read_until(self, mark: bytes) -> None:
        received = b""
        while mark not in received:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("closed by the server")
            received += data
            if b"\nPING\r\n" in b"\n" + received:
                self._socket.sendall(b"PONG\r\n")

    def close(self) -> None:
        self._socket.close()


def converse(port: int, seed: int) -> None:
    """Holds one conversation, ends it one way or another, and reads some of what comes."""
    speaker = Speaker(seed)
    pieces = speaker.conversation()
    ending = speaker.dice.choice(["orderly", "orderly", "close", "reset"])
    with socket.create_connection((HOST, port), PATIENCE_SECONDS) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                peer.sendall(piece)
            if ending == "orderly":
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65_536):
                    pass
        except TimeoutError:
            raise
        except OSError:
            return  # it may hang up on us
        if ending == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def run(port: int, seeds: range) -> None:
    """Raises OSError, with the seed in a note, when the server stops answering."""
    watcher = Watcher(port)
    try:
        for seed in seeds:
            try:
                converse(port, seed)
                watcher.check()
            except OSError as error:
                error.add_note(f"seed {seed}")
                raise
    finally:
        watcher.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Fuzz the client protocol of a live server.")
    parser.add_argument("--port", type=int, default=4222)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conversations", type=int, default=10_000)
    options = parser.parse_args(arguments)
    run(options.port, range(options.seed, options.seed + options.conversations))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
