"""Probes against the reference server, small."""

import pytest

from penstock.bench.probes.figures import Figure
from penstock.bench.probes.idle import probe_idle
from penstock.bench.probes.subscriptions import pattern, probe_subscriptions, subject_for
from penstock.bench.server_process import RunningServer

pytestmark = pytest.mark.sockets


def value(figures: list[Figure], name: str) -> float | bool | None:
    (found,) = [figure.value for figure in figures if figure.name == name]
    return found


def matches(wanted: bytes, subject: bytes) -> bool:
    pairs = zip(wanted.split(b"."), subject.split(b"."), strict=True)
    return all(have in (b"*", word) for have, word in pairs)


def test_sample_subject_matches_its_subscription_and_no_other() -> None:
    for number in range(30):
        hits = [other for other in range(30) if matches(pattern(other), subject_for(number))]
        assert hits == [number]


def test_idle_connections_are_all_alive_in_the_end(server: RunningServer) -> None:
    figures = probe_idle(server.endpoint, server.pid, 150)
    assert value(figures, "connections open") == 150
    assert value(figures, "answered a PING while all were open") == 150


def test_subscriptions_deliver_while_there_and_not_afterwards(server: RunningServer) -> None:
    figures = probe_subscriptions(server.endpoint, server.pid, 2500)
    assert value(figures, "sample messages delivered") == 2500
    assert value(figures, "sample messages delivered after removal") == 0
