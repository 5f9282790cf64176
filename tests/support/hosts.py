"""What leaves a stream host, taken as its driver takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.jetstream.host.stream_host import StreamHost


def effects_of(host: StreamHost) -> list[Effect]:
    """Take what the host decided already and may leave at once."""
    left = iter(host.remaining, None)
    return [effect for ready in left if ready is not None for effect in ready.effects]


def committed(host: StreamHost) -> list[Effect]:
    """Make everything durable, and take what leaves with it."""
    commits = host.commit()
    for commit in commits:
        commit.work.run()
    host.advance(commits, None)
    return effects_of(host)


def turned(host: StreamHost, now_ns: int) -> list[Effect]:
    """Let the host have a turn; take what leaves in it."""
    return [effect for ready in host.ready(now_ns) for effect in ready.effects]
