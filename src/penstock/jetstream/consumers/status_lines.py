"""Status lines: what a consumer says to its readers that is no message.

Each is a whole header block, byte for byte the reference's; they travel without payload. What the
client still had coming is told in two headers, undelivered messages and bytes.
"""

from __future__ import annotations

from typing import Final

NO_MESSAGES: Final = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING: Final = b"NATS/1.0 408 Requests Pending\r\n\r\n"
EXCEEDED_MAX_WAITING: Final = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
PUSH_BASED: Final = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
CONSUMER_DELETED: Final = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
REQUIRED_API_LEVEL: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
PIN_ID_MISMATCH: Final = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
FLOW_CONTROL_REQUEST: Final = b"NATS/1.0 100 FlowControl Request\r\n\r\n"

REQUEST_TIMEOUT: Final = "408 Request Timeout"
BATCH_COMPLETED: Final = "409 Batch Completed"
MAX_BYTES_EXCEEDED: Final = "409 Message Size Exceeds MaxBytes"
SERVER_SHUTDOWN: Final = "409 Server Shutdown"
WRONG_PIN_ID: Final = "423 Nats-Wrong-Pin-Id"


def line(status: str) -> bytes:
    """A status without more."""
    return f"NATS/1.0 {status}\r\n\r\n".encode()


def line_with_rest(status: str, messages: int, size: int) -> bytes:
    """A status that ends a request, with what was not delivered of it."""
    return (
        f"NATS/1.0 {status}\r\n"
        f"Nats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {size}\r\n\r\n"
    ).encode()


def heartbeat(consumer_seq: int, stream_seq: int, stalled_on: str = "") -> bytes:
    """A sign of life: where the consumer is, and which flow control answer it waits for."""
    stalled = f"Nats-Consumer-Stalled: {stalled_on}\r\n" if stalled_on else ""
    return (
        "NATS/1.0 100 Idle Heartbeat\r\n"
        f"Nats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {stream_seq}\r\n{stalled}\r\n"
    ).encode()
