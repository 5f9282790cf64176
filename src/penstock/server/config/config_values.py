"""Typed readers of a configuration tree: one reader per key, one list of problems per file.

A section of the file is a table from key to `Reader`. `read_map` runs the readers over a map and
returns the fields they set. Invariant: one bad key never hides another, so all faults of a file are
reported at once, each with its position. An unknown key is a fault unless a variable refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct, field

from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS
from penstock.server.config.config_file import ConfigError, Node, Plain, Tree
from penstock.server.config.quantities import parse_port, seconds_to_ns, split_host_port


class ConfigFault(Exception):
    """A fault in one value."""

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(f"{node.where}: {text}")


class Problems(Struct):
    """Faults of a file. The server starts despite warnings."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, node: Node, key: str, text: str) -> None:
        self.warnings.append(f'{node.where}: invalid use of field "{key}": {text}')

    def lines(self) -> str:
        return "\n".join((*self.warnings, *self.errors))

    def raise_errors(self) -> None:
        if self.errors:
            raise ConfigError(self.lines())


class Section(Struct):
    """One map being read, and the fields set so far."""

    problems: Problems
    fields: dict[str, object] = field(default_factory=dict)


Reader: TypeAlias = Callable[[Section, str, Node], None]
Table: TypeAlias = Mapping[str, Reader]
Unknown: TypeAlias = Callable[[str, Node], str | None]


def unknown_field(key: str, node: Node) -> str | None:
    """Return the default message for an unknown key; None accepts the key."""
    return None if node.used_as_variable else f'unknown field "{key}"'


def read_map(
    tree: Tree, table: Table, problems: Problems, unknown: Unknown = unknown_field
) -> dict[str, object]:
    """Run the reader of every key; append faults to `problems`."""
    section = Section(problems=problems)
    for key, node in tree.items():
        reader = table.get(key.lower())
        try:
            if reader is not None:
                reader(section, key, node)
            elif (text := unknown(key, node)) is not None:
                raise ConfigFault(node, text)
        except ConfigFault as fault:
            problems.errors.append(str(fault))
    return section.fields


# Type checks, in the words of the reference


def type_name(value: Plain) -> str:
    """Return the reference's name of a value's type."""
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    raise AssertionError(value)


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),  # before int, because bool is a subclass
    (str, "string"),
    (int, "int64"),
    (float, "float64"),
    (datetime, "time.Time"),
    (list, "[]interface {}"),
    (dict, "map[string]interface {}"),
)


def _mismatch(node: Node, wanted: str) -> ConfigFault:
    got = type_name(node.value)
    return ConfigFault(node, f"interface conversion: interface {{}} is {got}, not {wanted}")


def as_text(node: Node) -> str:
    if not isinstance(node.value, str):
        raise _mismatch(node, "string")
    return node.value


def as_int(node: Node) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool):
        raise _mismatch(node, "int64")
    return node.value


def as_bool(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise _mismatch(node, "bool")
    return node.value


def as_map(node: Node) -> Tree:
    if not isinstance(node.value, dict):
        raise _mismatch(node, "map[string]interface {}")
    return node.value


def as_list(node: Node) -> list[Node]:
    if not isinstance(node.value, list):
        raise _mismatch(node, "[]interface {}")
    return node.value


def as_texts(node: Node, what: str, problems: Problems) -> tuple[str, ...]:
    """Read one string, or a list of strings."""
    if isinstance(node.value, str):
        return (node.value,)
    if not isinstance(node.value, list):
        raise ConfigFault(node, f"error parsing {what}: unsupported type {type_name(node.value)}")
    texts = []
    for item in node.value:
        if isinstance(item.value, str):
            texts.append(item.value)
        else:
            kind = type_name(item.value)
            problems.errors.append(
                f"{item.where}: error parsing {what}: unsupported type in array {kind}"
            )
    return tuple(texts)


def as_duration(node: Node, key: str, problems: Problems) -> int:
    """Return a duration string in nanoseconds; a bare number means seconds and adds a warning."""
    if isinstance(node.value, str):
        return duration_text(node, key)
    problems.warn(node, key, f"{key} should be converted to a duration")
    return as_int(node) * SECOND_NS


def duration_text(node: Node, key: str) -> int:
    """Return a duration in nanoseconds; it must be a string."""
    try:
        return parse_duration(as_text(node))
    except ValueError as error:
        raise ConfigFault(node, f"error parsing {key}: {error}") from None


def as_timeout(node: Node, block: str) -> int:
    """Return a timeout in nanoseconds; it is a number of seconds or a duration string."""
    value = node.value
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ConfigFault(node, f"error parsing {block} config, 'timeout' {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigFault(node, f"error parsing {block} config, 'timeout' wrong type")
    return seconds_to_ns(value)


def as_listen(node: Node) -> tuple[str, int]:
    """Read `port` or `host:port`."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return "", value
    if not isinstance(value, str):
        raise ConfigFault(node, f"expected port or host:port, got {type_name(value)}")
    try:
        host, port = split_host_port(value)
    except ValueError:
        raise ConfigFault(node, f'could not parse address string "{value}"') from None
    try:
        return host, parse_port(port)
    except ValueError:
        raise ConfigFault(node, f'could not parse port "{port}"') from None


# Reader factories


def text(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[name] = as_text(node)

    return read


def integer(name: str, most: int | None = None) -> Reader:
    def read(section: Section, key: str, node: Node) -> None:
        value = as_int(node)
        if most is not None and value > most:
            raise ConfigFault(node, f"{key} value is too big")
        section.fields[name] = value

    return read


def boolean(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[name] = as_bool(node)

    return read


def duration(name: str, called: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[name] = as_duration(node, called, section.problems)

    return read


def listen(host: str, port: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[host], section.fields[port] = as_listen(node)

    return read


def checked(check: Callable[[Node], object]) -> Reader:
    """Return a reader that checks a key without effect: this server lacks what it configures."""

    def read(_section: Section, _key: str, node: Node) -> None:
        check(node)

    return read


def checked_duration(called: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        as_duration(node, called, section.problems)

    return read


def not_supported(node: Node, what: str) -> ConfigFault:
    return ConfigFault(node, f"{what} is not supported by this server yet")


def unsupported(section: Section, key: str, node: Node) -> None:
    """Refuse a key of the reference that this server does not support."""
    raise not_supported(node, key)


def only_off(section: Section, key: str, node: Node) -> None:
    """Accept a key of an unsupported feature only if it is off."""
    if node.value is False or node.value == [] or node.value == "":
        return
    raise not_supported(node, key)
