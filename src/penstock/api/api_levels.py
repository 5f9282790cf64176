"""API levels: the level an asset requires, and the level this server supports.

The stored metadata of an asset holds the level it requires. Replies add the server's version and
level, which are never stored. A request may also require a level. Pure functions of maps and text.
"""

import re
from typing import Final

from penstock.base.version import REFERENCE_API_LEVEL, REFERENCE_VERSION

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
VERSION_KEY: Final = "_nats.ver"
LEVEL_KEY: Final = "_nats.level"
#: Keys that only replies carry.
SHOWN_KEYS: Final = frozenset((VERSION_KEY, LEVEL_KEY))
#: Keys that replies carried in earlier versions; a saved configuration may still contain them.
FORMER_KEYS: Final = frozenset(("_nats.penstock.incarnation", "_nats.penstock.loss_floor"))
_NEVER_STORED: Final = SHOWN_KEYS | FORMER_KEYS
#: The request header that requires a level.
REQUIRED_LEVEL_HEADER: Final = "Nats-Required-Api-Level"
PENSTOCK_HEADER: Final = "Penstock-Info"
"""With this header the reply to `STREAM.INFO` contains `PenstockInfo`; other servers ignore it.

The field is opt-in because some clients reject a reply with an unknown field.
"""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def stored_metadata(metadata: dict[str, str], level: int) -> dict[str, str]:
    """Return metadata for storage: with the level the asset requires, without reply-only keys."""
    return without_shown(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def shown_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Return metadata for a reply: with the version and level of the server."""
    return without_shown(metadata) | {
        VERSION_KEY: REFERENCE_VERSION,
        LEVEL_KEY: str(REFERENCE_API_LEVEL),
    }


def without_shown(metadata: dict[str, str]) -> dict[str, str]:
    """Remove the keys that are never stored; clients send back metadata from replies."""
    return {key: value for key, value in metadata.items() if key not in _NEVER_STORED}


def without_levels(metadata: dict[str, str]) -> dict[str, str]:
    """Return only the user's metadata, to compare two configurations."""
    return {
        key: value for key, value in without_shown(metadata).items() if key != REQUIRED_LEVEL_KEY
    }


def demands_too_much(demanded: str) -> bool:
    """Return whether the header value requires more than this server supports.

    A value that is not an integer always does; an empty value never does.
    """
    if not demanded:
        return False
    if not _INTEGER.fullmatch(demanded):
        return True
    return int(demanded) > REFERENCE_API_LEVEL
