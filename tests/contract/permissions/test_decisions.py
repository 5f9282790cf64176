"""Compiled permissions against the reference server: same answers to SUB, PUB and delivery.

The reference gets a configuration with several dozen generated users, always the same ones; each
user then tries many subjects over a raw connection. Skipped where there is no reference server.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from models.permissions import inside_one
from models.subjects import ALPHABET, LITERALS, matched
from penstock.broker.permission_values import Permissions, ResponsePermission, SubjectPermission
from penstock.broker.permissions import compile_permissions
from penstock.subjects.tokens import is_valid_subject
from support.servers import REFERENCE, ServerPool, ServerUnderTest
from support.wire import Wire

pytestmark = pytest.mark.skipif(REFERENCE is None, reason="no reference server")

SEED = 20_150_101
USERS = 60
SUBSCRIPTIONS = 60
DELIVERIES = 12
PASSWORD = "x"
PUBLISHED = tuple(literal for literal in LITERALS if literal.count(".") < 3)

Subscription = tuple[str, str | None]


def draw_pattern(rng: random.Random) -> str:
    while True:
        tokens = rng.choices((*ALPHABET, "*", ">"), weights=(3, 3, 2, 3, 2), k=rng.randint(1, 3))
        if is_valid_subject(".".join(tokens)):
            return ".".join(tokens)


def draw_subscription(rng: random.Random) -> Subscription:
    return draw_pattern(rng), draw_pattern(rng) if rng.random() < 0.4 else None


def draw_entry(rng: random.Random) -> str:
    subject, queue = draw_subscription(rng)
    return subject if queue is None else f"{subject} {queue}"


def draw_direction(
    rng: random.Random, draw: Callable[[random.Random], str]
) -> SubjectPermission | None:
    def several() -> tuple[str, ...]:
        return tuple(draw(rng) for _ in range(rng.randint(1, 4)))

    if rng.random() < 0.15:
        return None
    return SubjectPermission(
        allow=several() if rng.random() < 0.6 else None,
        deny=several() if rng.random() < 0.7 else (),
    )


def draw_permissions(rng: random.Random) -> Permissions:
    return Permissions(
        publish=draw_direction(rng, draw_pattern),
        subscribe=draw_direction(rng, draw_entry),
        responses=ResponsePermission() if rng.random() < 0.1 else None,
    )


def config_of(users: list[Permissions]) -> str:
    lines = [f'{{user: admin, password: "{PASSWORD}"}}']
    for number, permissions in enumerate(users):
        body = [
            _config_direction("publish", permissions.publish),
            _config_direction("subscribe", permissions.subscribe),
            "allow_responses: true" if permissions.responses else "",
        ]
        block = f"permissions: {{ {' '.join(body)} }}" if any(body) else ""
        lines.append(f'{{user: u{number}, password: "{PASSWORD}", {block}}}')
    return "authorization { users: [\n" + "\n".join(lines) + "\n] }\n"


def _config_direction(name: str, permission: SubjectPermission | None) -> str:
    if permission is None or not (permission.allow or permission.deny):
        return ""
    allow = f"allow: {_quoted(permission.allow)}" if permission.allow else ""
    deny = f"deny: {_quoted(permission.deny)}" if permission.deny else ""
    return f"{name}: {{ {', '.join(filter(None, (allow, deny)))} }}\n"


def _quoted(entries: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{entry}"' for entry in entries) + "]"


@pytest.fixture(scope="module")
def users() -> list[Permissions]:
    rng = random.Random(SEED)
    return [draw_permissions(rng) for _ in range(USERS)]


@pytest.fixture(scope="module")
def reference(pool: ServerPool, users: list[Permissions]) -> Iterator[ServerUnderTest]:
    assert REFERENCE is not None
    server = pool.start(REFERENCE, config_of(users))
    yield server
    server.kill()


def login(server: ServerUnderTest, user: str) -> Wire:
    wire = Wire(server.address, name=user)
    wire.connect(**{"user": user, "pass": PASSWORD})
    return wire


def answers(wire: Wire, requests: list[str]) -> list[bool]:
    """Whether each request passed without a permissions violation."""
    wire.send("".join(f"{request}\r\nPING\r\n" for request in requests))
    passed = []
    for _ in requests:
        lines = until_pong(wire)
        assert all(line.startswith("-ERR 'Permissions Violation") for line in lines), lines
        passed.append(not lines)
    return passed


def until_pong(wire: Wire) -> list[str]:
    lines = []
    while (line := wire.line()) != "PONG":
        lines.append(line)
    return lines


def sub(subscription: Subscription, sid: int) -> str:
    subject, queue = subscription
    return f"SUB {subject} {queue or ''} {sid}"


def test_publish_decisions_match_reference(
    reference: ServerUnderTest, users: list[Permissions]
) -> None:
    odd = ["*", ">", "a.*", "a.>", "*.b", "a.b.*", "a..b"]
    for number, permissions in enumerate(users):
        compiled = compile_permissions(permissions)
        subjects = [*PUBLISHED, *odd]
        with login(reference, f"u{number}") as wire:
            theirs = answers(wire, [f"PUB {subject} 0\r\n" for subject in subjects])
        ours = [compiled.may_publish(subject) for subject in subjects]
        assert dict(zip(subjects, ours, strict=True)) == dict(zip(subjects, theirs, strict=True))


def test_subscription_decisions_match_reference_or_are_stricter(
    reference: ServerUnderTest, users: list[Permissions]
) -> None:
    rng = random.Random(SEED + 1)
    for number, permissions in enumerate(users):
        compiled = compile_permissions(permissions)
        wanted = [draw_subscription(rng) for _ in range(SUBSCRIPTIONS)]
        with login(reference, f"u{number}") as wire:
            theirs = answers(wire, [sub(one, sid) for sid, one in enumerate(wanted)])
        for (subject, queue), accepted in zip(wanted, theirs, strict=True):
            ours = compiled.may_subscribe(subject, queue)
            stricter = (
                accepted and subject.endswith(">") and not inside(permissions, subject, queue)
            )
            assert ours == (accepted and not stricter), (permissions, subject, queue)


def inside(permissions: Permissions, subject: str, queue: str | None) -> bool:
    """Whether what a subscription could receive is allowed by a single entry."""
    allow = permissions.subscribe and permissions.subscribe.allow
    return not allow or inside_one(allow, subject, queue)


def test_denied_messages_are_withheld_as_by_reference(
    reference: ServerUnderTest, users: list[Permissions]
) -> None:
    rng = random.Random(SEED + 2)
    with login(reference, "admin") as admin:
        for number, permissions in enumerate(users):
            compiled = compile_permissions(permissions)
            drawn = (draw_subscription(rng) for _ in range(SUBSCRIPTIONS))
            accepted = [one for one in drawn if compiled.may_subscribe(*one)][:DELIVERIES]
            with login(reference, f"u{number}") as wire:
                for sid, (subject, queue) in enumerate(accepted):
                    ours = {
                        literal
                        for literal in matched(subject).intersection(PUBLISHED)
                        if not compiled.delivery_denied(literal, queue)
                    }
                    assert ours == delivered(admin, wire, (subject, queue), sid), permissions


def delivered(admin: Wire, wire: Wire, subscription: Subscription, sid: int) -> set[str]:
    """What reaches one subscription when everything is published."""
    wire.send(f"{sub(subscription, sid)}\r\n")
    wire.expect_quiet()
    admin.send("".join(f"PUB {subject} 0\r\n\r\n" for subject in PUBLISHED))
    admin.expect_quiet()
    wire.send(f"UNSUB {sid}\r\nPING\r\n")
    return {line.split()[1] for line in until_pong(wire) if line.startswith("MSG ")}


def test_only_ours_refuses_tail_wildcard_under_token_wildcard(pool: ServerPool) -> None:
    """The one wanted difference: the reference lets `a.>` in under `a.*`, and `a.b.c` out."""
    assert REFERENCE is not None
    permissions = Permissions(subscribe=SubjectPermission(allow=("a.*",)))
    server = pool.start(REFERENCE, config_of([permissions]))
    with login(server, "admin") as admin, login(server, "u0") as wire:
        assert "a.b.c" in delivered(admin, wire, ("a.>", None), 1)
    server.kill()
    assert not compile_permissions(permissions).may_subscribe("a.>")
