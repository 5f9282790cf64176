"""What the process costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.monitor import process_usage

if TYPE_CHECKING:
    import pytest


def test_memory_and_processors_are_those_of_this_process() -> None:
    assert process_usage.resident_bytes() > 1_000_000
    assert 1 <= process_usage.usable_processors() <= process_usage.processors()


def test_share_is_measured_between_looks_moment_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = {"now": 0, "spent": 0}
    monkeypatch.setattr(process_usage.time, "monotonic_ns", lambda: clock["now"])
    monkeypatch.setattr(process_usage.time, "process_time_ns", lambda: clock["spent"])
    share = process_usage.ProcessorShare()
    clock.update(now=2_000_000_000, spent=500_000_000)
    assert share.percent() == 25.0
    clock.update(now=2_100_000_000, spent=600_000_000)
    assert share.percent() == 25.0, "too soon to look again"
    clock.update(now=4_000_000_000, spent=500_000_000)
    assert share.percent() == 0.0
