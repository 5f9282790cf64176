"""The standard suite is complete, named once each, and selectable."""

import pytest

from penstock.bench.scenarios import (
    CORE,
    JETSTREAM,
    JETSTREAM_QUICK,
    QUICK,
    STANDARD,
    Durability,
    PubSub,
    StreamPublish,
    fits_any_server,
    jetstream_setting,
    select,
)


def test_names_and_titles_are_unique() -> None:
    assert len({scenario.name for scenario in STANDARD}) == len(STANDARD)
    assert len({scenario.title for scenario in STANDARD}) == len(STANDARD)


@pytest.mark.parametrize("quick", [QUICK, JETSTREAM_QUICK])
def test_quick_set_is_part_of_suite(quick: tuple[str, ...]) -> None:
    assert [scenario.name for scenario in select(quick)] == list(quick)


def test_patterns_select_in_suite_order_without_doubles() -> None:
    names = [scenario.name for scenario in select(["request-*", "publish-1*", "publish-16B"])]
    assert names == [
        "publish-16B",
        "publish-128B",
        "publish-1KiB",
        "publish-128B-10k-subjects",
        "publish-128B-headers",
        "request-1",
        "request-16",
    ]
    assert select(["nothing"]) == []


def test_queue_group_shares_and_plain_subscribers_multiply() -> None:
    assert PubSub("a", 1, subscribers=4).copies == 4
    assert PubSub("a", 1, subscribers=4, queue=True).copies == 1
    assert PubSub("a", 1, queue=True).copies == 0


def test_title_names_what_is_special() -> None:
    odd = PubSub("a", 2048, publishers=2, subscribers=3, subjects=5000, queue=True, headers=True)
    assert odd.title == "2 → 3 · 2 KiB · 5 k subjects · headers · queue group"


def test_jetstream_suite_has_each_durability_where_something_is_stored_in_files() -> None:
    stored = [one for one in JETSTREAM if isinstance(one, StreamPublish) and one.storage == "file"]
    for shipped in [one for one in stored if one.durability is Durability.SHIPPED]:
        names = [f"{shipped.name}-always", f"{shipped.name}-lazy"]
        assert [one.name for one in select(names)] == names


def test_only_jetstream_scenarios_configure_servers_and_only_shipped_ones_fit_any() -> None:
    assert {jetstream_setting(one) for one in CORE} == {None}
    assert {jetstream_setting(one) for one in JETSTREAM} == {one.setting for one in Durability}
    assert all(fits_any_server(one) for one in CORE)
    assert not any(fits_any_server(one) for one in select(["*-always", "*-lazy"]))
