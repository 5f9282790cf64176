"""The `jetstream` blocks of a configuration: for the server and for one account.

Sizes are integers, or text that ends in K, M, G or T; `sync_interval` is a duration or `always`.
Keys that only a cluster uses are checked and have no effect. A trusted platform module is not
supported and therefore refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.server.config.config_values import (
    ConfigFault,
    Reader,
    Section,
    as_bool,
    as_duration,
    as_int,
    as_text,
    boolean,
    checked,
    duration_text,
    integer,
    read_map,
    text,
    type_name,
    unsupported,
)
from penstock.server.config.options import (
    BatchOptions,
    JetStreamAccountLimits,
    JetStreamLimits,
    JetStreamOptions,
)

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node

SIZE_SUFFIXES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
CIPHERS: Final = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}
CONCURRENT_IO_MIN: Final = 4
CONCURRENT_IO_MAX: Final = 8192


def read_jetstream(section: Section, _key: str, node: Node) -> None:
    """Read the server's block: on or off in any spelling, or a map of options."""
    if isinstance(node.value, dict):
        fields = read_map(node.value, _JETSTREAM, section.problems)
        directory = fields.pop("store_dir", None)
        if directory is not None:
            if "store_dir" in section.fields:
                raise ConfigFault(node, "Duplicate 'store_dir' configuration")
            section.fields["store_dir"] = directory
        section.fields["jetstream"] = fields.pop("enabled", True)
        section.fields["jetstream_options"] = replace(JetStreamOptions(), **fields)
        return
    section.fields["jetstream"] = _switch(
        node, "Expected map, bool or string to define JetStream, got "
    )


def read_account_jetstream(section: Section, _key: str, node: Node) -> None:
    """Read whether an account may persist, and its limits."""
    if isinstance(node.value, dict):
        fields = read_map(node.value, _ACCOUNT_JETSTREAM, section.problems)
        section.fields["jetstream"] = replace(JetStreamAccountLimits(), **fields)
    elif _switch(node, "Expected map, bool or string to define JetStream, got "):
        section.fields["jetstream"] = JetStreamAccountLimits()
    else:
        section.fields["jetstream"] = None


def _switch(node: Node, otherwise: str) -> bool:
    if isinstance(node.value, bool):
        return node.value
    if isinstance(node.value, str):
        lowered = node.value.lower()
        if lowered in ("enable", "enabled", "disable", "disabled"):
            return lowered.startswith("enable")
        raise ConfigFault(
            node, f"Expected 'enabled' or 'disabled' for string value, got '{node.value}'"
        )
    raise ConfigFault(node, otherwise + type_name(node.value))


def _storage_size(node: Node) -> int:
    """Return the size in bytes; the caller adds the key's name before the text of the error."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError("must be int64 or string")
    if not value:
        return 0
    try:
        number = int(value[:-1])
    except ValueError:
        raise ValueError(f'strconv.ParseInt: parsing "{value[:-1]}": invalid syntax') from None
    if value[-1] not in SIZE_SUFFIXES:
        raise ValueError("sizes defined as strings must end in K, M, G, T")
    return number * SIZE_SUFFIXES[value[-1]]


def _size(name: str, called: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        try:
            section.fields[name] = _storage_size(node)
        except ValueError as error:
            raise ConfigFault(node, f"{called} {error}") from None

    return read


def _checked_size(section: Section, key: str, node: Node) -> None:
    try:
        _storage_size(node)
    except ValueError as error:
        raise ConfigFault(node, f"{key.lower()} {error}") from None


def _account_size(name: str) -> Reader:
    def read(section: Section, key: str, node: Node) -> None:
        if not isinstance(node.value, int) or isinstance(node.value, bool):
            raise ConfigFault(node, f'Expected a parseable size for "{key}", got {node.value}')
        section.fields[name] = node.value

    return read


def _bytes_required(section: Section, key: str, node: Node) -> None:
    if not isinstance(node.value, bool):
        raise ConfigFault(node, f'Expected a parseable bool for "{key}", got {node.value}')
    section.fields["max_bytes_required"] = node.value


def _sync(section: Section, key: str, node: Node) -> None:
    if isinstance(node.value, str) and node.value.lower() == "always":
        section.fields["sync_interval_ns"] = 0
        return
    section.fields["sync_interval_ns"] = as_duration(node, key, section.problems)


def _strict(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, bool):
        raise ConfigFault(node, f"Expected 'true' or 'false' for bool value, got '{node.value}'")
    section.fields["strict"] = node.value


def _cipher(section: Section, _key: str, node: Node) -> None:
    name = as_text(node)
    if name.lower() not in CIPHERS:
        raise ConfigFault(node, f'Unknown cipher type: "{name}"')
    section.fields["cipher"] = CIPHERS[name.lower()]


def _limits(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        kind = type_name(node.value)
        raise ConfigFault(node, f"Expected a map to define JetStreamLimits, got {kind}")
    fields = read_map(node.value, _LIMITS, section.problems)
    section.fields["limits"] = replace(JetStreamLimits(), **fields)


def _batch(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        raise ConfigFault(
            node, f"Expected a map to define batch limits, got {type_name(node.value)}"
        )
    fields = read_map(node.value, _BATCH, section.problems)
    section.fields["batch"] = replace(BatchOptions(), **fields)


def _span(name: str) -> Reader:
    def read(section: Section, key: str, node: Node) -> None:
        section.fields[name] = duration_text(node, key)

    return read


def _concurrent_io(_section: Section, key: str, node: Node) -> None:
    if not isinstance(node.value, int) or not (
        CONCURRENT_IO_MIN <= node.value <= CONCURRENT_IO_MAX
    ):
        raise ConfigFault(
            node, f'Expected an absolute size for "{key}" between 4 and 8192, got {node.value}'
        )


def _cluster_traffic(_section: Section, key: str, node: Node) -> None:
    if node.value not in ("system", "owner", ""):
        raise ConfigFault(
            node, f"Expected 'system' or 'owner' string value for \"{key}\", got {node.value}"
        )


_JETSTREAM: dict[str, Reader] = {
    "strict": _strict,
    **dict.fromkeys(("store", "store_dir", "storedir"), text("store_dir")),
    **dict.fromkeys(("sync", "sync_interval"), _sync),
    **dict.fromkeys(
        ("max_memory_store", "max_mem_store", "max_mem"), _size("max_memory", "max_mem_store")
    ),
    **dict.fromkeys(("max_file_store", "max_file"), _size("max_store", "max_file_store")),
    "domain": text("domain"),
    **dict.fromkeys(("enable", "enabled"), boolean("enabled")),
    **dict.fromkeys(("key", "ek", "encryption_key"), text("key")),
    **dict.fromkeys(("prev_key", "prev_ek", "prev_encryption_key"), text("prev_key")),
    "cipher": _cipher,
    "extension_hint": checked(as_text),
    "limits": _limits,
    "tpm": unsupported,
    "unique_tag": checked(as_text),
    **dict.fromkeys(
        ("max_outstanding_catchup", "max_buffered_size", "meta_compact_size"), _checked_size
    ),
    **dict.fromkeys(
        ("max_buffered_msgs", "request_queue_limit", "info_queue_limit", "meta_compact"),
        checked(as_int),
    ),
    "meta_compact_sync": checked(as_bool),
    "max_concurrent_io": _concurrent_io,
}
_LIMITS: dict[str, Reader] = {
    "max_ack_pending": integer("max_ack_pending"),
    "max_ha_assets": checked(as_int),
    "max_request_batch": integer("max_request_batch"),
    "default_max_consumers": integer("default_max_consumers"),
    "duplicate_window": _span("duplicate_window_ns"),
    "batch": _batch,
}
_BATCH: dict[str, Reader] = {
    "max_inflight_per_stream": integer("max_inflight_per_stream"),
    "max_inflight_total": integer("max_inflight_total"),
    "max_msgs": integer("max_msgs"),
    "timeout": _span("timeout_ns"),
}
_ACCOUNT_JETSTREAM: dict[str, Reader] = {
    **dict.fromkeys(("max_memory", "max_mem", "mem", "memory"), _account_size("max_memory")),
    **dict.fromkeys(
        ("max_store", "max_file", "max_disk", "store", "disk"), _account_size("max_storage")
    ),
    **dict.fromkeys(("max_streams", "streams"), _account_size("max_streams")),
    **dict.fromkeys(("max_consumers", "consumers"), _account_size("max_consumers")),
    **dict.fromkeys(("max_bytes_required", "max_stream_bytes", "max_bytes"), _bytes_required),
    **dict.fromkeys(
        ("mem_max_stream_bytes", "memory_max_stream_bytes"),
        _account_size("memory_max_stream_bytes"),
    ),
    **dict.fromkeys(
        ("disk_max_stream_bytes", "store_max_stream_bytes"),
        _account_size("storage_max_stream_bytes"),
    ),
    "max_ack_pending": _account_size("max_ack_pending"),
    "cluster_traffic": _cluster_traffic,
}
