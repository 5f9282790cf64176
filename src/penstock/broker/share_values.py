"""What accounts share with each other, as plain values: exports, imports and mappings.

The configuration creates them; `broker.import_resolver` matches them. Invariant: a value never
changes, and every subject in an export is valid. Whether an import has a matching export is not
decided here.
"""

from __future__ import annotations

import enum

# msgspec resolves annotations when docs are generated, so their names must exist at run time.
from typing import Annotated

from msgspec import Meta, Struct

RESPONSE_THRESHOLD_NS_DEFAULT = 120_000_000_000


class ShareKind(enum.Enum):
    """What is shared: a stream of messages, or a service that replies to requests."""

    STREAM = "stream"
    SERVICE = "service"


class ResponseKind(enum.Enum):
    """How many replies a service sends to one request."""

    SINGLETON = "singleton"
    STREAM = "stream"
    CHUNKED = "chunked"


class Export(Struct, frozen=True, kw_only=True):
    """A subject that other accounts may import."""

    kind: Annotated[ShareKind, Meta(description="Stream or service.")]
    subject: Annotated[str, Meta(description="What is shared.")]
    accounts: Annotated[tuple[str, ...], Meta(description="Who may; empty: everybody.")] = ()
    response: Annotated[ResponseKind, Meta(description="singleton, stream or chunked.")] = (
        ResponseKind.SINGLETON
    )
    threshold_ns: Annotated[int, Meta(description="How long an answer may take.")] = (
        RESPONSE_THRESHOLD_NS_DEFAULT
    )
    account_position: Annotated[
        int, Meta(description="Which token must be the importer's name; 0: none.")
    ] = 0
    allow_trace: Annotated[
        bool, Meta(description="Traces of requests go on into this account.")
    ] = False


class Import(Struct, frozen=True, kw_only=True):
    """A subject that an account uses from another account."""

    kind: Annotated[ShareKind, Meta(description="Stream or service.")]
    account: Annotated[str, Meta(description="Whose it is.")]
    subject: Annotated[str, Meta(description="What it is called there.")]
    to: Annotated[str, Meta(description="What it is called here; empty: the same.")] = ""
    prefix: Annotated[str, Meta(description="Put before a stream's subjects.")] = ""
    share: Annotated[bool, Meta(description="A service learns who asks.")] = False
    allow_trace: Annotated[
        bool, Meta(description="The exporter's traces of a stream go on into this account.")
    ] = False


class Destination(Struct, frozen=True, kw_only=True):
    """A destination of a mapping, with its share of the messages."""

    subject: Annotated[str, Meta(description="The new subject; may use {{wildcard(1)}} and so on.")]
    weight: Annotated[int, Meta(description="Percent of the messages.")] = 100
    cluster: Annotated[str, Meta(description="Only in this cluster; empty: everywhere.")] = ""


class Mapping(Struct, frozen=True, kw_only=True):
    """A mapping from published subjects to other subjects."""

    subject: Annotated[str, Meta(description="What is published.")]
    destinations: Annotated[tuple[Destination, ...], Meta(description="What it becomes.")] = ()
