"""Configurations by name, as read-only views: each lookup reads the live object, nothing is copied.

The API rules check a new stream or consumer against few of the existing ones, however many exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.stream_host import StreamHost


class StreamConfigs(Mapping[str, "StreamConfig"]):
    """The configurations of an account's streams."""

    __slots__ = ("_hosts",)

    def __init__(self, hosts: Mapping[str, StreamHost]) -> None:
        self._hosts = hosts

    def __getitem__(self, name: str) -> StreamConfig:
        return self._hosts[name].stream.cfg

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


class ConsumerConfigs(Mapping[str, "ConsumerConfig"]):
    """The configurations of a stream's consumers."""

    __slots__ = ("_consumers",)

    def __init__(self, consumers: Mapping[str, Consumer]) -> None:
        self._consumers = consumers

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._consumers[name].cfg

    def __iter__(self) -> Iterator[str]:
        return iter(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)
