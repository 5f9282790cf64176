"""A naive model of authorization: what becomes of one publish, across mappings and accounts.

A world is a few accounts as plain values. `publish` follows one message from subject to subject:
mapping, permissions, local readers and streams, imports, and the same again in the next account.
Patterns are matched token by token; every mapping has one destination.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.subjects import matches

RESERVED = ("_GR_.", "$NRG.")
API = "$JS.API."


@dataclass(frozen=True)
class User:
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    responses: bool = False

    def may_publish(self, subject: str) -> bool:
        if any(matches(subject, pattern) for pattern in self.deny):
            return False
        if self.allow:
            return any(matches(subject, pattern) for pattern in self.allow)
        return not self.responses


@dataclass(frozen=True)
class Import:
    """Subjects `theirs` of another account, under the name `ours`; both may end in `>`."""

    account: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class Account:
    mappings: dict[str, str | None] = field(default_factory=dict)
    """Pattern to destination with `$1`; None: the message is dropped."""
    services: tuple[Import, ...] = ()
    streams_in: tuple[Import, ...] = ()
    stored: dict[str, str] = field(default_factory=dict)
    """Name of each JetStream stream, and the subjects it stores."""


@dataclass
class Outcome:
    refused: str | None = None
    """The subject that the refusal names."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Account and subject: what a subscriber to everything in the account gets."""
    stored: set[str] = field(default_factory=set)
    """Streams that have the message now."""
    asked: int = 0
    """JetStream API requests that are answered."""


def publish(world: dict[str, Account], account: str, user: User, subject: str) -> Outcome:
    outcome = Outcome()
    to = mapped(world[account], subject)
    if not user.may_publish(to) or to.startswith(RESERVED):
        outcome.refused = to
    elif to:
        _route(world, account, to, outcome)
    return outcome


def _route(world: dict[str, Account], account: str, subject: str, outcome: Outcome) -> None:
    here = world[account]
    outcome.seen.add((account, subject))
    outcome.stored |= {name for name, taken in here.stored.items() if matches(subject, taken)}
    outcome.asked += subject.startswith(API)
    for name, other in world.items():
        for stream in other.streams_in:
            if stream.account == account and matches(subject, stream.theirs):
                outcome.seen.add((name, _renamed(subject, stream.theirs, stream.ours)))
    for service in here.services:
        if matches(subject, service.ours):
            there = world[service.account]
            to = mapped(there, _renamed(subject, service.ours, service.theirs))
            _route(world, service.account, to, outcome)


def mapped(account: Account, subject: str) -> str:
    for pattern, destination in account.mappings.items():
        if matches(subject, pattern):
            if destination is None:
                return ""
            wild = [
                t for t, p in zip(subject.split("."), pattern.split("."), strict=True) if p == "*"
            ]
            return destination.replace("$1", wild[0]) if wild else destination
    return subject


def _renamed(subject: str, was: str, becomes: str) -> str:
    return becomes.removesuffix(">") + subject.removeprefix(was.removesuffix(">"))
