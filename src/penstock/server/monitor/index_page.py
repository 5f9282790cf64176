"""The index page of monitoring: links to all other pages, no external resources."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from penstock.base.version import REFERENCE_VERSION, VERSION
from penstock.server.monitor.page_answers import HTML_TYPE, NO_SNIFFING, Headers, PageAnswer

if TYPE_CHECKING:
    from penstock.server.server_state import ServerState

ENTRIES: Final = (
    ("varz", "General", "version, options, counters"),
    ("connz", "Connections", "who is connected, or was"),
    ("subsz", "Subscriptions", "the routing table"),
    ("accountz", "Accounts", "subject spaces"),
    ("accstatz", "Account statistics", "traffic by account"),
    ("routez", "Routes", "other servers of a cluster"),
    ("gatewayz", "Gateways", "other clusters"),
    ("leafz", "Leaf nodes", "servers attached as leaves"),
    ("jsz", "JetStream", "persistence"),
    ("healthz", "Health", "for probes"),
    ("stacksz", "Stacks", "what its threads do"),
    ("metrics", "Metrics", "for Prometheus"),
)
#: The page loads no resources and runs no scripts.
LOCKED_DOWN: Final[Headers] = (
    *NO_SNIFFING,
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
)
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{name}</title>
<style>
body {{ font: 16px/1.6 system-ui, sans-serif; margin: 3rem auto; max-width: 40rem; color: #223; }}
h1 {{ font-size: 1.4rem; margin-bottom: 0; }}
p, td + td {{ color: #667; }}
td {{ padding: 0 1.5rem 0 0; }}
a {{ color: #0a58a8; text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
</style>
</head>
<body>
<h1>{name}</h1>
<p>penstock {version}, as NATS {reference}</p>
<table>
{rows}
</table>
</body>
</html>
"""


def index(service: ServerState) -> PageAnswer:
    base = service.options.http_base_path.rstrip("/")
    rows = "\n".join(
        f'<tr><td><a href="{escape(base)}/{path}">{title}</a></td><td>{prose}</td></tr>'
        for path, title, prose in ENTRIES
    )
    page = _PAGE.format(
        name=escape(service.server_name), version=VERSION, reference=REFERENCE_VERSION, rows=rows
    )
    return PageAnswer(200, HTML_TYPE, page.encode("utf-8", "replace"), LOCKED_DOWN)
