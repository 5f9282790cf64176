"""Every user publishes to every subject, on both servers, and the model says what must happen.

Two accounts: A imports services and the JetStream API of B, B exports a stream to A, both map
subjects and store some of them. A publish is refused, or it reaches exactly the subscribers,
streams and API that the model names.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from models.authorization import Account, Import, Outcome, User, publish
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.servers import Implementation, ServerPool

WORLD = {
    "A": Account(
        mappings={
            "pub.*": "secret.$1",
            "in.*": "kept.$1",
            "out.*": "remote.$1",
            "api.*": "$JS.API.$1",
            "bapi.*": "bjs.$1",
            "nrg.*": "$NRG.$1",
            "gr.*": "_GR_.$1",
            "lost": None,
        },
        services=(Import("B", "svc.>", "remote.>"), Import("B", "$JS.API.>", "bjs.>")),
        streams_in=(Import("B", "feed.>", "news.feed.>"),),
        stored={"KEPT": "kept.>"},
    ),
    "B": Account(
        mappings={"svc.save.*": "svc.saved.$1", "f.*": "feed.$1", "pub.*": "secret.$1"},
        stored={"SAVED": "svc.saved.>"},
    ),
}
USERS = {
    "free": User(),
    "no_secret": User(deny=("secret.>",)),
    "no_pub": User(deny=("pub.>", "in.>", "out.>", "f.>")),
    "only_pub": User(allow=("pub.>", "in.>", "out.>", "api.>", "f.>")),
    "only_secret": User(allow=("secret.>", "kept.>")),
    "no_kept": User(allow=(">",), deny=("kept.a", "remote.a")),
    "only_remote": User(allow=("remote.>", "bjs.INFO")),
    "no_service": User(deny=("svc.>", "feed.>")),
    "no_api": User(deny=("$JS.API.>",)),
    "no_remote_api": User(deny=("bjs.>",)),
    "only_api": User(allow=("$JS.API.INFO",)),
    "nothing": User(deny=(">",)),
    "responder": User(responses=True),
}
SUBJECTS = (
    *("plain", "pub.a", "secret.a", "in.a", "kept.a", "out.a", "remote.a", "remote.save.a"),
    *("svc.a", "svc.save.a", "f.a", "feed.a", "api.INFO", "$JS.API.INFO", "bapi.INFO", "bjs.INFO"),
    *("nrg.a", "$NRG.a", "gr.a", "_GR_.a", "lost"),
)
STEPS = list(itertools.product(("A", "B"), USERS, SUBJECTS, ("PUB", "HPUB")))


def _list(name: str, patterns: tuple[str, ...]) -> str:
    return f"{name}: {json.dumps(patterns)}, " if patterns else ""


def _users(account: str) -> str:
    lines = []
    for name, user in USERS.items():
        rights = _list("allow", user.allow) + _list("deny", user.deny)
        permissions = f"publish: {{ {rights} }}" if rights else ""
        permissions += ", allow_responses: true" if user.responses else ""
        body = f", permissions: {{ {permissions.strip(', ')} }}" if permissions else ""
        lines.append(f'{{ user: "{account}-{name}", password: p{body} }}')
    return "users: [\n" + "\n".join(lines) + "\n]"


def _mappings(account: str) -> str:
    lines = [
        f'"{source}": "{to}"' if to else f'"{source}": [ {{ dest: "{source}", weight: 0 }} ]'
        for source, to in WORLD[account].mappings.items()
    ]
    return "mappings: {\n" + "\n".join(lines) + "\n}"


CONFIG = f"""
accounts {{
  A {{
    jetstream: enabled
    {_mappings("A")}
    imports: [
      {{ service: {{ account: B, subject: "svc.>" }}, to: "remote.>" }}
      {{ service: {{ account: B, subject: "$JS.API.>" }}, to: "bjs.>" }}
      {{ stream: {{ account: B, subject: "feed.>" }}, prefix: news }}
    ]
    {_users("A")}
  }}
  B {{
    jetstream: enabled
    {_mappings("B")}
    exports: [ {{ service: "svc.>" }}, {{ service: "$JS.API.>" }}, {{ stream: "feed.>" }} ]
    {_users("B")}
  }}
}}
"""


class Watcher:
    """Subscribes to everything in one account, and finds messages by their payload."""

    def __init__(self, address: tuple[str, int], account: str) -> None:
        self.account = account
        self._wire = _login(address, account, "free")
        self._wire.send("SUB > 1\r\n")
        self._wire.expect_quiet()
        self._early: dict[str, set[str]] = {}

    def close(self) -> None:
        self._wire.close()

    def subjects_of(self, token: str, expected: set[str]) -> set[str]:
        """The subjects under which the message arrived, once all that are expected did."""
        seen = self._early.pop(token, set())
        self._wire.send("PING\r\n")
        ponged = False
        while not ponged or not seen >= expected:
            line = self._wire.line()
            if line == "PONG":
                ponged = True
            else:
                subject, payload = _message(self._wire, line)
                if payload == token:
                    seen.add(subject)
                elif payload.startswith("token-"):
                    self._early.setdefault(payload, set()).add(subject)
        return seen


def _login(address: tuple[str, int], account: str, user: str) -> Wire:
    wire = Wire(address)
    options = {"headers": True, "no_responders": True, "echo": False}
    wire.connect(user=f"{account}-{user}", **{"pass": "p"}, **options)
    return wire


def _message(wire: Wire, line: str) -> tuple[str, str]:
    """Subject and payload of a delivery whose first line was read."""
    words = line.split()
    assert words[0] in ("MSG", "HMSG"), line
    body = wire.read_exactly(int(words[-1]) + 2)[:-2]
    return words[1], body[int(words[-2]) if words[0] == "HMSG" else 0 :].decode()


def _answers(wire: Wire, expected: int) -> list[str]:
    """What the publisher receives: refusals, and the replies of streams and of the API."""
    told: list[str] = []
    wire.send("PING\r\n")
    ponged = False
    while not ponged or len([one for one in told if not one.startswith("-ERR")]) < expected:
        line = wire.line()
        if line == "PONG":
            ponged = True
        elif line.startswith("-ERR"):
            told.append(line)
        else:
            body = _message(wire, line)[1]
            # An empty one is the status "no responders".
            told += [json.loads(body).get("stream", "API")] if body else []
    return sorted(told)


def _expected_answers(outcome: Outcome) -> list[str]:
    if outcome.refused is not None:
        return [f"-ERR 'Permissions Violation for Publish to \"{outcome.refused}\"'"]
    return sorted([*outcome.stored, *["API"] * outcome.asked])


@pytest.mark.parametrize("account", WORLD)
def test_permissions_apply_to_mapped_subject(
    pool: ServerPool, implementation: Implementation, account: str, tmp_path: Path
) -> None:
    closing: list[Callable[[], None]] = []
    server = pool.start(implementation, f'jetstream: {{ store_dir: "{tmp_path}" }}\n{CONFIG}')
    closing.append(server.kill)
    try:
        for name, kept in WORLD.items():
            for stream, subject in kept.stored.items():
                _create(server.address, name, stream, subject)
        watchers = [Watcher(server.address, name) for name in WORLD]
        closing.extend(watcher.close for watcher in watchers)
        for number, (home, user, subject, verb) in enumerate(STEPS):
            if home == account:
                token = f"token-{number}"
                _check(server.address, watchers, (home, user, subject, verb), token)
    finally:
        for close in closing:
            close()


def _create(address: tuple[str, int], account: str, stream: str, subject: str) -> None:
    with _login(address, account, "free") as wire:
        config = json.dumps({"name": stream, "subjects": [subject], "storage": "memory"})
        wire.send(
            f"SUB in 1\r\nPUB $JS.API.STREAM.CREATE.{stream} in {len(config)}\r\n{config}\r\n"
        )
        assert "error" not in json.loads(_message(wire, wire.line())[1])


def _check(
    address: tuple[str, int], watchers: list[Watcher], step: tuple[str, str, str, str], token: str
) -> None:
    account, user, subject, verb = step
    outcome = publish(WORLD, account, USERS[user], subject)
    with _login(address, account, user) as wire:
        wire.send(f"SUB _INBOX.{token} 1\r\n")
        head = "NATS/1.0\r\nk: v\r\n\r\n" if verb == "HPUB" else ""
        sizes = f"{len(head)} {len(head) + len(token)}" if head else str(len(token))
        wire.send(f"{verb} {subject} _INBOX.{token} {sizes}\r\n{head}{token}\r\n")
        expected = _expected_answers(outcome)
        replies = 0 if outcome.refused is not None else len(expected)
        assert _answers(wire, replies) == expected, step
    for watcher in watchers:
        wanted = {name for where, name in outcome.seen if where == watcher.account}
        assert watcher.subjects_of(token, wanted) == wanted, (step, watcher.account)
