"""`penstock bench`: load a NATS server and report its rate and its cost.

It loads a running server (`--url`), or starts ours and the reference and compares them
(`--compare`). The exit code is 0 when everything was measured, 1 when a run failed, 2 for a wrong
command line, 130 when interrupted. Errors are one plain line on standard error, never a traceback.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from penstock.bench import report
from penstock.bench.bench_error import BenchError
from penstock.bench.comparison import (
    QUICK_ROUNDS,
    QUICK_SECONDS,
    ROUNDS_DEFAULT,
    SECONDS_DEFAULT,
    Effort,
    Series,
    compare,
    survey,
)
from penstock.bench.load.raw_client import ServerEndpoint, open_client
from penstock.bench.probes.figures import Figure, Probe
from penstock.bench.probes.idle import allow_connections, probe_idle
from penstock.bench.probes.stalled import probe_stalled
from penstock.bench.probes.subscriptions import probe_subscriptions
from penstock.bench.scenarios import (
    CORE,
    JETSTREAM,
    JETSTREAM_QUICK,
    QUICK,
    STANDARD,
    Scenario,
    fits_any_server,
    select,
)
from penstock.bench.server_process import ServerCommand, our_command, reference_command, running
from penstock.cli.argument_parser import Parser
from penstock.cli.cli_errors import error_line

NAME = "penstock bench"
DEFAULT_URL = "nats://127.0.0.1:4222"
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def run(argv: list[str]) -> int:
    """Run one command line and return the exit code."""
    parser = _parser()
    try:
        options = parser.parse_args(argv)
        _check_combination(parser, options)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    progress = report.ProgressLine()
    try:
        return _action(options)(options, progress)
    except BenchError as error:
        progress.clear()
        print(error_line(NAME, str(error)), file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        progress.clear()
        print(error_line(NAME, "interrupted"), file=sys.stderr)
        return EXIT_INTERRUPTED


Action = Callable[[argparse.Namespace, report.ProgressLine], int]


def _action(options: argparse.Namespace) -> Action:
    if options.list:
        return _list
    if _wants_probe(options):
        return _probe
    return _compare if options.compare else _survey


def _parser() -> Parser:
    parser = Parser(prog=NAME, description="Load a NATS server and measure rate, CPU and memory.")
    target = parser.add_argument_group("what to load")
    target.add_argument(
        "--url",
        type=_endpoint,
        default=DEFAULT_URL,
        help="a running server (default: %(default)s)",
    )
    target.add_argument("--pid", type=_positive, help="its process id, for CPU and memory")
    target.add_argument(
        "--compare", action="store_true", help="start ours and the reference, and compare them"
    )
    target.add_argument("--ours-cmd", metavar="CMD", help="how to start ours")
    target.add_argument("--reference-cmd", metavar="CMD", help="how to start the reference")
    _add_effort(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--list", action="store_true", help="list the scenarios and stop")
    output.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    output.add_argument("--chart", metavar="FILE", help="draw the comparison as SVG into FILE")
    probes = parser.add_argument_group("probes, in place of scenarios")
    one = probes.add_mutually_exclusive_group()
    one.add_argument("--idle-connections", type=_positive, metavar="N", help="memory of N clients")
    one.add_argument("--subscriptions", type=_positive, metavar="N", help="N subscriptions at once")
    one.add_argument(
        "--stalled-subscriber", action="store_true", help="a subscriber that stops reading"
    )
    return parser


def _add_effort(parser: argparse.ArgumentParser) -> None:
    effort = parser.add_argument_group("how much")
    effort.add_argument(
        "--jetstream", action="store_true", help="the scenarios of streams and buckets instead"
    )
    effort.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help="only these scenarios; may be repeated, may be a pattern such as '1-4-*'",
    )
    effort.add_argument(
        "--rounds", type=_positive, help=f"runs per scenario (default: {ROUNDS_DEFAULT})"
    )
    effort.add_argument(
        "--seconds",
        type=_seconds,
        help=f"wanted length of one run (default: {SECONDS_DEFAULT})",
    )
    effort.add_argument(
        "--quick",
        action="store_true",
        help=f"few scenarios, {QUICK_ROUNDS} rounds of {QUICK_SECONDS} s",
    )


def _endpoint(text: str) -> ServerEndpoint:
    try:
        return ServerEndpoint.parse(text)
    except BenchError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 20:
        raise argparse.ArgumentTypeError("must be above 0 and at most 20")
    return value


def _check_combination(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not _scenarios(options):
        parser.error(f"no scenario is called {' or '.join(options.scenario)}; --list shows them")
    if options.chart and (not options.compare or _wants_probe(options)):
        parser.error("--chart draws a comparison of scenarios: it needs --compare and no probe")
    configured = [one for one in _scenarios(options) if not fits_any_server(one)]
    if configured and not options.compare:
        parser.error(f"{configured[0].name} says how servers are configured: it needs --compare")
    if options.compare and options.pid:
        parser.error("--compare starts its own servers: leave --pid out")


def _wants_probe(options: argparse.Namespace) -> bool:
    return bool(options.idle_connections or options.subscriptions or options.stalled_subscriber)


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    if options.scenario:
        return select(options.scenario)
    if options.jetstream:
        suite = select(JETSTREAM_QUICK) if options.quick else list(JETSTREAM)
        return [one for one in suite if options.compare or fits_any_server(one)]
    return select(QUICK) if options.quick else list(CORE)


def _effort(options: argparse.Namespace) -> Effort:
    usual = Effort(QUICK_ROUNDS, QUICK_SECONDS) if options.quick else Effort()
    return Effort(options.rounds or usual.rounds, options.seconds or usual.seconds)


def _commands(options: argparse.Namespace) -> tuple[ServerCommand, ServerCommand]:
    return our_command(options.ours_cmd), reference_command(options.reference_cmd)


def _list(_options: argparse.Namespace, _progress: report.ProgressLine) -> int:
    width = max(len(scenario.name) for scenario in STANDARD)
    for scenario in STANDARD:
        print(f"{scenario.name:{width}}  {scenario.title}")
    return EXIT_OK


def _survey(options: argparse.Namespace, progress: report.ProgressLine) -> int:
    endpoint, effort = options.url, _effort(options)
    open_client(endpoint).close()  # an unreachable server is one error, not one per scenario
    all_series = [
        survey(scenario, endpoint, options.pid, effort, progress)
        for scenario in _scenarios(options)
    ]
    progress.clear()
    report.show_series(all_series)
    if options.json:
        report.write_text(options.json, report.series_json(all_series, effort))
    return _show_failures(all_series)


def _compare(options: argparse.Namespace, progress: report.ProgressLine) -> int:
    ours, reference = _commands(options)
    effort = _effort(options)
    comparisons = list(compare(_scenarios(options), ours, reference, effort, progress))
    progress.clear()
    report.show_comparisons(comparisons)
    if options.json:
        report.write_text(options.json, report.comparison_json(comparisons, effort))
    if options.chart:
        report.write_text(options.chart, report.comparison_chart(comparisons))
    return _show_failures([side for one in comparisons for side in (one.ours, one.reference)])


def _show_failures(all_series: Sequence[Series]) -> int:
    failures = [
        f"{series.scenario.name}, {series.label}: {text}"
        for series in all_series
        for text in series.failures
    ]
    for failure in failures:
        print(error_line(NAME, f"run failed: {failure}"), file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_OK


def _probe(options: argparse.Namespace, progress: report.ProgressLine) -> int:
    title, probe = _chosen_probe(options)
    columns: dict[str, list[Figure]] = {}
    if options.compare:
        for command in _commands(options):
            progress(f"{title}: {command.label}")
            with running(command) as server:
                columns[server.label] = probe(server.endpoint, server.pid)
    else:
        progress(f"{title}: {options.url}")
        columns[str(options.url)] = probe(options.url, options.pid)
    progress.clear()
    report.show_figures(title, columns)
    if options.json:
        report.write_text(options.json, report.figures_json(title, columns))
    return EXIT_OK


def _chosen_probe(options: argparse.Namespace) -> tuple[str, Probe]:
    if options.idle_connections:
        allow_connections(options.idle_connections)  # before a server inherits the limit
        return "idle connections", partial(probe_idle, count=options.idle_connections)
    if options.subscriptions:
        return "subscriptions", partial(probe_subscriptions, count=options.subscriptions)
    return "stalled subscriber", probe_stalled
