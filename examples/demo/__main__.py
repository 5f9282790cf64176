"""`python -m examples.demo`: runs the demo, draws a chart, and exits with 1 if copies differ."""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from examples.demo.chart import draw
from examples.demo.copies import disagreements
from examples.demo.feed import make_feed
from examples.demo.gauges import Gauges
from examples.demo.screen import Steps, show
from examples.demo.sparkside import started
from examples.demo.story import Story, play
from rich.console import Console

PARCELS = 3_000


def conclude(story: Story, chart: Path, console: Console) -> int:
    """Print the results, draw the chart, and return the exit code."""
    show(console, story)
    draw(chart, story)
    console.print(f"chart: {chart}, log: {chart.with_suffix('.log')}")
    wrong = disagreements(story.copies, story.expected) + story.findings
    for line in wrong:
        console.print(f"[red]{line}[/]")
    console.print("[red]copies differ[/]" if wrong else "[green]all copies agree[/]")
    return 1 if wrong else 0


@contextlib.contextmanager
def stderr_in(log: Path) -> Iterator[None]:
    """Let this process, and those it starts, write to the log in place of stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument(
        "--parcels", type=int, default=PARCELS, help="number of parcels in the feed"
    )
    parser.add_argument(
        "--chart", type=Path, default=Path("out/demo.svg"), help="file of the chart"
    )
    given = parser.parse_args()
    console = Console()
    gauges = Gauges()
    steps = Steps(console, gauges)
    log = given.chart.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=log, filemode="w", level=logging.WARNING)
    with steps.step("Spark starts") as step:
        with stderr_in(log):  # the JVM keeps it, with the notices of Spark and Java
            spark = started()
        step.detail = f"version {spark.version}" if spark else "THERE IS NO JAVA, so without Spark"
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as place:
            story = Story(Path(place), make_feed(given.parcels), steps, spark, gauges)
            asyncio.run(play(story))
    finally:
        if spark is not None:
            spark.stop()
    return conclude(story, given.chart, console)


if __name__ == "__main__":
    sys.exit(main())
