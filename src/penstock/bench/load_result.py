"""Parameters and results of a run, for every type of load.

*Messages* are those published, requested or read, depending on the scenario; times run from the
first byte of load to the last byte that proves completion. The runners are in other modules.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.bench.load.raw_client import ServerEndpoint
from penstock.bench.sample_stats import Latency


@dataclass(frozen=True, slots=True)
class Result:
    """One run: what was transferred, how long it took and what it cost the server."""

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
        """Return the payload (headers included) from publishers, in 10^6 bytes per second."""
        return self.messages * self.payload_bytes / self.seconds / 1e6

    @property
    def cpu_per_million(self) -> float | None:
        if self.cpu_seconds is None:
            return None
        return self.cpu_seconds / self.messages * 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of one run.

    The runner calls `cpu_seconds` right before and right after the measured load; it returns the
    CPU time that the server has used so far, or another measure of its cost.
    """

    endpoint: ServerEndpoint
    messages: int
    cpu_seconds: Callable[[], float]
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class LoadTiming:
    """Measurements of one run."""

    messages: int
    deliveries: int
    payload_bytes: int
    start_ns: int
    end_ns: int
    cpu_seconds: float
    latency: Latency | None = None
