"""API handlers for account info, and for cluster operations, which one server cannot perform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from penstock.api import refusals
from penstock.api.account_usage import NOTHING, AccountStats, ApiStats, Tier, tier_of
from penstock.api.responses import (
    AccountInfoResponse,
    ConsumerStepDownResponse,
    StreamCancelMoveResponse,
    StreamEvacuatePeerResponse,
    StreamRemovePeerResponse,
    StreamStepDownResponse,
)
from penstock.api.stream_config import Storage
from penstock.base.version import REFERENCE_API_LEVEL
from penstock.jetstream.account.endpoints import Endpoint

if TYPE_CHECKING:
    from penstock.jetstream.account.endpoints import ApiCall, Outcome


def info(call: ApiCall) -> Outcome:
    """INFO"""
    assets = call.assets
    used = Tier(
        memory=assets.used(Storage.MEMORY),
        storage=assets.used(Storage.FILE),
        reserved_memory=assets.promised[Storage.MEMORY],
        reserved_storage=assets.promised[Storage.FILE],
        streams=len(assets.hosts),
        consumers=assets.consumers,
        limits=assets.limits,
    )
    api = ApiStats(level=REFERENCE_API_LEVEL, total=assets.api_total, errors=assets.api_errors)
    shown = structs.replace(used, limits=NOTHING) if assets.tiers else used
    stats = AccountStats(
        **structs.asdict(shown),
        domain=assets.environment.domain,
        api=api,
        tiers={
            name: used if name == tier_of(1) else Tier(limits=limits)
            for name, limits in sorted(assets.tiers.items())
        },
    )
    return AccountInfoResponse(stats=stats)


def clustered_only(_call: ApiCall) -> Outcome:
    """Refuse a request that needs several servers."""
    return refusals.CLUSTER_REQUIRED


ENDPOINTS: Final = {
    "INFO": Endpoint(AccountInfoResponse, info),
    "STREAM.LEADER.STEPDOWN": Endpoint(StreamStepDownResponse, clustered_only, 1, 1),
    "STREAM.PEER.REMOVE": Endpoint(StreamRemovePeerResponse, clustered_only, 1, 1),
    "STREAM.PEER.EVACUATE": Endpoint(StreamEvacuatePeerResponse, clustered_only, 1, 1),
    "STREAM.CANCEL_MOVE": Endpoint(StreamCancelMoveResponse, clustered_only, 1, 1),
    "CONSUMER.LEADER.STEPDOWN": Endpoint(ConsumerStepDownResponse, clustered_only, 2, 2),
}
