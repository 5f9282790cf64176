"""`python -m examples.demo`: tells the story, draws it, and ends with code 1 if copies differ."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from examples.demo.copies import disagreements
from examples.demo.feed import make_feed
from examples.demo.screen import Steps, draw, show
from examples.demo.sparkside import started
from examples.demo.story import Story, tell
from rich.console import Console

PARCELS = 3_000


def conclude(story: Story, chart: Path, console: Console) -> int:
    """Show what came of a story, and draw it; the exit code."""
    show(console, story)
    draw(chart, story)
    console.print(f"chart: {chart}")
    wrong = disagreements(story.copies, story.expected) + story.findings
    for line in wrong:
        console.print(f"[red]{line}[/]")
    console.print("[red]copies differ[/]" if wrong else "[green]all copies agree[/]")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--parcels", type=int, default=PARCELS, help="how much goes on")
    parser.add_argument(
        "--chart", type=Path, default=Path("out/demo.svg"), help="where it is drawn"
    )
    given = parser.parse_args()
    console = Console()
    steps = Steps(console)
    with steps.step("Spark starts") as said:
        spark = started()
        said.detail = f"version {spark.version}" if spark else "THERE IS NO JAVA, so without Spark"
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as place:
            story = Story(Path(place), make_feed(given.parcels), steps, spark)
            asyncio.run(tell(story))
    finally:
        if spark is not None:
            spark.stop()
    return conclude(story, given.chart, console)


if __name__ == "__main__":
    sys.exit(main())
