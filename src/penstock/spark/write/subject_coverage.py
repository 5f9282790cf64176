"""Find rows whose subject the stream does not accept, before they are sent.

Most rows are decided by the stream's own subjects, in Arrow. A subject that matches none of them
may still reach the stream through an account mapping, so the server is probed once per such
subject: with a publish that cannot succeed, because it expects a last message id that does not
exist.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.error_codes import WRONG_LAST_MSG_ID
from penstock.bulk.errors import BulkError, NoResponders
from penstock.spark.subject_regex import LITERAL_TOKEN, regex_of, whole_regex
from penstock.wire.headers import EMPTY_BLOCK, added

if TYPE_CHECKING:
    from penstock.spark.write.worker_publisher import WorkerPublisher

_LITERAL: Final = re.compile(regex_of(">", token=LITERAL_TOKEN))
SUBJECT_BYTES_MAX: Final = 4096
#: Maximum number of subjects probed per task; the server decides on further ones.
ASKED_MAX: Final = 256


class Coverage:
    """Knows which subjects one stream accepts; lives as long as a task."""

    def __init__(self, outlet: WorkerPublisher) -> None:
        self._outlet = outlet
        self._pattern = whole_regex(outlet.config.get("subjects") or (), token=LITERAL_TOKEN)
        self._known: dict[str, str] = {}

    def faulty(self, subjects: pa.Array) -> list[tuple[pa.Array, str]]:
        """Return masks of rows whose subject is missing, or one that the stream does not accept."""
        subjects = subjects.cast(pa.string())
        empty = pc.is_null(subjects)
        covered = pc.fill_null(pc.match_substring_regex(subjects, self._pattern), True)
        if not pc.any(empty).as_py() and pc.all(covered, min_count=0).as_py():
            return []
        found = [(empty, "the row has no subject")]
        others = pc.unique(subjects.filter(pc.invert(covered))).to_pylist()
        for reason, named in self._sorted(others).items():
            found.append((pc.is_in(subjects, value_set=pa.array(named, pa.string())), reason))
        return found

    def _sorted(self, subjects: list[str]) -> dict[str, list[str]]:
        """Group subjects by the reason why they are not accepted."""
        found: dict[str, list[str]] = {}
        for subject in subjects:
            reason = self._reason(subject)
            if reason:
                found.setdefault(reason, []).append(subject)
        return found

    def _reason(self, subject: str) -> str:
        if not is_literal(subject):
            return "nothing can be published to such a subject"
        if subject not in self._known and len(self._known) < ASKED_MAX:
            self._known[subject] = self._asked(subject)
        return self._known.get(subject, "")

    def _asked(self, subject: str) -> str:
        name = self._outlet.config["name"]
        try:
            answer = probe(self._outlet, subject)
        except NoResponders:
            return "no stream takes this subject"
        except BulkError:
            return ""  # undecided: the row is sent, and the server decides
        code = answer.get("error", {}).get("err_code", 0)
        return "" if code == WRONG_LAST_MSG_ID else f"the subject does not belong to stream {name}"


def is_literal(subject: str) -> bool:
    is_short = len(subject.encode()) <= SUBJECT_BYTES_MAX
    return is_short and _LITERAL.fullmatch(subject) is not None


def probe(outlet: WorkerPublisher, subject: str, msg_id: bytes = b"") -> dict[str, Any]:
    """Return the reply to a publish that is never stored: a refusal, or that the id is known.

    Penstock and nats-server check the message id first, then the expected last message id.
    """
    header = added(EMPTY_BLOCK, b"Nats-Expected-Stream", outlet.config["name"].encode())
    header = added(header, b"Nats-Expected-Last-Msg-Id", secrets.token_hex().encode())
    if msg_id:
        header = added(header, b"Nats-Msg-Id", msg_id)
    reply = outlet.publisher.ask(subject, header=header)
    answer: dict[str, Any] = json.loads(reply.payload)
    return answer
