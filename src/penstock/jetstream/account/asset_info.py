"""Builds the stream and consumer info that the API returns.

Replies add metadata to the stored configuration: the server's version and API level. Lists leave
that out, as the reference does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from penstock.api.api_levels import shown_metadata
from penstock.api.stream_config import ClusterInfo, PenstockInfo, StreamInfo

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig, ConsumerInfo
    from penstock.api.stream_config import StreamConfig, StreamState
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.stream_host import StreamHost


def show_config(cfg: StreamConfig) -> StreamConfig:
    return structs.replace(cfg, metadata=shown_metadata(cfg.metadata))


def show_consumer_config(cfg: ConsumerConfig) -> ConsumerConfig:
    return structs.replace(cfg, metadata=shown_metadata(cfg.metadata))


def show_stream(
    assets: Assets,
    host: StreamHost,
    now_ns: int,
    *,
    state: StreamState | None = None,
    with_cluster: bool = True,
    in_list: bool = False,
    with_identity: bool = False,
) -> StreamInfo:
    """Return a stream's configuration and state; `with_identity` for clients that follow it."""
    cfg = host.stream.cfg
    stream_sources = host.stream_sources
    return StreamInfo(
        config=cfg if in_list else show_config(cfg),
        created=host.stream.created_ns,
        state=state or host.stream.state(consumers=host.registry.num_listed),
        domain=assets.environment.domain,
        cluster=None if in_list or not with_cluster else _alone(assets),
        mirror=None if stream_sources is None else stream_sources.mirror_info(now_ns),
        sources=() if stream_sources is None else stream_sources.source_infos(now_ns),
        ts=now_ns,
        penstock=_identity(host) if with_identity else None,
    )


def _identity(host: StreamHost) -> PenstockInfo:
    store = host.stream.store
    return PenstockInfo(
        incarnation=host.incarnation, loss_floor=store.loss_floor, losses=store.losses
    )


def _alone(assets: Assets) -> ClusterInfo:
    """Return the cluster info of a single server."""
    return ClusterInfo(leader=assets.environment.server_name)


def show_consumer(
    consumer: Consumer,
    now_ns: int,
    *,
    in_list: bool = False,
) -> ConsumerInfo:
    """Return a consumer's configuration and state."""
    info = consumer.info(now_ns)
    config = consumer.cfg if in_list else show_consumer_config(consumer.cfg)
    return structs.replace(info, config=config)
