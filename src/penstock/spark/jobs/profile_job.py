"""Profile of a stream: volume, sizes, number of subjects, and their development over time.

Spark makes one pass over the rows for the totals, one for the subjects, and one for the timeline.
The driver draws the chart from the timeline, as PNG or SVG by the extension of the file name.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame

INTERVAL: Final = "1 hour"
TOP: Final = 20
DEPTH: Final = 2
INTERVALS_MAX: Final = 10_000
QUANTILES: Final = (0.5, 0.99)
CHART_INCHES: Final = (9, 7)


@dataclass(frozen=True, slots=True)
class SubjectShare:
    """Totals of the subjects with a common prefix."""

    subjects: str
    messages: int
    bytes: int
    distinct: int


@dataclass(frozen=True, slots=True)
class Moment:
    """One interval of the timeline."""

    start: datetime
    messages: int
    bytes: int
    subjects: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The whole profile. Numbers of distinct subjects are estimates, within a few percent."""

    messages: int
    bytes: int
    subjects: int
    first: datetime | None
    last: datetime | None
    size_median: int
    size_p99: int
    size_max: int
    shares: tuple[SubjectShare, ...]
    timeline: tuple[Moment, ...]


def profile(
    rows: DataFrame, *, interval: str = INTERVAL, top: int = TOP, depth: int = DEPTH
) -> Profile:
    """Profile messages: the `top` subject prefixes of `depth` tokens, and a timeline with a step of
    `interval`."""
    from pyspark.sql import functions as f

    narrow = rows.select("subject", "timestamp", "size")
    distinct = f.approx_count_distinct("subject").alias("subjects")
    counted = (f.count("*").alias("messages"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"))
    whole = narrow.agg(
        *counted,
        distinct,
        f.min("timestamp").alias("first"),
        f.max("timestamp").alias("last"),
        f.percentile_approx("size", list(QUANTILES)).alias("sizes"),
        f.max("size").alias("size_max"),
    ).collect()[0]
    beginning = f.array_join(f.slice(f.split("subject", r"\."), 1, depth), ".")
    shares = narrow.groupBy(beginning.alias("beginning")).agg(*counted, distinct)
    largest = shares.orderBy(f.desc("messages"), "beginning").limit(top).collect()
    window = f.window("timestamp", interval).start.alias("start")
    timeline = narrow.groupBy(window).agg(*counted, distinct).orderBy("start")
    moments = [
        Moment(row.start, row.messages, row.bytes, row.subjects)
        for row in timeline.limit(INTERVALS_MAX).collect()
    ]
    return Profile(
        messages=whole.messages,
        bytes=whole.bytes,
        subjects=whole.subjects,
        first=whole["first"],
        last=whole["last"],
        size_median=whole.sizes[0] if whole.sizes else 0,
        size_p99=whole.sizes[1] if whole.sizes else 0,
        size_max=whole.size_max or 0,
        shares=tuple(
            SubjectShare(row.beginning, row.messages, row.bytes, row.subjects) for row in largest
        ),
        timeline=tuple(with_idle(moments)),
    )


def with_idle(moments: Sequence[Moment]) -> list[Moment]:
    """Return the same, with an empty moment for each interval in between without messages.

    The step is the smallest distance, which must divide all others. Where it does not, as with
    months, or where the intervals would be too many, one empty moment marks the start of a pause
    and one its end.
    """
    if len(moments) < 2:
        return list(moments)
    step = min(later.start - one.start for one, later in pairwise(moments))
    found = [moments[0]]
    count = (moments[-1].start - moments[0].start) // step + 1
    for one, later in pairwise(moments):
        pause, rest = divmod(later.start - one.start, step)
        if count > INTERVALS_MAX or rest:
            starts = [one.start + step, later.start - step] if pause > 1 else []
        else:
            starts = [one.start + step * n for n in range(1, pause)]
        found += [Moment(start, 0, 0, 0) for start in dict.fromkeys(starts)]
        found.append(later)
    return found


def draw(found: Profile, path: Path, *, title: str = "") -> None:
    """Draw the timeline as a chart; the extension of the file name selects the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=CHART_INCHES, layout="constrained")
    times = [moment.start for moment in found.timeline]
    for axis, (name, values) in zip(
        axes,
        (
            ("messages", [moment.messages for moment in found.timeline]),
            ("bytes", [moment.bytes for moment in found.timeline]),
            ("subjects", [moment.subjects for moment in found.timeline]),
        ),
        strict=True,
    ):
        axis.plot(times, values, drawstyle="steps-post", marker="." if len(times) == 1 else "")
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.suptitle(title)
    figure.autofmt_xdate()
    figure.savefig(path)
    pyplot.close(figure)
