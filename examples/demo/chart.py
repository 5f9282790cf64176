"""The chart of the demo: progress of each copy, throughput, lag, and whether the copies agree."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from examples.demo.feed import STATES
from examples.demo.gauges import ARCHIVE, EDGE, LIVE, PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from examples.demo.story import Story

INCHES = (12, 7.5)
RATE_SECONDS = 0.25
COLOURS = {PUBLISHED: "#555555", LIVE: "#1f77b4", EDGE: "#d95f02", ARCHIVE: "#2ca02c"}


def draw(path: Path, story: Story) -> None:
    """Write the chart as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    layout = [["progress"] * 3, ["rate", "lag", "copies"]]
    figure, axes = pyplot.subplot_mosaic(
        layout, figsize=INCHES, layout="constrained", height_ratios=[3, 2]
    )
    _progress(axes["progress"], story)
    _rates(axes["rate"], story)
    _lags(axes["lag"], story)
    _copies(axes["copies"], story)
    figure.savefig(path)
    pyplot.close(figure)


def _progress(axis: Any, story: Story) -> None:
    """The revision of each copy; the steps are bands behind the lines."""
    for number, step in enumerate(story.steps.done):
        axis.axvspan(step.began, step.ended, color="#000000", alpha=0.03 + 0.04 * (number % 2))
        axis.text(
            (step.began + step.ended) / 2, 0.02, str(number + 1), fontsize=8, ha="center",
            color="#777777", transform=axis.get_xaxis_transform(),
        )  # fmt: skip
    for name, colour in COLOURS.items():
        taken = story.gauges.samples.get(name)
        if taken:
            times, counts = zip(*taken, strict=True)
            marker = "o" if name == ARCHIVE else None
            style = "--" if name == PUBLISHED else "-"
            axis.plot(times, counts, style, label=name, color=colour, marker=marker)
    axis.set_title("changes that each copy has; the numbers are the steps on the right")
    axis.set_xlabel("seconds")
    names = [f"{number}  {step.name}" for number, step in enumerate(story.steps.done, 1)]
    axis.text(1.01, 1.0, "\n".join(names), transform=axis.transAxes, va="top", fontsize=8)
    axis.legend(loc="upper left")
    axis.grid(alpha=0.3)


def _rates(axis: Any, story: Story) -> None:
    for name in (PUBLISHED, LIVE, EDGE):
        rates = story.gauges.rates(name, RATE_SECONDS)
        if rates:
            axis.plot(*zip(*rates, strict=True), ".-", label=name, color=COLOURS[name])
    axis.set_title("changes per second")
    axis.set_xlabel("changes published")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)


def _lags(axis: Any, story: Story) -> None:
    for name in (LIVE, EDGE):
        lags = story.gauges.lags(name)
        if lags:
            axis.plot(*zip(*lags, strict=True), label=name, color=COLOURS[name])
    axis.set_title("lag: changes a fold did not have yet")
    axis.set_xlabel("changes published")
    axis.set_yscale("symlog", linthresh=10)  # the catch-up is a thousand times the usual lag
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)


def _copies(axis: Any, story: Story) -> None:
    """The parcels by state in what was published and in each copy: equal bars agree."""
    bars = {"published": _states(story.expected)}
    bars |= {copy.name.replace(", ", "\n"): _states(copy.values) for copy in story.copies}
    left = [0] * len(bars)
    for state in STATES:
        counts = [by_state[state] for by_state in bars.values()]
        axis.barh(list(bars), counts, left=left, label=state)
        left = [one + more for one, more in zip(left, counts, strict=True)]
    digests = {copy.digest for copy in story.copies}
    axis.set_title(
        "parcels by state: " + ("digests agree" if len(digests) == 1 else "DIGESTS DIFFER")
    )
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=8)
    axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=5)


def _states(values: Mapping[str, bytes]) -> Counter[str]:
    return Counter(json.loads(value)["state"] for value in values.values())
