"""Options of object stores: one flat list of names from a user, and the forms that libraries want.

A user gives `name=value` pairs, as obstore and delta-rs document them. obstore wants those of the
HTTP client apart from those of the store; delta-rs wants all of them together, as text.
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
"""What obstore takes as an option of its HTTP client."""
ENDPOINTS: Final = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url",
                    "azure_storage_endpoint", "azure_endpoint", "google_base_url")  # fmt: skip
PLAIN_HTTP: Final = "http://"
WORDS: Final = {"true": True, "false": False}


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as obstore takes them: those of the HTTP client under `client_options`.

    Their names may begin with `client.`, as in `penstock fold`. An `http://` endpoint
    allows plain HTTP, unless the user says otherwise.
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
    """Options as delta-rs takes them: all together, all text."""
    parted = nested(options)
    inner = parted.pop(CLIENT, {})
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (parted | inner).items()
    }


def _typed(value: Any) -> Any:
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value
