"""What leaves a stream host, taken as its driver takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.jetstream.host.stream_host import StreamHost


def effects_of(host: StreamHost) -> list[Effect]:
    """Take what the host decided already and may leave at once."""
    return [effect for ready in host.remaining() for effect in ready.effects]


def committed(host: StreamHost) -> list[Effect]:
    """Make everything durable, and take what leaves with it."""
    commits = host.commit()
    for commit in commits:
        commit.work.run()
    host.advance(commits, None)
    return effects_of(host)
