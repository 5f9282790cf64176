"""Refusals: the handler methods that report a refused publish or subscription.

They send -ERR to the client and write a log line. `ClientSession` inherits them; the texts are in
`refusal_log`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.server.net import refusal_log
from penstock.server.net.client_label import user_claim
from penstock.server.server_log import log

if TYPE_CHECKING:
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.connect_info import ConnectOptions
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account


class Refusals:
    """Called by the link; no method may raise."""

    service: ServerState
    link: ClientLink
    account: Account
    options: ConnectOptions
    user: str

    def subscribe_refused(self, subject: str, queue: str | None, sid: str) -> None:
        self._refuse(refusal_log.subscription_violation(subject, queue, sid))

    def tokens_exceeded(self, subject: str, sid: str) -> None:
        self._refuse(refusal_log.tokens_violation(subject, sid))

    def subscriptions_exceeded(self) -> None:
        if self.account.may_log_limit(time.monotonic_ns()):
            log.error("%s - maximum subscriptions exceeded", self)
        self.link.error("maximum subscriptions exceeded")

    def subscription_lost(self, subject: str, queue: str | None, sid: str) -> None:
        """Report a subscription whose permission a reload removed."""
        lost = refusal_log.removed_subscription(subject, queue, sid)
        self.link.error(lost.err_text)
        claim = user_claim(self.options, self.user) or 'User "N/A"'
        log.info("%s for %s - not authorized", lost.logged, claim)

    def publish_refused(self, subject: str) -> None:
        self._refuse(refusal_log.publish_violation(subject))

    def reply_refused(self, reply: str) -> None:
        self._refuse(refusal_log.reply_violation(reply))

    def _refuse(self, violation: refusal_log.Violation) -> None:
        self.link.error(violation.err_text)
        self.service.violations.write(self, self.account.name, violation.logged)
