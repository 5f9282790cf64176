"""Compiled permissions agree with the naive model on every question."""

from hypothesis import given
from hypothesis import strategies as st

from models import permissions as model
from models.subjects import ALPHABET, LITERALS, TOKENS_MAX, matched, matches
from penstock.broker.permission_values import Permissions, ResponsePermission, SubjectPermission
from penstock.broker.permissions import compile_permissions
from penstock.subjects.tokens import is_valid_subject

TOKEN = st.sampled_from((*ALPHABET, "*", "*", ">"))
PATTERN = st.lists(TOKEN, min_size=1, max_size=TOKENS_MAX).map(".".join).filter(is_valid_subject)
QUEUE = st.none() | PATTERN
ENTRY = st.tuples(PATTERN, QUEUE).map(lambda pair: " ".join(filter(None, pair)))


def lists(entry: st.SearchStrategy[str]) -> st.SearchStrategy[SubjectPermission | None]:
    several = st.lists(entry, max_size=4).map(tuple)
    return st.none() | st.builds(SubjectPermission, allow=st.none() | several, deny=several)


PERMISSIONS = st.builds(
    Permissions,
    publish=lists(PATTERN),
    subscribe=lists(ENTRY),
    responses=st.none() | st.just(ResponsePermission()),
)


@given(PERMISSIONS, st.sampled_from(LITERALS))
def test_publish_is_decided_as_in_model(permissions: Permissions, subject: str) -> None:
    compiled = compile_permissions(permissions)
    assert compiled.may_publish(subject) == model.may_publish(permissions, subject)


@given(PERMISSIONS, PATTERN, QUEUE)
def test_subscription_is_decided_as_in_model(
    permissions: Permissions, subject: str, queue: str | None
) -> None:
    compiled = compile_permissions(permissions)
    expected = model.may_subscribe(permissions, subject, queue)
    assert compiled.may_subscribe(subject, queue) == expected


@given(PERMISSIONS, PATTERN, QUEUE)
def test_filter_holds_back_exactly_what_is_denied(
    permissions: Permissions, subject: str, queue: str | None
) -> None:
    compiled = compile_permissions(permissions)
    let_through = {
        literal for literal in matched(subject) if not compiled.delivery_denied(literal, queue)
    }
    assert let_through == model.receives(permissions, subject, queue)


@given(PERMISSIONS, PATTERN, QUEUE)
def test_subscription_without_filter_never_meets_denied_subject(
    permissions: Permissions, subject: str, queue: str | None
) -> None:
    compiled = compile_permissions(permissions)
    if not compiled.may_subscribe(subject, queue):
        return
    loses_some = model.receives(permissions, subject, queue) != matched(subject)
    assert compiled.needs_delivery_filter(subject, queue) == loses_some


@given(PERMISSIONS, st.sampled_from(LITERALS))
def test_tuples_for_data_plane_carry_whole_publish_decision(
    permissions: Permissions, subject: str
) -> None:
    compiled = compile_permissions(permissions)
    allow, deny = compiled.pub_allow, compiled.pub_deny
    allowed = allow is None or any(matches(subject, pattern) for pattern in allow)
    denied = any(matches(subject, pattern) for pattern in deny)
    assert compiled.may_publish(subject) == (allowed and not denied)
