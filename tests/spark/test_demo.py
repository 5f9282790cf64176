"""The demo tells its story, and notices when a copy is not what it should be."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PARCELS = 40


@pytest.fixture(autouse=True)
def _examples_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


async def test_all_copies_of_demo_agree(spark: SparkSession, tmp_path: Path) -> None:
    from examples.demo.__main__ import conclude
    from examples.demo.feed import make_feed
    from examples.demo.gauges import ARCHIVE, EDGE, LIVE, PUBLISHED, Gauges
    from examples.demo.screen import Steps
    from examples.demo.story import Story, play

    printed = io.StringIO()
    console = Console(file=printed, width=120)
    gauges = Gauges()
    story = Story(tmp_path, make_feed(PARCELS), Steps(console, gauges), spark, gauges)
    await play(story)
    assert conclude(story, tmp_path / "chart.svg", console) == 0
    assert [len(copy.values) for copy in story.copies] == [len(story.expected)] * 3
    assert "all copies agree" in printed.getvalue()
    last = {name: taken[-1][1] for name, taken in gauges.samples.items()}
    assert last == dict.fromkeys([PUBLISHED, LIVE, EDGE, ARCHIVE], len(story.feed))
    assert (tmp_path / "chart.svg").read_text().lstrip().startswith("<?xml")


async def test_without_spark_folds_still_agree(tmp_path: Path) -> None:
    from examples.demo.__main__ import conclude
    from examples.demo.copies import Copy
    from examples.demo.feed import make_feed
    from examples.demo.gauges import Gauges
    from examples.demo.screen import Steps
    from examples.demo.story import Story, play

    console = Console(file=io.StringIO())
    gauges = Gauges()
    story = Story(tmp_path, make_feed(PARCELS), Steps(console, gauges), None, gauges)
    await play(story)
    assert conclude(story, tmp_path / "chart.svg", console) == 0
    spoiled = {**story.expected, min(story.expected): b'{"state": "lost"}'}
    last = story.copies[-1]
    story.copies.append(Copy("spoiled", last.cursor, last.digest, spoiled))
    assert conclude(story, tmp_path / "chart.svg", console) == 1


def test_copies_of_other_revisions_or_values_differ() -> None:
    from examples.demo.copies import Copy, disagreements

    one = Copy("one", 2, "d", {"a": b"1"})
    assert disagreements([one, one], {"a": b"1"}) == []
    assert disagreements([one], {}) == ["one: 1 keys are wrong, as a"]
    later = Copy("later", 3, "d", {"a": b"1"})
    assert disagreements([one, later], {"a": b"1"}) == ["later: revisions differ from those of one"]


def test_feed_is_the_same_every_time_and_holds_what_it_reports() -> None:
    from examples.demo.feed import make_feed, outcome

    feed = make_feed(PARCELS)
    assert feed == make_feed(PARCELS)
    deleted = {change.key for change in feed if change.value is None}
    held = outcome(feed)
    assert deleted
    assert held.keys() == {change.key for change in feed} - deleted
