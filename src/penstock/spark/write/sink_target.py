"""Checks whether a stream's configuration supports the requested delivery. No I/O.

Each error names what the stream lacks and what to set, on the stream or in the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.spark.write.sink_options import DeliveryMode
from penstock.spark.write.worker_publisher import SinkError
from penstock.subjects.match import match_literal

if TYPE_CHECKING:
    from penstock.spark.write.sink_options import SinkOptions

MS_NS: Final = 1_000_000
LIMITS: Final = "limits"


def check_target(config: dict[str, Any], options: SinkOptions) -> None:
    """Raise if the stream cannot support the delivery guarantee."""
    check_writable(config)
    if options.delivery is DeliveryMode.EXACTLY_ONCE:
        _check_window(config, options)
    if options.delivery is DeliveryMode.STRICT:
        _check_ledger(config, options)


def check_writable(config: dict[str, Any]) -> None:
    name = config["name"]
    if config.get("mirror"):
        raise SinkError(f"stream {name} is a mirror: write to its origin")
    if config.get("sealed"):
        raise SinkError(f"stream {name} is sealed: nothing can be added")
    if config.get("no_ack"):
        raise SinkError(f"stream {name} answers no publishes: set no_ack to false on the stream")


def _check_window(config: dict[str, Any], options: SinkOptions) -> None:
    window_ms = int(config.get("duplicate_window", 0)) // MS_NS
    if window_ms < options.min_duplicate_window_ms:
        raise SinkError(
            f"stream {config['name']} remembers message ids for {window_ms} ms: a later replay "
            "would store rows again. Set its duplicate_window to the longest outage to survive, or "
            f"minDuplicateWindowMs (now {options.min_duplicate_window_ms}) to what you accept, or "
            "use delivery strict"
        )


def _check_ledger(config: dict[str, Any], options: SinkOptions) -> None:
    name = config["name"]
    if not config.get("allow_atomic"):
        raise SinkError(
            f"stream {name} takes no atomic batches, which delivery strict needs: set allow_atomic "
            "on the stream (nats-server 2.12 and later), or use delivery exactlyOnce"
        )
    if config.get("retention", LIMITS) != LIMITS:
        raise SinkError(
            f"stream {name} deletes what was consumed, and the ledger with it: delivery strict "
            "needs retention limits"
        )
    sample = f"{options.ledger}.q.0"
    if not any(match_literal(sample, pattern) for pattern in config.get("subjects", ())):
        raise SinkError(
            f"stream {name} does not take {options.ledger}.>, where delivery strict keeps its "
            "ledger: add it to the stream's subjects, or set ledgerPrefix"
        )
