"""Deliveries of a consumer as a server writes them, for tests of what reads them."""

from __future__ import annotations

TIME_NS = 1_700_000_000_000_000_000


def delivery(
    subject: str,
    payload: bytes,
    *,
    seq: int,
    consumer_seq: int,
    pending: int = 0,
    header: bytes = b"",
    sid: int = 7,
    domain: bool = False,
    consumer: str = "c",
) -> bytes:
    """One record, with the position in its reply subject."""
    place = "hub.ACC." if domain else ""
    behind = ".rnd" if domain else ""
    numbers = f"1.{seq}.{consumer_seq}.{TIME_NS + seq}.{pending}"
    reply = f"$JS.ACK.{place}S.{consumer}.{numbers}{behind}"
    return message(subject, payload, reply=reply, header=header, sid=sid)


def message(
    subject: str, payload: bytes = b"", *, reply: str = "", header: bytes = b"", sid: int = 7
) -> bytes:
    """Any message."""
    total = len(header) + len(payload)
    sizes = f"{len(header)} {total}" if header else f"{total}"
    words = [w for w in ("HMSG" if header else "MSG", subject, str(sid), reply, sizes) if w]
    return " ".join(words).encode() + b"\r\n" + header + payload + b"\r\n"
