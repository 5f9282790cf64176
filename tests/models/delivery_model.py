"""What a client receives, read the slow way: one message at a time, as Python values.

The model of the compiled intake of the bulk reader. It takes all bytes at once and knows nothing of
chunks, batches or rooms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIELDS_BEFORE_SIZES = 3
ACK_TOKENS = {9: 4, 11: 6, 12: 6}


@dataclass
class Told:
    """Records of one subscription, and everything else in the order it came."""

    records: list[tuple[str, int, int, bytes, bytes]] = field(default_factory=list)
    others: list[tuple[int, object]] = field(default_factory=list)
    """How many records were before, and what it was."""


def read(data: bytes, sid: int) -> Told:
    told = Told()
    expected = 1
    while data:
        line, _, data = data.partition(b"\r\n")
        words = line.split()
        if words[0] not in (b"MSG", b"HMSG"):
            told.others.append((len(told.records), line))
            continue
        sizes = 2 if words[0] == b"HMSG" else 1
        total = int(words[-1])
        head = int(words[-2]) if sizes == 2 else 0
        body, data = data[:total], data[total + 2 :]
        reply = words[3].decode() if len(words) == FIELDS_BEFORE_SIZES + sizes + 1 else ""
        if not reply.startswith("$JS.ACK."):
            told.others.append((len(told.records), (words[1].decode(), body)))
            continue
        tokens = reply.split(".")
        at = ACK_TOKENS[len(tokens)]
        _, seq, consumer_seq, time_ns, _ = map(int, tokens[at : at + 5])
        if int(words[2]) != sid:
            continue
        assert consumer_seq == expected
        expected += 1
        told.records.append((words[1].decode(), seq, time_ns, body[:head], body[head:]))
    return told
