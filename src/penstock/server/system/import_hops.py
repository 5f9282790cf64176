"""Import hops: the callbacks that pass messages to another account, one object per import.

The router calls a hop as it calls any internal subscriber. For a traced message it calls `traced`,
which adds the import to the trace and continues the trace in the other account if that account
allows it. A message that is only traced is not delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.server.system.message_trace import disabled
from penstock.wire import headers
from penstock.wire.trace_headers import DEST

if TYPE_CHECKING:
    from penstock.broker.import_resolver import ResolvedImports
    from penstock.server.net.client_link import ClientLink
    from penstock.server.system.account_imports import AccountImports, Shadow
    from penstock.server.system.message_trace import MessageTrace


class ServiceHop:
    """Passes requests to an imported service."""

    __slots__ = ("_account_imports", "_joined")

    def __init__(self, account_imports: AccountImports, joined: ResolvedImports) -> None:
        self._account_imports: Final = account_imports
        self._joined: Final = joined

    def __call__(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        self._account_imports.asked(self._joined, subject, reply, header, payload, source)

    def traced(
        self,
        trace: MessageTrace,
        _to: str | None,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        joined, account_imports = self._joined, self._account_imports
        # Mapped once: a weighted mapping must not choose another destination below.
        to = account_imports.mapped(joined.exporter, joined.renaming.outward(subject))
        trace.service_import(joined.exporter, subject, to or "")
        if joined.is_traced:
            back = account_imports.reply_for(joined.exporter, joined.importer, trace.dest, joined)
            header = headers.added(headers.without(header, DEST), DEST, back.encode())
            account_imports.request(joined, subject, to, reply, header, payload, source, trace)
            account_imports.forget(joined.exporter, back)
        elif not trace.only:
            account_imports.request(joined, subject, to, reply, disabled(header), payload, source)
        else:
            account_imports.reply_no_responders(joined, subject, reply, source)


class StreamHop:
    """Passes messages of an imported stream to one subscription."""

    __slots__ = ("_joined", "_shadow", "_theirs")

    def __init__(self, joined: ResolvedImports, shadow: Shadow, theirs: str) -> None:
        self._joined: Final = joined
        self._shadow: Final = shadow
        self._theirs: Final = theirs

    def __call__(
        self,
        to: str,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        """Deliver a message; one sent to `to` under another subject keeps its subject."""
        self._shadow.take(self._name_here(to, subject), reply, header, payload, source)

    def _name_here(self, to: str | None, subject: str) -> str:
        return self._joined.renaming.inward(subject) if subject == to else subject

    def traced(
        self,
        trace: MessageTrace,
        to: str | None,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        source: ClientLink | None,
    ) -> None:
        here = self._name_here(to, subject)
        trace.stream_export(self._joined.importer, here)
        link = _receiver(self._shadow.take)
        if self._joined.is_traced and link is not None:
            trace.egress(link, self._theirs, self._shadow.queue, None)
        if not trace.only:
            self._shadow.take(here, reply, header, payload, source)


def _receiver(take: Any) -> ClientLink | None:
    """Return the link of a client's subscription; None for a receiver in this process."""
    owner = getattr(getattr(take, "func", None), "__self__", None)
    return owner if hasattr(owner, "cid") else None
