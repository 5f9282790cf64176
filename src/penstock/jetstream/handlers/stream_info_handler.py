"""STREAM.INFO in slices: a stream may have very many subjects and deleted sequences.

Totals and deleted sequences are a consistent view of one moment. The subject counts are collected
SLICE_SUBJECTS at a time, and each slice is correct when it is collected: appends and removals
between two slices show in the later ones. Long parts are encoded while they are collected.
`stream_handlers.info` returns these steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from penstock.api.api_levels import PENSTOCK_HEADER
from penstock.api.json_codec import encode_plain
from penstock.api.responses import StreamInfoResponse
from penstock.jetstream.account.asset_info import show_stream
from penstock.jetstream.account.endpoints import HeldRequest
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.api.request_bodies import StreamInfoRequest
    from penstock.jetstream.account.endpoints import ApiCall, Steps
    from penstock.jetstream.host.stream_host import StreamHost

SUBJECTS_LIMIT: Final = 100_000
"""Subjects on one page, as in the reference."""
DELETED_LISTED_MAX: Final = 1_000_000
"""Most deleted sequences that a reply lists one by one."""
SUBJECTS_PIECE: Final = 4_096
"""Subjects encoded in one slice."""
DELETED_PIECE: Final = 65_536
"""Sequences encoded in one slice."""


def info_in_steps(call: ApiCall, host: StreamHost, request: StreamInfoRequest) -> Steps:
    """Collect the requested details, and reply."""
    yield from host.chores.finish(call.now_ns)
    total = start = limit = 0
    host.collect_lane_results()
    state = host.stream.state(consumers=host.registry.num_listed)
    long: dict[str, Any] = {}
    if request.deleted_details and state.num_deleted:
        long["deleted"] = yield from _deleted(host)
    if request.subjects_filter:
        start = max(0, request.offset)  # not clamped to the total; the reference does so only here
        total, long["subjects"] = yield from _subjects(host, request.subjects_filter, start)
        limit = SUBJECTS_LIMIT if total else 0
        start = start if total else 0
    if long:
        state = structs.replace(state, **long)
    response = StreamInfoResponse(
        total=total,
        offset=start,
        limit=limit,
        info=show_stream(
            call.assets,
            host,
            call.now_ns,
            state=state,
            with_identity=headers.get(call.request.header, PENSTOCK_HEADER.encode()) is not None,
        ),
    )
    return HeldRequest(response, host)  # after the commit: the counted messages are then readable


def _subjects(
    host: StreamHost, pattern: str, start: int
) -> Generator[None, None, tuple[int, msgspec.Raw | dict[str, int]]]:
    """Return how many subjects match a filter, and one page of them."""
    store = host.stream.store
    table = store.subject_table(pattern)
    while store.fill_table(table):
        yield
    skipped = 0
    while skipped < start and (passed := table.skip(min(start - skipped, SUBJECTS_PIECE))):
        skipped += passed
        yield
    pieces: list[bytes] = []
    for _ in range(0, SUBJECTS_LIMIT, SUBJECTS_PIECE):
        listed = len(pieces) * SUBJECTS_PIECE
        page = table.page(min(SUBJECTS_PIECE, SUBJECTS_LIMIT - listed))
        if not page:
            break
        pieces.append(encode_plain(page)[1:-1])
        yield
    return table.total, msgspec.Raw(b"{%b}" % b",".join(pieces)) if pieces else {}


def _deleted(host: StreamHost) -> Generator[None, None, msgspec.Raw]:
    """Return the deleted sequences, as JSON."""
    seqs = host.stream.store.deleted_seqs(DELETED_LISTED_MAX)
    pieces: list[bytes] = []
    for at in range(0, len(seqs), DELETED_PIECE):
        pieces.append(encode_plain(seqs[at : at + DELETED_PIECE].tolist())[1:-1])
        yield
    return msgspec.Raw(b"[%b]" % b",".join(pieces))
