"""A client of the fuzzer: sends operations in batches and notes what comes back.

It knows which requests are still unanswered, which deliveries may be acknowledged and which
archives were received. It judges nothing: `operations.py` does.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .requests import Fill, Need, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"
RECEIVE_BYTES: Final = 1 << 18
DELIVERIES_KEPT: Final = 300
ARCHIVES_KEPT: Final = 8
ARCHIVE_BYTES_MAX: Final = 1 << 20
PULL_SIDS: Final = 1000
"""A pull request has a subscription of its own, because the messages that it gets come under the
subject that they were stored with. Its number begins here."""
CHUNK_BYTES: Final = 32 * 1024
CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
)
ERR_CODE: Final = re.compile(rb'"err_code":(\d+)')
RESTORE_TO: Final = re.compile(rb'"deliver_subject":"(\$JS[^"]+)"')
STATUS: Final = re.compile(rb"NATS/1.0 (\d+)")


class Lost(Exception):
    """The server has closed the connection."""


@dataclass(slots=True)
class Sent:
    """An operation that was sent, as the log shows it."""

    number: int
    operation: Operation
    sent_at: float
    answer: bytes = b""
    code: str = ""


@dataclass
class Ledger:
    """What all clients share: numbers, what is unanswered, what can be used again."""

    log: deque[Sent] = field(default_factory=lambda: deque(maxlen=20_000))
    unanswered: dict[int, Sent] = field(default_factory=dict)
    """Operations by number, of those that must be answered, oldest first."""
    optional: dict[int, Sent] = field(default_factory=dict)
    """Operations whose answer, if there is one, is of interest."""
    exists: dict[str, tuple[int, bool | None]] = field(default_factory=dict)
    """For each stream the last operation that made or deleted it, and whether a restart finds it.

    None if that is open: streams in memory end with the server, as in the reference.
    """
    archives: deque[bytes] = field(default_factory=lambda: deque(maxlen=ARCHIVES_KEPT))
    deliveries: deque[str] = field(default_factory=lambda: deque(maxlen=DELIVERIES_KEPT))
    codes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    number: int = 0

    def answered(self, number: int, header: bytes, payload: bytes) -> Sent | None:
        """Note an answer; return the operation if this is its first."""
        sent = self.unanswered.pop(number, None) or self.optional.pop(number, None)
        if sent is None:
            return None
        self.slowest = max(self.slowest, time.monotonic() - sent.sent_at)
        sent.answer = payload[:400] if payload else header[:400]
        sent.code = _code(header, payload)
        self.codes[f"{sent.operation.kind} {sent.code}"] += 1
        if sent.operation.stream and sent.code == "ok":
            self._note_stream(sent, payload)
        return sent

    def _note_stream(self, sent: Sent, payload: bytes) -> None:
        name = sent.operation.stream
        is_there: bool | None = sent.operation.kind != "STREAM.DELETE"
        if is_there and b"stream_create_response" not in payload:  # where to send an archive
            return
        if is_there and b'"storage":"memory"' in payload:
            is_there = None
        number = sent.number
        if sent.operation.kind == "restored":
            # Requests wait in a queue, archives do not. What was sent before this answer came may
            # have been served before or after the restore.
            number, is_there = self.number, None
        if self.exists.get(name, (-1, False))[0] < number:
            self.exists[name] = (number, is_there)


def _code(header: bytes, payload: bytes) -> str:
    found = ERR_CODE.search(payload[:2000]) if payload.startswith((b'{"error', b'{"type')) else None
    status = STATUS.match(header)
    if found is not None:
        return found[1].decode()
    return status[1].decode() if status is not None else "ok"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class Peer:
    """One connection; `number` is part of its inbox."""

    def __init__(self, port: int, number: int, ledger: Ledger, subscribes: list[str]) -> None:
        self.ledger = ledger
        self._inbox = f"_INBOX.{number}."
        self._socket = socket.create_connection((HOST, port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._out = bytearray(CONNECT)
        self._pongs = 0
        self._fences = 0
        self._chunks: list[bytes] = []
        self._restores: list[tuple[str, Sent]] = []
        self.errors: list[str] = []
        self.on_answer: Callable[[int, bytes], None] | None = None
        for sid, subject in enumerate((f"{self._inbox}>", "_INBOX.fast.>", *subscribes), 1):
            self._out += f"SUB {subject} {sid}\r\n".encode()

    def close(self) -> None:
        self._socket.close()

    # -- sending

    def add(self, operation: Operation) -> None:
        """Put an operation into the batch."""
        ledger = self.ledger
        ledger.number += 1
        sent = Sent(ledger.number, operation, 0.0)
        if operation.fill is Fill.ACK_OF_DELIVERY and ledger.deliveries:
            operation.subject = ledger.deliveries[operation.choice % len(ledger.deliveries)]
        ledger.log.append(sent)
        wants_reply = operation.need is Need.ANSWER or operation.choice & 3
        reply = operation.reply or (f"{self._inbox}{sent.number}" if wants_reply else "")
        if operation.kind == "pull" and operation.need is Need.ANSWER:
            reply = f"_PULL.{sent.number}"
            self._out += f"SUB {reply} {sent.number + PULL_SIDS}\r\n".encode()
        if operation.need is Need.ANSWER:
            ledger.unanswered[sent.number] = sent
        elif reply and not operation.reply:
            ledger.optional[sent.number] = sent
            if len(ledger.optional) > 5000:
                del ledger.optional[next(iter(ledger.optional))]
        self._publish(operation.subject, reply, operation.header, operation.payload)

    def _publish(self, subject: str, reply: str, header: bytes, payload: bytes) -> None:
        words = f"{subject} {reply}" if reply else subject
        size = len(header) + len(payload)
        line = f"HPUB {words} {len(header)} {size}" if header else f"PUB {words} {size}"
        self._out += line.encode("utf-8", "surrogateescape") + b"\r\n" + header + payload + b"\r\n"

    def send(self) -> None:
        """Send the batch, and a PING after it."""
        now = time.monotonic()
        for sent in reversed(self.ledger.log):
            if sent.sent_at:
                break
            sent.sent_at = now
        self._out += b"PING\r\n"
        self._fences += 1
        self.flush()

    def flush(self) -> None:
        if self._out:
            try:
                self._socket.sendall(self._out)
            except OSError as error:
                raise Lost(str(error)) from None
            self._out.clear()

    # -- receiving

    def is_fenced(self) -> bool:
        """Whether the server has read everything that was sent."""
        return self._pongs >= self._fences

    def receive(self, seconds: float) -> bool:
        """Take in what has come; False if nothing came within this time."""
        ready, _, _ = select.select([self._socket], [], [], seconds)
        if not ready:
            return False
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise Lost(str(error)) from None
        if not data:
            raise Lost("closed by the server")
        self._received += data
        self._parse()
        self.flush()
        return True

    def _parse(self) -> None:
        data, at = self._received, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = bytes(data[at:end])
            if not line.startswith((b"MSG ", b"HMSG ")):
                self._control(line)
                at = end + 2
                continue
            words = line.split(b" ")
            size = int(words[-1])
            if len(data) < end + 4 + size:
                break
            header_size = int(words[-2]) if line.startswith(b"HMSG") else 0
            has_reply = len(words) == (6 if header_size else 5)
            reply = words[3] if has_reply else b""
            body = end + 2 + header_size
            header, payload = bytes(data[end + 2 : body]), bytes(data[body : end + 2 + size])
            self._message(_text(words[1]), _text(reply), header, payload, int(words[2]))
            at = end + 4 + size
        del data[:at]

    def _control(self, line: bytes) -> None:
        if line == b"PONG":
            self._pongs += 1
        elif line == b"PING":
            self._out += b"PONG\r\n"
        elif line.startswith(b"-ERR"):
            self.errors.append(line.decode(errors="replace"))

    def _message(self, subject: str, reply: str, header: bytes, payload: bytes, sid: int) -> None:
        ledger = self.ledger
        if reply.startswith("$JS.ACK."):
            ledger.deliveries.append(reply)
        elif reply.startswith("$JS.FC.") and len(ledger.deliveries) % 4:
            self._publish(reply, "", b"", b"")
        elif subject == "_INBOX.archive":
            self._archive(reply, payload)
        if sid > PULL_SIDS:
            self._out += b"UNSUB %d\r\n" % sid
            ledger.answered(sid - PULL_SIDS, header, payload)
        elif sid == 1:
            self._answer(subject, header, payload)

    def _answer(self, subject: str, header: bytes, payload: bytes) -> None:
        number = subject.removeprefix(self._inbox)
        if not number.isdecimal():
            return
        if self.on_answer is not None:
            self.on_answer(int(number), payload)
        sent = self.ledger.answered(int(number), header, payload)
        if sent is not None and sent.operation.fill is Fill.ARCHIVE:
            found = RESTORE_TO.search(payload)
            if found is not None:
                self._restores.append((found[1].decode(), sent))

    # -- archives

    def _archive(self, reply: str, payload: bytes) -> None:
        """A chunk of a snapshot; chunks of several may mix, which spoils the archive only."""
        if payload and len(self._chunks) < ARCHIVE_BYTES_MAX // 1024:
            self._chunks.append(payload)
        elif self._chunks:
            self.ledger.archives.append(b"".join(self._chunks)[:ARCHIVE_BYTES_MAX])
            self._chunks.clear()
        if reply:
            self._publish(reply, "", b"", b"")

    def add_archives(self) -> int:
        """Put the archives of restores that were answered into the batch; how many operations."""
        before = self.ledger.number
        for inlet, sent in self._restores:
            for chunk in self._chunks_for(sent.operation.choice):
                self.add(Operation("chunk", inlet, chunk, need=Need.NOTHING, choice=1))
            stream = sent.operation.stream
            self.add(Operation("restored", inlet, need=Need.NOTHING, stream=stream, choice=1))
        self._restores.clear()
        return self.ledger.number - before

    def _chunks_for(self, choice: int) -> list[bytes]:
        archives = self.ledger.archives
        data = bytearray(archives[choice % len(archives)] if archives else b"no archive")
        if choice & 0x300 == 0 and data:  # spoilt in one of four
            at = (choice >> 10) % len(data)
            data[at] ^= 1 + (choice & 0x7F)
        if choice & 0x7000 == 0:
            del data[len(data) // 2 :]
        step = CHUNK_BYTES if choice & 0x8000 else 1024
        return [bytes(data[at : at + step]) for at in range(0, len(data), step)]
