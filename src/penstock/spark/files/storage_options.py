"""Options of object stores: one flat list from a user, in the forms that libraries require.

A user gives `name=value` pairs, as obstore and delta-rs document them. obstore requires the options
of the HTTP client separate from those of the store; delta-rs requires all together, as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT: Final = "client_options"
CLIENT_PREFIX: Final = "client."
CLIENT_NAMES: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "timeout",
        "user_agent",
    }
)
"""Options of obstore's HTTP client."""
ENDPOINTS: Final = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url",
                    "azure_storage_endpoint", "azure_endpoint", "google_base_url")  # fmt: skip
PLAIN_HTTP: Final = "http://"
WORDS: Final = {"true": True, "false": False}


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as obstore takes them: those of the HTTP client under `client_options`.

    Their names may have the prefix `client.`, as in `penstock fold`. An `http://` endpoint allows
    plain HTTP, unless the user sets `allow_http`.
    """
    client = dict(options.get(CLIENT, {}))
    store: dict[str, Any] = {}
    for name, value in options.items():
        bare = name.removeprefix(CLIENT_PREFIX)
        if bare != name or name in CLIENT_NAMES:
            client[bare] = _typed(value)
        elif name != CLIENT:
            store[name] = value
    if any(str(store.get(name, "")).lower().startswith(PLAIN_HTTP) for name in ENDPOINTS):
        client.setdefault("allow_http", True)
    return store | ({CLIENT: client} if client else {})


def flat(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as delta-rs takes them: all together, all text."""
    parted = nested(options)
    inner = parted.pop(CLIENT, {})
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (parted | inner).items()
    }


def _typed(value: Any) -> Any:
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value
