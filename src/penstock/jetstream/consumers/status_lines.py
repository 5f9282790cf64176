"""Status lines: what a consumer sends to its clients besides messages.

Each is a complete header block, byte for byte as in the reference, sent without a payload. Two
headers report what a request did not get: undelivered messages and bytes.
"""

from __future__ import annotations

from typing import Final

NO_MESSAGES: Final = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING: Final = b"NATS/1.0 408 Requests Pending\r\n\r\n"
EXCEEDED_MAX_WAITING: Final = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
PUSH_BASED: Final = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
CONSUMER_DELETED: Final = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
LEADERSHIP_CHANGE: Final = b"NATS/1.0 409 Leadership Change\r\n\r\n"
REQUIRED_API_LEVEL: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
PIN_ID_MISMATCH: Final = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
FLOW_CONTROL_REQUEST: Final = b"NATS/1.0 100 FlowControl Request\r\n\r\n"

REQUEST_TIMEOUT: Final = "408 Request Timeout"
BATCH_COMPLETED: Final = "409 Batch Completed"
MAX_BYTES_EXCEEDED: Final = "409 Message Size Exceeds MaxBytes"
SERVER_SHUTDOWN: Final = "409 Server Shutdown"
WRONG_PIN_ID: Final = "423 Nats-Wrong-Pin-Id"


def line(status: str) -> bytes:
    """Return a status without more headers."""
    return f"NATS/1.0 {status}\r\n\r\n".encode()


def line_with_rest(status: str, messages: int, size: int) -> bytes:
    """Return a status that ends a request, with what was not delivered of it."""
    return (
        f"NATS/1.0 {status}\r\n"
        f"Nats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {size}\r\n\r\n"
    ).encode()


def heartbeat(consumer_seq: int, stream_seq: int, stalled_on: str = "") -> bytes:
    """Return a heartbeat: the consumer's position, and the flow control subject it waits for a
    reply on."""
    stalled = f"Nats-Consumer-Stalled: {stalled_on}\r\n" if stalled_on else ""
    return (
        "NATS/1.0 100 Idle Heartbeat\r\n"
        f"Nats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {stream_seq}\r\n{stalled}\r\n"
    ).encode()
