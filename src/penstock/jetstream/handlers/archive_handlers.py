"""API handlers for archives: snapshot a stream, or restore one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import api_subjects, refusals
from penstock.api.advisories import RestoreCreate, SnapshotCreate
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import RestoreRequest, SnapshotRequest, is_empty_body
from penstock.api.responses import RestoreResponse, SnapshotResponse
from penstock.api.rules.stream_requests import check_restored, plan_restore_sliced
from penstock.base.effects import Advise, Begin
from penstock.jetstream.account.endpoints import Endpoint, HeldRequest
from penstock.jetstream.archive.archive_transfer import TRANSFERS_MAX
from penstock.jetstream.archive.restore_session import Restore
from penstock.jetstream.archive.snapshot_session import SnapshotSession, capture
from penstock.jetstream.handlers.handler_input import read_body, read_needed, stream_of
from penstock.jetstream.handlers.stream_handlers import stream_context
from penstock.jetstream.host.asset_files import file_name
from penstock.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.account.endpoints import ApiCall, Outcome, Steps

TOO_MANY: Final = "too many snapshots and restores at once"


def snapshot(call: ApiCall) -> Outcome:
    """STREAM.SNAPSHOT: replies with the stream's state, then sends the archive."""
    if is_empty_body(call.request.body):
        return refusals.BAD_REQUEST
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    request = read_body(call, SnapshotRequest)
    if isinstance(request, ApiError):
        return request
    if not is_valid_literal(request.deliver_subject):
        return refusals.SNAPSHOT_DELIVER_SUBJECT_INVALID
    if call.port.num_transfers >= TRANSFERS_MAX:
        return refusals.STREAM_SNAPSHOT(err=TOO_MANY)
    extent, head = capture(host, call.now_ns, has_consumers=not request.no_consumers)
    client = call.port.describe_client(call.request)
    environment = call.assets.environment
    transfer = SnapshotSession(
        host,
        request,
        head=head,
        last_seq=extent.state.last_seq,
        inlet=f"{api_subjects.SNAPSHOT_ACK_PREFIX}{host.name}.{environment.nuid()}",
        client=client,
        has_interest=lambda subject: environment.has_interest(subject, None),
        now_ns=call.now_ns,
    )
    for consumer in host.consumers.values():
        host.await_state(consumer)
    advisory = SnapshotCreate(stream=host.name, state=extent.state, client=client)
    return HeldRequest(
        SnapshotResponse(config=host.stream.cfg, state=extent.state),
        host,
        then=(Advise(f"{api_subjects.SNAPSHOT_CREATE}{host.name}", advisory), Begin(transfer)),
    )


def restore(call: ApiCall) -> Steps:
    """STREAM.RESTORE: replies with the subject to which the client sends the archive."""
    request = read_needed(call, RestoreRequest)
    if isinstance(request, ApiError):
        return request
    assets = call.assets
    ctx = stream_context(assets, call.names[0])
    cfg = yield from plan_restore_sliced(call.names[0], request.config, ctx)
    if isinstance(cfg, ApiError):
        return cfg
    if file_name(cfg.name) in assets.unserved:
        return assets.missing(cfg.name)
    if call.port.num_transfers >= TRANSFERS_MAX:
        return refusals.STREAM_RESTORE(err=TOO_MANY)
    name = cfg.name
    client = call.port.describe_client(call.request)

    def admit(wanted: StreamConfig) -> ApiError | None:
        return check_restored(wanted, stream_context(assets, wanted.name))

    transfer = Restore(
        assets,
        cfg,
        inlet=f"{api_subjects.RESTORE_PREFIX}{name}.{assets.environment.nuid()}",
        client=client,
        admit=admit,
        serve=call.port.serve,
        now_ns=call.now_ns,
    )
    advisory = RestoreCreate(stream=name, client=client)
    call.port.perform([Advise(f"{api_subjects.RESTORE_CREATE}{name}", advisory)])
    call.port.begin(transfer)
    return RestoreResponse(deliver_subject=transfer.inlet)


ENDPOINTS: Final = {
    "STREAM.SNAPSHOT": Endpoint(SnapshotResponse, snapshot, 1, 1),
    "STREAM.RESTORE": Endpoint(RestoreResponse, restore, 1, 1, is_serial=True),
}
