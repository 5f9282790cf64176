"""Repeated runs of a scenario, on one server or alternately on two, reduced to medians.

Every run of a comparison gets a new server process, ours and the reference alternating, so that
drift of the machine affects both equally. The trials that determine the message count, and the
warm-up before every measured run, are not part of any figure. A failed run is recorded as a failure
and never repeated silently.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import ServerEndpoint
from penstock.bench.load_result import Result
from penstock.bench.measurement import MESSAGES_MIN, fitting_count, run_scenario
from penstock.bench.sample_stats import Latency, Spread, ratio
from penstock.bench.scenarios import Scenario, jetstream_setting
from penstock.bench.server_process import ServerCommand, running

ROUNDS_DEFAULT = 5
SECONDS_DEFAULT = 1.5
QUICK_ROUNDS = 3
QUICK_SECONDS = 0.5
WARM_UP_SHARE = 10  # the warm-up sends this fraction (1/10) of the measured run's messages

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds per scenario and the desired duration of one run."""

    rounds: int = ROUNDS_DEFAULT
    seconds: float = SECONDS_DEFAULT


@dataclass(slots=True)
class Series:
    """All runs of one scenario on one server."""

    label: str
    scenario: Scenario
    results: list[Result] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def rate(self) -> Spread | None:
        return _spread([result.rate for result in self.results])

    @property
    def cpu_per_million(self) -> Spread | None:
        return _spread([result.cpu_per_million for result in self.results])

    @property
    def megabytes_per_second(self) -> Spread | None:
        return _spread([result.megabytes_per_second for result in self.results])

    @property
    def rss_peak_bytes(self) -> Spread | None:
        return _spread([result.rss_peak_bytes for result in self.results])

    @property
    def latency(self) -> Latency | None:
        """Return the median over the runs of each percentile."""
        found = [result.latency for result in self.results if result.latency is not None]
        if not found:
            return None
        return Latency(
            int(median(one.p50_ns for one in found)),
            int(median(one.p90_ns for one in found)),
            int(median(one.p99_ns for one in found)),
            int(median(one.max_ns for one in found)),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same scenario on both servers."""

    ours: Series
    reference: Series

    @property
    def scenario(self) -> Scenario:
        return self.ours.scenario

    @property
    def rate_ratio(self) -> float | None:
        """Return ours divided by the reference: above 1 is better."""
        return ratio(_middle(self.ours.rate), _middle(self.reference.rate))

    @property
    def cpu_advantage(self) -> float | None:
        """Return CPU per message of the reference divided by ours: above 1 is better."""
        return ratio(_middle(self.reference.cpu_per_million), _middle(self.ours.cpu_per_million))


def survey(
    scenario: Scenario,
    endpoint: ServerEndpoint,
    pid: int | None,
    effort: Effort,
    progress: Progress,
) -> Series:
    """Run a scenario repeatedly against a running server."""
    series = Series(str(endpoint), scenario)
    try:
        progress(f"{scenario.name}: sizing")
        count = fitting_count(scenario, endpoint, effort.seconds)
    except BenchError as error:
        series.failures.append(str(error))
        return series
    for number in range(1, effort.rounds + 1):
        progress(f"{scenario.name}: round {number} of {effort.rounds}")
        try:
            series.results.append(run_scenario(scenario, endpoint, count, pid))
        except BenchError as error:
            series.failures.append(str(error))
    return series


def compare(
    scenarios: Sequence[Scenario],
    ours: ServerCommand,
    reference: ServerCommand,
    effort: Effort,
    progress: Progress,
) -> Iterator[Comparison]:
    """Yield one comparison per scenario, as soon as its rounds are done."""
    for scenario in scenarios:
        comparison = Comparison(Series(ours.label, scenario), Series(reference.label, scenario))
        sides = ((ours, comparison.ours), (reference, comparison.reference))
        counts = [_size(command, series, effort, progress) for command, series in sides]
        for number in range(1, effort.rounds + 1):
            for (command, series), count in zip(sides, counts, strict=True):
                progress(f"{scenario.name}: round {number} of {effort.rounds}, {command.label}")
                _fresh_run(command, series, count)
        yield comparison


def _size(command: ServerCommand, series: Series, effort: Effort, progress: Progress) -> int:
    """Return the message count for the desired duration; the minimum if trials fail."""
    progress(f"{series.scenario.name}: sizing, {command.label}")
    with running(command, jetstream_setting(series.scenario)) as server:
        try:
            return fitting_count(series.scenario, server.endpoint, effort.seconds)
        except BenchError as error:
            series.failures.append(f"sizing: {error}")
            return MESSAGES_MIN


def _fresh_run(command: ServerCommand, series: Series, count: int) -> None:
    with running(command, jetstream_setting(series.scenario)) as server:
        try:
            warm_up = max(MESSAGES_MIN, count // WARM_UP_SHARE)
            run_scenario(series.scenario, server.endpoint, warm_up)
            result = run_scenario(series.scenario, server.endpoint, count, server.pid)
            series.results.append(result)
        except BenchError as error:
            series.failures.append(str(error))


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def _middle(spread: Spread | None) -> float | None:
    return spread.median if spread else None
