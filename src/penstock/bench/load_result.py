"""What a run is told and what it says back, whatever kind of load it makes.

*Messages* are those published, requested or read, as the scenario says; times are from the first
byte of load to the last byte that proves it done. No runner lives here.
"""

from dataclasses import dataclass

from penstock.bench import process_stats
from penstock.bench.load.raw_client import ServerEndpoint
from penstock.bench.sample_stats import Latency


@dataclass(frozen=True, slots=True)
class Result:
    """One run: what went through, how long it took and what it cost the server."""

    scenario: str
    messages: int
    deliveries: int
    payload_bytes: int
    seconds: float
    cpu_seconds: float | None = None
    rss_peak_bytes: int | None = None
    latency: Latency | None = None

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Payload (headers included) taken from publishers, in 10^6 bytes per second."""
        return self.messages * self.payload_bytes / self.seconds / 1e6

    @property
    def cpu_per_million(self) -> float | None:
        if self.cpu_seconds is None:
            return None
        return self.cpu_seconds / self.messages * 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """What a runner needs to know about one run."""

    endpoint: ServerEndpoint
    messages: int
    pid: int | None
    deadline_ns: int

    def cpu_seconds(self) -> float:
        return process_stats.cpu_seconds(self.pid) if self.pid is not None else 0.0


@dataclass(frozen=True, slots=True)
class LoadTiming:
    """What a runner reports back."""

    messages: int
    deliveries: int
    payload_bytes: int
    start_ns: int
    end_ns: int
    cpu_seconds: float
    latency: Latency | None = None
