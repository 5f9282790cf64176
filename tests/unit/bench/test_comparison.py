"""Series and comparisons boil runs down without hiding failures."""

import json

from penstock.bench.comparison import Comparison, Effort, Series
from penstock.bench.load_result import Result
from penstock.bench.report import comparison_chart, comparison_json
from penstock.bench.sample_stats import Latency
from penstock.bench.scenarios import PubSub

SCENARIO = PubSub("one", 100)


def result(seconds: float, cpu: float | None, latency: Latency | None = None) -> Result:
    return Result("one", 1_000_000, 0, 100, seconds, cpu, 1024, latency)


def series(label: str, *results: Result) -> Series:
    return Series(label, SCENARIO, list(results))


def test_result_derives_rate_cpu_and_volume_from_published_messages() -> None:
    one = result(0.5, 0.25)
    assert one.rate == 2_000_000
    assert one.cpu_per_million == 0.25
    assert one.megabytes_per_second == 200.0
    assert result(0.5, None).cpu_per_million is None


def test_ratios_compare_medians_so_one_outlier_changes_nothing() -> None:
    ours = series("ours", result(1.0, 0.1), result(1.0, 0.1), result(50.0, 5.0))
    reference = series("ref", result(2.0, 0.4), result(2.0, 0.4), result(2.0, 0.4))
    comparison = Comparison(ours, reference)
    assert comparison.rate_ratio == 2.0
    assert comparison.cpu_advantage == 4.0


def test_side_without_results_has_no_ratio() -> None:
    comparison = Comparison(series("ours"), series("ref", result(1.0, 1.0)))
    assert comparison.rate_ratio is None
    assert comparison.cpu_advantage is None


def test_latency_of_series_is_median_of_each_percentile() -> None:
    runs = [result(1.0, None, Latency(p50, 20, 30, 40)) for p50 in (1, 9, 2)]
    assert series("ours", *runs).latency == Latency(2, 20, 30, 40)
    assert series("ours", result(1.0, None)).latency is None


def test_json_keeps_every_run_and_every_failure() -> None:
    ours = series("ours", result(1.0, 0.1), result(2.0, 0.1))
    ours.failures.append("lost")
    comparison = Comparison(ours, series("ref", result(4.0, 0.2)))
    document = json.loads(comparison_json([comparison], Effort(2, 0.5)))
    (scenario,) = document["scenarios"]
    assert document["version"] == 1
    assert document["effort"] == {"rounds": 2, "seconds": 0.5}
    assert [run["seconds"] for run in scenario["ours"]["runs"]] == [1.0, 2.0]
    assert scenario["ours"]["failures"] == ["lost"]
    assert scenario["cpu_advantage"] == 2.0


def test_chart_of_comparison_names_both_servers() -> None:
    text = comparison_chart([Comparison(series("ours", result(1.0, 0.1)), series("ref"))])
    assert "ours against ref" in text
