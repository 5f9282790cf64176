"""One subscription as /connz and /subsz show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.server.monitor.page_values import clean

if TYPE_CHECKING:
    from penstock.server.net.client_record import SubscriptionFacts


class SubDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    account: str = ""
    account_tag: str = ""
    subject: str
    qgroup: str = ""
    sid: str
    msgs: int
    max: int = 0
    cid: int


def detail_of(facts: SubscriptionFacts, cid: int, account: str = "") -> SubDetail:
    sid, subject, queue, msgs, maximum = facts
    return SubDetail(
        account=account,
        account_tag=account,
        subject=clean(subject),
        qgroup=clean(queue or ""),
        sid=clean(sid),
        msgs=msgs,
        max=maximum,
        cid=cid,
    )
