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
INCARNATION_KEY: Final = "_nats.penstock.incarnation"
"""Which stream it is: no other has this value, not even one restored from it. It begins with the
time the stream was made, by which those who read it know that it was not copied from elsewhere."""
LOSS_FLOOR_KEY: Final = "_nats.penstock.loss_floor"
"""The highest sequence whose message went while it was the newest of its subject."""
#: What answers have and nothing stored has.
SHOWN_KEYS: Final = frozenset((VERSION_KEY, LEVEL_KEY, INCARNATION_KEY, LOSS_FLOOR_KEY))
#: The header by which a request demands a level.
REQUIRED_LEVEL_HEADER: Final = "Nats-Required-Api-Level"

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def stored_metadata(metadata: dict[str, str], level: int) -> dict[str, str]:
    """Metadata as it is kept: it says the level the asset needs, and no more."""
    return without_shown(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def shown_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata as an answer shows it: with what the server is."""
    return metadata | {VERSION_KEY: REFERENCE_VERSION, LEVEL_KEY: str(REFERENCE_API_LEVEL)}


def shown_losses(created_ns: int, incarnation: str, loss_floor: int) -> dict[str, str]:
    """What the description of a stream says besides: which one it is, and what it lost."""
    return {
        INCARNATION_KEY: f"{made_at(created_ns)}{incarnation}",
        LOSS_FLOOR_KEY: str(loss_floor),
    }


def made_at(created_ns: int) -> str:
    """How the incarnation of a stream made at this time begins."""
    return f"{created_ns:x}."


def without_shown(metadata: dict[str, str]) -> dict[str, str]:
    """Without what only answers have: clients send back what they were shown."""
    return {key: value for key, value in metadata.items() if key not in SHOWN_KEYS}


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
