"""Sharing between accounts: `exports`, `imports` and `mappings`.

The readers check the form of each entry, and mappings completely. `sharing_of` checks that every
import has an export, once all accounts are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.base.durations import parse_duration
from penstock.broker.import_resolver import Shares, join
from penstock.broker.share_values import (
    Destination,
    Export,
    Import,
    Mapping,
    ResponseKind,
    ShareKind,
)
from penstock.broker.subject_mappings import MappingFault, Mappings
from penstock.server.config.config_values import (
    ConfigFault,
    Problems,
    Reader,
    Section,
    as_bool,
    as_list,
    as_map,
    as_text,
    boolean,
    integer,
    read_map,
    text,
    type_name,
    unsupported,
)
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.broker.import_resolver import Sharing
    from penstock.server.config.config_file import Node
    from penstock.server.config.options import AccountOptions

T = TypeVar("T")

WEIGHT_MAX = 100
_RESPONSES = {
    "single": ResponseKind.SINGLETON,
    "singleton": ResponseKind.SINGLETON,
    "stream": ResponseKind.STREAM,
    "chunk": ResponseKind.CHUNKED,
    "chunked": ResponseKind.CHUNKED,
}


def read_exports(section: Section, _key: str, node: Node) -> None:
    section.fields["exports"] = _items(node, "Exports", section.problems, _export)


def read_imports(section: Section, _key: str, node: Node) -> None:
    section.fields["imports"] = _items(node, "Imports", section.problems, _import)


def read_mappings(section: Section, _key: str, node: Node) -> None:
    mappings = []
    for subject, entry in as_map(node).items():
        try:
            mappings.append(_mapping(subject, entry, node, section.problems))
        except ConfigFault as fault:
            section.problems.errors.append(str(fault))
    section.fields["mappings"] = tuple(mappings)


def sharing_of(accounts: Iterable[AccountOptions]) -> Sharing:
    """Resolve all imports of a server; raise `SharingFault`."""
    return join(Shares(one.name, one.exports, one.imports) for one in accounts)


def _items(
    node: Node, what: str, problems: Problems, read: Callable[[Node, Problems], T | None]
) -> tuple[T, ...]:
    if not isinstance(node.value, list):
        raise ConfigFault(node, f"{what} should be an array, got {type_name(node.value)}")
    items = []
    for item in node.value:
        try:
            found = read(item, problems)
        except ConfigFault as fault:
            problems.errors.append(str(fault))
        else:
            items += [] if found is None else [found]
    return tuple(items)


# Exports


def _export(node: Node, problems: Problems) -> Export | None:
    if not isinstance(node.value, dict):
        got = type_name(node.value)
        raise ConfigFault(node, f"Export Items should be a map with type entry, got {got}")
    fields = read_map(node.value, _EXPORT, problems)
    kind = _kind(node, fields)
    if kind is None:
        return None
    if kind is ShareKind.STREAM:
        for key, what in (("response", "response"), ("allow_trace", "allow_trace")):
            if key in fields:
                raise ConfigFault(node, f"Detected {what} directive on non-service")
    subject = fields.pop(kind.value)
    # Here and below: `read_map` has read every field with its declared type.
    return Export(kind=kind, subject=subject, **fields)  # type: ignore[arg-type]


def _kind(node: Node, fields: dict[str, object]) -> ShareKind | None:
    if "stream" in fields and "service" in fields:
        raise ConfigFault(node, "Detected service but already saw a stream")
    if "stream" in fields:
        return ShareKind.STREAM
    return ShareKind.SERVICE if "service" in fields else None


def _subject(kind: ShareKind) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        if not isinstance(node.value, str):
            got = type_name(node.value)
            raise ConfigFault(node, f"Expected {kind.value} name to be string, got {got}")
        section.fields[kind.value] = node.value

    return read


def _response(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, str):
        raise ConfigFault(node, f"Expected response type to be string, got {type_name(node.value)}")
    found = _RESPONSES.get(node.value.lower())
    if found is None:
        raise ConfigFault(node, f'Unknown response type: "{node.value}"')
    section.fields["response"] = found


def _threshold(section: Section, _key: str, node: Node) -> None:
    wanted = "Expected response threshold to be a parseable time duration, got"
    if not isinstance(node.value, str):
        raise ConfigFault(node, f"{wanted} {type_name(node.value)}")
    try:
        section.fields["threshold_ns"] = parse_duration(node.value)
    except ValueError:
        raise ConfigFault(node, f'{wanted} "{node.value}"') from None


def _account_names(section: Section, _key: str, node: Node) -> None:
    section.fields["accounts"] = tuple(as_text(item) for item in as_list(node))


# Imports


def _import(node: Node, problems: Problems) -> Import | None:
    if not isinstance(node.value, dict):
        got = type_name(node.value)
        raise ConfigFault(node, f"Import Items should be a map with type entry, got {got}")
    fields = read_map(node.value, _IMPORT, problems)
    kind = _kind(node, fields)
    if kind is None:
        return None
    if kind is ShareKind.STREAM and fields.get("prefix") and fields.get("to"):
        raise ConfigFault(node, "Stream import can not have a 'prefix' and a 'to' property")
    if kind is ShareKind.SERVICE and "allow_trace" in fields:
        raise ConfigFault(node, "Detected allow_trace directive on a non-stream")
    origin = fields.pop(kind.value)
    return Import(kind=kind, **origin, **fields)  # type: ignore[arg-type]


def _origin(kind: ShareKind) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            got = type_name(node.value)
            raise ConfigFault(
                node, f"{kind.value.title()} entry should be an account map, got {got}"
            )
        found = read_map(node.value, _ORIGIN, section.problems)
        if not found.get("account") or not found.get("subject"):
            raise ConfigFault(node, "Expect an account name and a subject")
        section.fields[kind.value] = found

    return read


# Mappings


def _mapping(subject: str, entry: Node, node: Node, problems: Problems) -> Mapping:
    if not is_valid_subject(subject):
        raise ConfigFault(node, f'Subject "{subject}" is not a valid subject')
    named = ""
    if isinstance(entry.value, str):
        found = [Destination(subject=entry.value)]
        named = f' to "{entry.value}"'
    else:
        entries = entry.value if isinstance(entry.value, list) else [entry]
        found = [_destination(item, problems) for item in entries]
    mapping = Mapping(subject=subject, destinations=tuple(found))
    try:
        Mappings([mapping], draw=lambda _: 0)
    except MappingFault as fault:
        raise ConfigFault(entry, f'Error adding mapping for "{subject}"{named} : {fault}') from None
    return mapping


def _destination(node: Node, problems: Problems) -> Destination:
    if not isinstance(node.value, dict):
        raise ConfigFault(node, "Expected an entry for the mapping destination")
    fields = read_map(node.value, _DESTINATION, problems, _unknown_destination)
    if "weight" not in fields:
        shown = fields.get("subject", "")
        raise ConfigFault(node, f'Missing weight for mapping destination "{shown}"')
    return Destination(**{"subject": "", **fields})  # type: ignore[arg-type]


def _unknown_destination(key: str, _node: Node) -> str | None:
    return f'Unknown field "{key}" for mapping destination'


def _weight(section: Section, _key: str, node: Node) -> None:
    value = node.value
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if not digits.lstrip("+-").isdigit():
            raise ConfigFault(node, f'Invalid weight "{digits}" for mapping destination')
        value = int(digits)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigFault(node, f"Unknown entry type for weight of {value}")
    if not 0 <= value <= WEIGHT_MAX:
        raise ConfigFault(node, f"Invalid weight {value} for mapping destination")
    section.fields["weight"] = value


def _trace(section: Section, _key: str, node: Node) -> None:
    section.fields["allow_trace"] = as_bool(node)


_EXPORT: dict[str, Reader] = {
    "stream": _subject(ShareKind.STREAM),
    "service": _subject(ShareKind.SERVICE),
    **dict.fromkeys(("response", "response_type"), _response),
    **dict.fromkeys(
        ("threshold", "response_threshold", "response_max_time", "response_time"), _threshold
    ),
    "accounts": _account_names,
    "account_token_position": integer("account_position"),
    "allow_trace": _trace,
    "latency": unsupported,
}
_IMPORT: dict[str, Reader] = {
    "stream": _origin(ShareKind.STREAM),
    "service": _origin(ShareKind.SERVICE),
    "prefix": text("prefix"),
    "to": text("to"),
    "share": boolean("share"),
    "allow_trace": boolean("allow_trace"),
}
_ORIGIN: dict[str, Reader] = {"account": text("account"), "subject": text("subject")}
_DESTINATION: dict[str, Reader] = {
    **dict.fromkeys(("dest", "destination"), text("subject")),
    "weight": _weight,
    "cluster": text("cluster"),
}
