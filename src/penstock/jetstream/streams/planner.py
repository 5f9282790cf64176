"""Planner: turns a message into an entry, or into the reply that explains why there is none.

Applies the subject transform, the checks and interest. Plans single messages from clients,
schedules and sources. Reads the plan state and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.refusals import ApiError
from penstock.api.stream_config import Retention
from penstock.base.effects import Send
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.entries import NOTHING, Answer, NotLoaded, Planned, Publish, Special
from penstock.jetstream.streams.publish_checks import (
    USED_UP,
    Duplicate,
    admit,
    check_message,
    rollup,
)
from penstock.jetstream.streams.stream_state import Draft
from penstock.store.contract import Cold
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.jetstream.streams.entries import FastMark
    from penstock.jetstream.streams.pubacks import PubAcks
    from penstock.jetstream.streams.publish_checks import Rejection
    from penstock.jetstream.streams.stream_state import PlanState


class Planner:
    """Plans messages for one stream."""

    def __init__(self, plan_state: PlanState, acks: PubAcks) -> None:
        self._plan_state = plan_state
        self._acks = acks
        self.configure()

    def configure(self) -> None:
        """Apply the configuration in the plan state."""
        self._transform = self._plan_state.parts.transform
        self._by_interest = self._plan_state.cfg.retention is Retention.INTEREST

    def plan(
        self,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        now_ns: int,
        *,
        is_internal: bool = False,
    ) -> Planned:
        """Return the entry that stores a message, or the reply."""
        draft = self.draft(subject, reply, header, payload, now_ns, is_internal=is_internal)
        rejection = check_message(self._plan_state, draft)
        if rejection is None:
            return self.entry(draft)
        return self.answer(rejection, reply)

    def plan_mirrored(
        self, subject: str, header: bytes, payload: bytes, seq: int, ts_ns: int
    ) -> Planned:
        """Return the entry that stores a message of a mirror's origin. The origin has checked it:
        only rollup, TTL, and the limits of account and stream are checked here."""
        if seq <= self._plan_state.last_seq:
            return Answer(is_duplicate=True)
        if seq > SEQ_MAX:
            return self.answer(USED_UP, "")
        draft = self.draft(subject, "", header, payload, ts_ns, is_internal=True)
        draft.msg_id = draft.fields.get(publish_headers.MSG_ID, b"")
        rejection = rollup(self._plan_state, draft) or admit(self._plan_state, draft)
        if rejection is not None:
            return self.answer(rejection, "")
        special = Special(
            ttl_ns=draft.ttl_ns, msg_id=draft.msg_id, rollup=draft.rollup, origin_seq=seq
        )
        return Publish(draft.now_ns, draft.subject, draft.header, payload, "", special)

    def draft(
        self,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        now_ns: int,
        *,
        is_internal: bool = False,
        fields: dict[bytes, bytes] | None = None,
    ) -> Draft:
        """Return the message as a draft for the checks, under its stored subject.

        `fields` is the parsed header, if the caller already has it.
        """
        if fields is None or publish_headers.CLIENT_INFO in fields:
            fields = {}
            if publish_headers.SPECIAL_PREFIX in header:
                header = headers.without(header, publish_headers.CLIENT_INFO)
                fields = headers.parse(header)
        subject = self.stored_subject(subject)
        ts_ns = max(now_ns, self._plan_state.last_ts_ns)
        return Draft(subject, reply, header, payload, fields, ts_ns, is_internal=is_internal)

    def stored_subject(self, subject: str) -> str:
        """Return the stored subject; a subject that the transform does not match stays the same."""
        if self._transform is None:
            return subject
        return self._transform.match(subject) or subject

    def entry(self, draft: Draft) -> Planned:
        """Return the entry of a draft that passed `check_message`, or the reply of `admit`."""
        if self._plan_state.is_used_up(1):
            return self.answer(USED_UP, draft.reply)
        skip = self.is_unwanted(draft.subject)
        if not skip:
            rejection = admit(self._plan_state, draft)
            if rejection is not None:
                return self.answer(rejection, draft.reply)
        return self.publish(draft, skip=skip)

    def is_unwanted(self, subject: str) -> bool:
        """Return whether interest retention finds no interest in this subject."""
        return self._by_interest and not self._plan_state.has_interest(subject)

    def publish(self, draft: Draft, *, skip: bool, fast: FastMark | None = None) -> Publish:
        """Return the draft as an entry."""
        special = None
        if skip or fast is not None or draft.is_special:
            special = Special(
                ttl_ns=draft.ttl_ns,
                msg_id=draft.msg_id,
                rollup=draft.rollup,
                purged=draft.purged,
                skip=skip,
                value=draft.value,
                fast=fast,
            )
        return Publish(
            draft.now_ns, draft.subject, draft.header, draft.payload, draft.reply, special
        )

    def answer(self, rejection: Rejection, reply: str) -> Answer | NotLoaded:
        """Return the reply for a message that is not stored, or the block to load."""
        if isinstance(rejection, Cold):
            return NotLoaded(rejection)
        if isinstance(rejection, Duplicate):
            effects = self.reply_to(reply, self._acks.duplicate(rejection.seq))
            return Answer(effects, is_duplicate=True)
        if isinstance(rejection, ApiError):
            return Answer(self.reply_to(reply, self._acks.refused(rejection)), rejection)
        return NOTHING

    def reply_to(self, reply: str, payload: bytes) -> tuple[Send, ...]:
        """Return a reply, if the publisher requested one and the stream sends acks."""
        if not reply or self._plan_state.cfg.no_ack:
            return ()
        return (Send(reply, payload),)
