"""/metrics: counters and gauges in the Prometheus text format.

Each scrape builds the families from counters that the server keeps anyway: nothing is counted
twice, and a server that is not scraped has no cost. A page with many accounts is built and sent in
slices, between the turns of clients. Imported on the first scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock.base.units import SECOND_NS
from penstock.base.version import REFERENCE_VERSION, VERSION
from penstock.server.monitor.connection_totals import subscriptions_of, sum_of, traffic_by_account
from penstock.server.monitor.jsz import hosts_of, stats, totals
from penstock.server.monitor.page_answers import ANY_ORIGIN, PageAnswer
from penstock.server.monitor.process_usage import resident_bytes
from penstock.server.monitor.sliced_pages import is_done_soon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from penstock.server.jetstream.runtime import JetStreamRuntime
    from penstock.server.monitor.connection_totals import Totals
    from penstock.server.server_state import ServerState, Traffic
    from penstock.server.system.loop_watch import LoopWatch

PREFIX: Final = "penstock_"
SAMPLES_PER_PIECE: Final = 256
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


class ServiceCollector:
    """Yields the server's counters as metrics, and None where a long collection may pause."""

    def __init__(self, service: ServerState) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric | None]:
        yield InfoMetricFamily(
            f"{PREFIX}server",
            "What this server is.",
            value={
                "server_id": self._service.server_id,
                "server_name": self._service.server_name,
                "version": VERSION,
                "nats_version": REFERENCE_VERSION,
            },
        )
        yield from self._gauges()
        yield _loop(self._service.watch)
        traffic = traffic_by_account(self._service)
        yield from self._counters(sum_of(traffic.values()))
        yield from self._accounts(traffic)
        if self._service.jetstream is not None:
            yield from _jetstream(self._service.jetstream)

    def _gauges(self) -> Iterator[Metric]:
        service = self._service
        values = (
            ("start_time_seconds", "When the server started.", service.start_ns / SECOND_NS),
            ("resident_memory_bytes", "Memory the process holds.", resident_bytes()),
            ("connections", "Clients connected now.", len(service.sessions)),
            (
                "connections_max",
                "Clients allowed; -1: any number.",
                service.options.max_connections,
            ),
            ("subscriptions", "Subscriptions now.", subscriptions_of(service)),
            ("lame_duck", "1: takes no new clients and is going away.", int(service.lame_duck)),
        )
        for name, prose, value in values:
            yield GaugeMetricFamily(PREFIX + name, prose, value=value)

    def _counters(self, totals: Totals) -> Iterator[Metric]:
        service = self._service
        values = (
            ("connections_opened", "Clients that ever connected.", service.total_connections),
            ("received_messages", "Messages from clients.", totals.in_msgs),
            ("received_bytes", "Bytes of messages from clients.", totals.in_bytes),
            ("sent_messages", "Messages to clients.", totals.out_msgs),
            ("sent_bytes", "Bytes of messages to clients.", totals.out_bytes),
            ("slow_consumers", "Clients cut off as too slow.", service.io_loop.slow_consumers),
            ("stale_connections", "Clients that stopped answering.", service.stale_connections),
            ("stalls", "Publishers held back for a moment.", service.io_loop.stalled_clients),
        )
        for name, prose, value in values:
            yield CounterMetricFamily(PREFIX + name, prose, value=value)

    def _accounts(self, traffic: dict[str, Traffic]) -> Iterator[Metric | None]:
        service = self._service
        connections = _labelled(GaugeMetricFamily, "connections", "Clients of the account.")
        subscriptions = _labelled(
            GaugeMetricFamily, "subscriptions", "Subscriptions in the account."
        )
        received = _labelled(CounterMetricFamily, "received_messages", "Messages from clients.")
        sent = _labelled(CounterMetricFamily, "sent_messages", "Messages to clients.")
        for number, account in enumerate(list(service.accounts), 1):
            connections.add_metric([account.name], account.connections)
            subscriptions.add_metric([account.name], len(account.interest))
            if number % SAMPLES_PER_PIECE == 0:
                yield None
        for number, (name, one) in enumerate(traffic.items(), 1):
            received.add_metric([name], one.in_msgs)
            sent.add_metric([name], one.out_msgs)
            if number % SAMPLES_PER_PIECE == 0:
                yield None
        yield from (connections, subscriptions, received, sent)


def _loop(watch: LoopWatch) -> Metric:
    buckets = [
        ("+Inf" if bound_ms is None else str(bound_ms / 1000), count)
        for bound_ms, count in watch.histogram()
    ]
    prose = "How long each turn held the event loop; the sum leaves out turns below 1 ms."
    family = HistogramMetricFamily(f"{PREFIX}loop_turn_seconds", prose)
    family.add_metric([], buckets=buckets, sum_value=watch.total_ns / SECOND_NS)
    return family


def _jetstream(runtime: JetStreamRuntime) -> Iterator[Metric]:
    """Yield sums over all streams: there may be ten thousand, and `/jsz` reports each."""
    held, used = totals(runtime), stats(runtime)
    gauges = (
        ("streams", "Streams that are served.", held["streams"]),
        ("consumers", "Consumers that are served.", held["consumers"]),
        ("stored_messages", "Messages in all streams.", held["messages"]),
        ("stored_bytes", "Bytes of messages in all streams.", held["bytes"]),
        ("memory_bytes", "Bytes of streams in memory.", used["memory"]),
        ("storage_bytes", "Bytes of streams in files.", used["storage"]),
        (
            "refusing_streams",
            "Streams that cannot store: their disk failed or is full.",
            sum(host.cannot_store for host in hosts_of(runtime)),
        ),
    )
    for name, prose, value in gauges:
        yield GaugeMetricFamily(f"{PREFIX}jetstream_{name}", prose, value=value)
    counters = (
        ("api_requests", "Requests to the API.", used["api"]["total"]),
        ("api_errors", "Requests to the API that were refused.", used["api"]["errors"]),
    )
    for name, prose, value in counters:
        yield CounterMetricFamily(f"{PREFIX}jetstream_{name}", prose, value=value)


def _labelled(family: type[Family], name: str, prose: str) -> Family:
    return family(f"{PREFIX}account_{name}", prose, labels=["account"])


def metrics(service: ServerState) -> PageAnswer:
    """Return the page; a short one is complete, a long one is built while it is sent."""
    pieces = _pieces(service)
    made: list[bytes] = []
    rest = None if is_done_soon(pieces, made) else pieces
    return PageAnswer(200, CONTENT_TYPE_LATEST, b"".join(made), ANY_ORIGIN, rest)


def _pieces(service: ServerState) -> Iterator[bytes]:
    for family in ServiceCollector(service).collect():
        if family is None:
            yield b""
            continue
        samples = family.samples
        for at in range(0, max(1, len(samples)), SAMPLES_PER_PIECE):
            family.samples = samples[at : at + SAMPLES_PER_PIECE]
            text = generate_latest(cast("CollectorRegistry", Part(family)))
            if at:
                text = b"".join(
                    line for line in text.splitlines(keepends=True) if not line.startswith(b"#")
                )
            yield text


class Part(Collector):
    """One family in the form of a registry, which the library's renderer expects."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
