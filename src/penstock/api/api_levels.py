"""API levels: what an asset needs of a server, and what this server offers.

An asset's stored metadata says the level it needs; answers add the server's own version and level,
which are never stored. A request may demand a level, too. Pure functions of maps and text.
"""

import re
from typing import Final

from penstock.base.version import REFERENCE_API_LEVEL, REFERENCE_VERSION

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
VERSION_KEY: Final = "_nats.ver"
LEVEL_KEY: Final = "_nats.level"
#: Keys that only replies carry.
SHOWN_KEYS: Final = frozenset((VERSION_KEY, LEVEL_KEY))
#: Keys that replies once carried: a configuration saved from one may still have them.
FORMER_KEYS: Final = frozenset(("_nats.penstock.incarnation", "_nats.penstock.loss_floor"))
_NEVER_STORED: Final = SHOWN_KEYS | FORMER_KEYS
#: The header by which a request demands a level.
REQUIRED_LEVEL_HEADER: Final = "Nats-Required-Api-Level"
PENSTOCK_HEADER: Final = "Penstock-Info"
"""A `STREAM.INFO` request with this header is answered with `PenstockInfo`; other servers ignore
it. Unasked, some clients refuse a reply with a field that they do not know."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def stored_metadata(metadata: dict[str, str], level: int) -> dict[str, str]:
    """Return metadata as it is stored: with the level the asset needs, without the server's own."""
    return without_shown(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def shown_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Return metadata as a reply shows it: with the version and the level of the server."""
    return without_shown(metadata) | {
        VERSION_KEY: REFERENCE_VERSION,
        LEVEL_KEY: str(REFERENCE_API_LEVEL),
    }


def without_shown(metadata: dict[str, str]) -> dict[str, str]:
    """Remove the keys that only replies carry: clients send back what they were shown."""
    return {key: value for key, value in metadata.items() if key not in _NEVER_STORED}


def without_levels(metadata: dict[str, str]) -> dict[str, str]:
    """What the user put there: for telling whether two configurations are the same."""
    return {
        key: value for key, value in without_shown(metadata).items() if key != REQUIRED_LEVEL_KEY
    }


def demands_too_much(demanded: str) -> bool:
    """Whether the header's value asks for more than this server has; nonsense always does."""
    if not demanded:
        return False
    if not _INTEGER.fullmatch(demanded):
        return True
    return int(demanded) > REFERENCE_API_LEVEL
