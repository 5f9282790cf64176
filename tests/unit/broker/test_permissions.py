"""Permission decisions by example; the whole space is covered by the property suite."""

import pytest

from penstock.broker.permission_values import Permissions, ResponsePermission, SubjectPermission
from penstock.broker.permissions import (
    REPLY_GRANTS_MAX,
    CompiledPermissions,
    ResponseGrants,
    compile_permissions,
)

SECOND_NS = 1_000_000_000


def subscribing(*, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> CompiledPermissions:
    return compile_permissions(Permissions(subscribe=SubjectPermission(allow=allow, deny=deny)))


def publishing(
    *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), respond: bool = False
) -> CompiledPermissions:
    return compile_permissions(
        Permissions(
            publish=SubjectPermission(allow=allow, deny=deny),
            responses=ResponsePermission() if respond else None,
        )
    )


def test_no_lists_restrict_nothing() -> None:
    compiled = compile_permissions(Permissions())
    assert compiled.may_publish("a")
    assert compiled.may_subscribe(">", "q")
    assert not compiled.needs_delivery_filter(">")
    assert compiled.pub_allow is None


def test_empty_allow_list_restricts_nothing() -> None:
    assert publishing(allow=()).may_publish("a")
    assert subscribing(allow=()).may_subscribe("a")


def test_deny_wins_over_allow() -> None:
    assert not publishing(allow=("a.>",), deny=("a.*.c",)).may_publish("a.b.c")
    assert not subscribing(allow=("a.>",), deny=("a.b",)).may_subscribe("a.b")


def test_leave_to_respond_closes_every_publish_that_is_not_listed() -> None:
    silent = compile_permissions(Permissions(responses=ResponsePermission()))
    assert silent.pub_allow == ()
    assert not silent.may_publish("a")
    assert not publishing(deny=("b",), respond=True).may_publish("a")
    assert publishing(allow=("a",), respond=True).may_publish("a")


@pytest.mark.parametrize("subject", ["foo.*", "foo.a", "foo.>"])
def test_subscription_equal_to_or_inside_deny_entry_is_refused(subject: str) -> None:
    assert not subscribing(deny=("foo.*",)).may_subscribe(subject)


@pytest.mark.parametrize("subject", [">", "*.*", "*.a", "*.>"])
def test_subscription_overlapping_deny_entry_is_filtered(subject: str) -> None:
    compiled = subscribing(deny=("foo.*",))
    assert compiled.may_subscribe(subject)
    assert compiled.needs_delivery_filter(subject)
    assert compiled.delivery_denied("foo.a")
    assert not compiled.delivery_denied("bar.a")


def test_subscription_apart_from_every_deny_entry_needs_no_filter() -> None:
    assert not subscribing(deny=("foo.*",)).needs_delivery_filter("bar.>")
    assert not subscribing(deny=("foo.*",)).needs_delivery_filter("foo.a.b")


def test_wildcard_subscription_must_lie_inside_allow_entry() -> None:
    compiled = subscribing(allow=("in.*", "_INBOX.>"))
    assert compiled.may_subscribe("in.*")
    assert compiled.may_subscribe("_INBOX.nuid.*")
    assert not compiled.may_subscribe(">")
    assert not compiled.may_subscribe("*.a")
    assert not compiled.may_subscribe("in.>")


def test_queue_entry_allows_only_queues_of_that_name() -> None:
    compiled = subscribing(allow=("foo v1.*",))
    assert compiled.may_subscribe("foo", "v1.prod")
    assert not compiled.may_subscribe("foo", "v2.prod")
    assert not compiled.may_subscribe("foo", "v1.>")
    assert not compiled.may_subscribe("foo")


def test_queue_entry_narrows_what_plain_entry_allows() -> None:
    compiled = subscribing(allow=("*", "foo q"))
    assert compiled.may_subscribe("foo")
    assert compiled.may_subscribe("foo", "q")
    assert not compiled.may_subscribe("foo", "r")
    assert compiled.may_subscribe("bar", "r")


def test_queue_deny_entry_speaks_of_that_queue_only() -> None:
    compiled = subscribing(deny=("foo q",))
    assert compiled.may_subscribe("foo")
    assert compiled.may_subscribe("foo", "r")
    assert not compiled.may_subscribe("foo", "q")
    assert compiled.may_subscribe("*", "q")
    assert compiled.needs_delivery_filter("*", "q")
    assert not compiled.needs_delivery_filter("*", "r")
    assert compiled.delivery_denied("foo", "q")
    assert not compiled.delivery_denied("foo", "r")
    assert not compiled.delivery_denied("foo")


def test_plain_deny_entry_binds_queues_even_beside_queue_entry() -> None:
    compiled = subscribing(deny=("foo", "foo q"))
    assert not compiled.may_subscribe("foo", "r")
    assert compiled.delivery_denied("foo", "r")


def test_grant_is_used_up_by_its_answers() -> None:
    grants = ResponseGrants(ResponsePermission(max_msgs=2))
    assert not grants.take("reply", 0)
    grants.grant("reply", 0)
    assert [grants.take("reply", 1) for _ in range(4)] == [True, True, False, False]
    assert len(grants) == 0


def test_grant_ends_with_its_time() -> None:
    grants = ResponseGrants(ResponsePermission(max_msgs=9, expires_ns=SECOND_NS))
    grants.grant("reply", 0)
    assert grants.take("reply", SECOND_NS)
    assert not grants.take("reply", SECOND_NS + 1)


def test_lifted_bounds_let_grant_live_for_ever() -> None:
    grants = ResponseGrants(ResponsePermission(max_msgs=-1, expires_ns=-1))
    grants.grant("reply", 0)
    assert all(grants.take("reply", 10**18) for _ in range(100))


def test_second_request_uses_up_living_grant_and_renews_spent_one() -> None:
    grants = ResponseGrants(ResponsePermission(max_msgs=1))
    grants.grant("reply", 0)
    grants.grant("reply", 0)
    assert not grants.take("reply", 0)
    grants.grant("reply", 0)
    assert grants.take("reply", 0)


def test_grants_are_bounded_and_spent_ones_go_first() -> None:
    grants = ResponseGrants(ResponsePermission())
    for number in range(REPLY_GRANTS_MAX):
        grants.grant(f"reply.{number}", number)
    assert grants.take("reply.7", 0)
    grants.grant("new", REPLY_GRANTS_MAX)
    assert len(grants) == REPLY_GRANTS_MAX
    assert grants.take("reply.0", 0)


def test_past_bound_the_oldest_living_grant_goes() -> None:
    grants = ResponseGrants(ResponsePermission(max_msgs=-1, expires_ns=-1))
    for number in range(REPLY_GRANTS_MAX + 1):
        grants.grant(f"reply.{number}", number)
    assert len(grants) == REPLY_GRANTS_MAX
    assert not grants.take("reply.0", 0)
    assert grants.take("reply.1", 0)
