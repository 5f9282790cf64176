"""The standard suite is complete, named once each, and selectable."""

from penstock.bench.scenarios import QUICK, STANDARD, PubSub, select


def test_names_and_titles_are_unique() -> None:
    assert len({scenario.name for scenario in STANDARD}) == len(STANDARD)
    assert len({scenario.title for scenario in STANDARD}) == len(STANDARD)


def test_the_quick_set_is_part_of_the_suite() -> None:
    assert [scenario.name for scenario in select(QUICK)] == list(QUICK)


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


def test_a_queue_group_shares_and_plain_subscribers_multiply() -> None:
    assert PubSub("a", 1, subscribers=4).copies == 4
    assert PubSub("a", 1, subscribers=4, queue=True).copies == 1
    assert PubSub("a", 1, queue=True).copies == 0


def test_a_title_says_what_is_special() -> None:
    odd = PubSub("a", 2048, publishers=2, subscribers=3, subjects=5000, queue=True, headers=True)
    assert odd.title == "2 → 3 · 2 KiB · 5 k subjects · headers · queue group"
