"""`msg_trace` of an account: the destination and sampling of traces requested by `traceparent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.server.config.config_values import ConfigFault, read_map, type_name
from penstock.subjects.tokens import has_wildcard, is_valid_subject

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node
    from penstock.server.config.config_values import Reader, Section

NO_DESTINATION: Final = "Trace destination sampling ignored since no destination was set"
SAMPLING_MAX: Final = 100
"""Percent."""


def read_message_trace(section: Section, key: str, node: Node) -> None:
    """Read a destination, or a map of destination and sampling."""
    if isinstance(node.value, str):
        _dest(section, key, node)
    elif isinstance(node.value, dict):
        found = read_map(node.value, _TRACE, section.problems)
        if "trace_sampling" in found and "trace_dest" not in found:
            section.problems.warnings.append(f"{node.where}: {NO_DESTINATION}")
        section.fields.update(found)
    else:
        raise ConfigFault(
            node,
            f"Expected account message trace {key!r} to be a string or a map/struct, "
            f"got {type_name(node.value)}",
        )


def _dest(section: Section, key: str, node: Node) -> None:
    if not isinstance(node.value, str):
        raise ConfigFault(node, f'Field "{key}" should be a string, got {type_name(node.value)}')
    if not is_valid_subject(node.value) or has_wildcard(node.value):
        raise ConfigFault(node, f'Trace destination "{node.value}" is not valid')
    section.fields["trace_dest"] = node.value


def _sampling(section: Section, key: str, node: Node) -> None:
    value = node.value
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if not digits.lstrip("+-").isdecimal():
            raise ConfigFault(node, f'Invalid trace destination sampling value "{value}"')
        value = int(digits)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigFault(
            node,
            f'Trace destination sampling field "{key}" should be an integer or a percentage, '
            f"got {type_name(value)}",
        )
    if not 1 <= value <= SAMPLING_MAX:
        raise ConfigFault(
            node,
            f"Ttrace destination sampling value {value} is invalid, needs to be [1..100]",
        )
    section.fields["trace_sampling"] = value


_TRACE: dict[str, Reader] = {"dest": _dest, "sampling": _sampling}
