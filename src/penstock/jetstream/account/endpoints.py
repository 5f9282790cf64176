"""The JetStream API: maps a request subject to the handler that serves it.

A table lists the subjects, how many names each takes, and the type of its response. A handler
returns the response or the refusal; `HeldRequest` names the stream whose disk must have the change
before the response leaves. A request with an unknown subject gets no response.

A handler whose work grows with the amount of stored or listed data works in steps. It returns a
generator, usually by being one or by returning one after its first checks:

    def purge(call: ApiCall) -> Outcome | Steps:
        ...                                # checks; a refusal is returned as always
        return _purge_in_steps(call, host)

    def _purge_in_steps(call: ApiCall, host: StreamHost) -> Steps:
        while more:
            ...                            # one slice: at most about a millisecond
            yield None                     # let others be served; or: yield Wait(host, cold)
        return HeldRequest(response, host) # the outcome, as any handler's

Between two slices the state may change: messages are stored and removed, consumers are created and
deleted. No other API request of the account on the same stream runs, nor one of the same client;
with `Endpoint.is_serial`, none that changes which streams exist or what they capture. The handler
yields `Wait(host, cold)` to be resumed when a block is in memory, and a `DiskWork` to be resumed
when that has run on a disk thread; with `Endpoint.is_brief`, requests about other consumers of the
same stream run meanwhile. If the stream is closed meanwhile, the generator is closed (`finally`
runs) and the client gets "stream not found". If a handler raises, the client gets a 500. When the
server stops, it closes the generator and sends no response.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.api import api_subjects, refusals
from penstock.api.advisories import ApiAudit
from penstock.api.api_levels import REQUIRED_LEVEL_HEADER, demands_too_much
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.responses import Response, SystemResponse
from penstock.base.effects import Advise, Send
from penstock.jetstream.account.request_queue import Keys
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Hashable

    from penstock.api.advisories import AdvisoryClient
    from penstock.api.stream_config import StreamConfig
    from penstock.base.effects import Effect
    from penstock.base.slices import Sliced
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.archive.archive_transfer import Transfer
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.disk_work import DiskWork, Vacancy
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.store.contract import Cold

FIRST_NAME: Final = 2
"""Index of the first token after `$JS.API`."""
FAILED: Final = refusals.STREAM_GENERAL_ERROR(err="internal failure, the server's log has details")
"""The reply to a request whose handler raised."""


class Request(NamedTuple):
    """One API request."""

    subject: str
    reply: str
    header: bytes
    body: bytes
    client: object = None
    """The requesting client, for the audit: the object by which the server knows it."""


class HeldRequest(NamedTuple):
    """A reply that must not leave before the stream's disk has the change it reports."""

    response: Response
    host: StreamHost
    header: bytes = b""
    then: tuple[Effect, ...] = ()
    """Effects that follow the reply."""


Reply: TypeAlias = Response | HeldRequest | ApiError
Outcome: TypeAlias = Reply | None
"""None: the handler replies by itself, or not at all."""


class Wait(NamedTuple):
    """Yielded by a step that needs a block of a stream in memory."""

    host: StreamHost
    cold: Cold


Pause: TypeAlias = "Wait | DiskWork[Any] | Vacancy | None"
"""What a step waits for: a block, its own file work, other file work, or (None) its next turn."""

Steps: TypeAlias = Generator[Pause, None, Outcome]
"""A handler that works in slices; at each `yield` the server serves others."""

Running: TypeAlias = Generator[Pause, None, None]
"""A request whose steps run; it sends its reply when it ends."""


class _SerialKey(NamedTuple):
    """The key shared by all requests that change which streams exist or what they capture."""


SERIAL: Final = _SerialKey()


def consumer_key(stream: str, consumer: str) -> Hashable:
    """Return the key of requests about one consumer."""
    return (stream, consumer)


class Port(Protocol):
    """What handlers require from the server; the runtime of an account derives from it."""

    def serve(self, host: StreamHost) -> None:
        """Route messages to the stream, on its current subjects, from now on."""

    def prepare_sources(self, host: StreamHost, cfg: StreamConfig) -> Sliced[None]:
        """Create the source readers of a configuration, in slices, before `serve` starts them."""

    def retire(self, host: StreamHost) -> None:
        """Route no more messages to the stream."""

    def watch(self, host: StreamHost, consumer: Consumer) -> None:
        """Notify a push consumer when its subscribers come and go."""

    def unwatch(self, consumer: Consumer) -> None:
        """Stop `watch`: the consumer is deleted, or delivers to another subject."""

    def mark(self, host: StreamHost) -> None:
        """Schedule a turn of the stream: it or its consumers changed."""

    def freeze(self, host: StreamHost, *, frozen: bool) -> None:
        """Suspend commits and other work on the stream's files, or resume them."""

    def perform(self, effects: list[Effect]) -> None:
        """Perform these effects now."""

    @property
    def num_transfers(self) -> int:
        """Return how many archives are being transferred."""

    def begin(self, transfer: Transfer) -> None:
        """Start the transfer of an archive."""

    def sweep(self) -> None:
        """Remove the files of deleted streams at some later time."""

    def describe_client(self, request: Request) -> AdvisoryClient:
        """Return the requesting client, as advisories show it."""

    def failed(self, request: Request, error: Exception) -> None:
        """Log that the handler of a request raised: a defect of this server."""


class ApiCall(NamedTuple):
    """The arguments of a handler."""

    assets: Assets
    port: Port
    names: list[str]
    request: Request
    now_ns: int
    has_reader: bool = True
    """Whether a subscriber receives the response; if not, the handler need not build it."""


class Endpoint(NamedTuple):
    """One kind of request: its response type, its handler, and how many names its subject has."""

    response: type[Response]
    handler: Callable[[ApiCall], Outcome | Steps]
    names_min: int = 0
    names_max: int = 0
    is_audited: bool = True
    is_serial: bool = False
    """Whether it changes which streams exist, or what they capture."""
    is_brief: bool = False
    """Whether it names a consumer and changes memory before it waits for the disk: requests about
    other consumers of the stream then need not wait for that disk write."""


class Endpoints:
    """The API of one account."""

    def __init__(
        self, assets: Assets, port: Port, table: dict[str, Endpoint], *, is_system: bool = False
    ) -> None:
        self._assets = assets
        self._port = port
        self._table = table
        self._is_system = is_system

    def handle(self, request: Request, now_ns: int) -> Running | None:
        """Serve a request, or return its steps, which the caller runs to the end or closes."""
        tokens = request.subject.split(".")[FIRST_NAME:]
        found = self._find(tokens)
        if found is None:
            return None
        endpoint, names = found
        refused = self._refusal(request)
        if refused is not None:
            if self._is_system and tokens != ["INFO"]:
                endpoint = endpoint._replace(response=SystemResponse)
            self._answer(endpoint, request, refused)
            return None
        has_reader = self._has_reader(request) or self._is_watched(endpoint)
        call = ApiCall(self._assets, self._port, names, request, now_ns, has_reader)
        try:
            outcome = endpoint.handler(call)
        except Exception as error:
            self._fail(endpoint, request, error)
            return None
        if isinstance(outcome, Generator):
            return self._run(endpoint, call, outcome)
        self._answer(endpoint, request, outcome)
        return None

    def _run(self, endpoint: Endpoint, call: ApiCall, steps: Steps) -> Running:
        """Run the steps of a handler, then reply."""
        host = self._assets.hosts.get(call.names[0]) if call.names else None
        outcome: Outcome = None
        try:
            while True:
                yield next(steps)
                if host is not None and host.is_closed:
                    outcome = refusals.STREAM_NOT_FOUND
                    break
        except StopIteration as end:
            outcome = end.value
        except Exception as error:
            self._fail(endpoint, call.request, error)
            return
        finally:
            self._close(call.request, steps)
        self._answer(endpoint, call.request, outcome)

    def _close(self, request: Request, steps: Steps) -> None:
        """Close the steps of a handler where they are."""
        try:
            steps.close()
        except Exception as error:
            self._port.failed(request, error)

    def keys(self, request: Request) -> Keys:
        """Return the keys on which the request must keep its order: its client, its stream."""
        found = self._find(request.subject.split(".")[FIRST_NAME:])
        keys: list[Hashable] = [] if request.client is None else [request.client]
        if found is None:
            return Keys(tuple(keys))
        endpoint, names = found
        keys += names[:1]
        if endpoint.is_serial:
            keys.append(SERIAL)
        if endpoint.is_brief and len(names) > 1:
            return Keys(alone=(consumer_key(names[0], names[1]),), brief=tuple(keys))
        return Keys(tuple(keys))

    def _find(self, tokens: list[str]) -> tuple[Endpoint, list[str]] | None:
        for length in (3, 2, 1):
            endpoint = self._table.get(".".join(tokens[:length]))
            names = tokens[length:]
            if endpoint and endpoint.names_min <= len(names) <= endpoint.names_max:
                return endpoint, names
        return None

    def _refusal(self, request: Request) -> ApiError | None:
        """Return a refusal that applies to every kind of request."""
        if not self._assets.is_enabled:
            return refusals.NOT_ENABLED_FOR_ACCOUNT
        return level_refusal(request.header)

    def _answer(self, endpoint: Endpoint, request: Request, outcome: Outcome) -> None:
        if outcome is None:
            return
        try:
            effects = self._reply_effects(endpoint, request, outcome)
        except Exception as error:
            self._fail(endpoint, request, error)
        else:
            self._send(outcome, effects)

    def _fail(self, endpoint: Endpoint, request: Request, error: Exception) -> None:
        """Log that a handler raised, and reply with an error."""
        self._port.failed(request, error)
        self._send(FAILED, self._reply_effects(endpoint, request, FAILED))

    def _reply_effects(self, endpoint: Endpoint, request: Request, outcome: Reply) -> list[Effect]:
        """Return the reply and the audit event, as far as they have subscribers.

        If this raises, nothing has been sent.
        """
        is_error = isinstance(outcome, ApiError)
        if isinstance(outcome, ApiError):
            response: Response = endpoint.response.refused(outcome)
        else:
            response = outcome.response if isinstance(outcome, HeldRequest) else outcome
        effects: list[Effect] = []
        has_reader = self._has_reader(request)
        is_watched = self._is_watched(endpoint, is_error=is_error)
        payload = encode(response) if has_reader or is_watched else b""
        if has_reader:
            header = outcome.header if isinstance(outcome, HeldRequest) else b""
            effects.append(Send(request.reply, payload, header))
        if is_watched:
            effects.append(self._audit(request, payload))
        self._assets.api_total += 1
        self._assets.api_errors += is_error or response.error is not None
        return effects

    def _has_reader(self, request: Request) -> bool:
        """Return whether the reply subject has a subscriber."""
        return bool(request.reply) and self._assets.environment.has_interest(request.reply, None)

    def _is_watched(self, endpoint: Endpoint, *, is_error: bool = False) -> bool:
        """Return whether the audit event of the request has a subscriber."""
        is_audited = endpoint.is_audited or is_error
        return is_audited and self._assets.environment.has_interest(api_subjects.API_AUDIT, None)

    def _send(self, outcome: Reply, effects: list[Effect]) -> None:
        """Send the reply now, or when the disk has the change it reports."""
        if isinstance(outcome, HeldRequest):
            outcome.host.hold((*effects, *outcome.then))
            self._port.mark(outcome.host)
        else:
            self._port.perform(effects)

    def _audit(self, request: Request, payload: bytes) -> Advise:
        return Advise(
            api_subjects.API_AUDIT,
            ApiAudit(
                server=self._assets.environment.server_name,
                client=self._port.describe_client(request),
                subject=request.subject,
                request=request.body.decode(errors="replace"),
                response=payload.decode(errors="replace"),
            ),
        )


def level_refusal(header: bytes) -> ApiError | None:
    """Return the refusal of a request that needs a newer API level; None if it does not."""
    demanded = headers.get(header, REQUIRED_LEVEL_HEADER.encode()) if header else None
    if not demanded or not demands_too_much(demanded.decode(errors="replace")):
        return None
    return refusals.REQUIRED_API_LEVEL
