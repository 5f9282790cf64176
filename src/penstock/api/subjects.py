"""The subjects JetStream is asked, answers and tells under.

One place for the names, so that nobody spells them twice. What stands behind a prefix is the name
of a stream, or of a stream and a consumer. Which request a subject is, the endpoints decide.
"""

from typing import Final

API: Final = "$JS.API"
API_PREFIX: Final = f"{API}."
API_ALL: Final = f"{API}.>"
ACK_PREFIX: Final = "$JS.ACK."
FLOW_PREFIX: Final = "$JS.FC."
SNAPSHOT_ACK_PREFIX: Final = "$JS.SNAPSHOT.ACK."
RESTORE_PREFIX: Final = "$JS.SNAPSHOT.RESTORE."
DIRECT_GET_PREFIX: Final = f"{API}.DIRECT.GET."
NEXT_PREFIX: Final = f"{API}.CONSUMER.MSG.NEXT."
#: Direct reads are answered by one member of this queue group.
DIRECT_GET_GROUP: Final = "_sys_"

ADVISORY: Final = "$JS.EVENT.ADVISORY"
METRIC: Final = "$JS.EVENT.METRIC"
API_AUDIT: Final = f"{ADVISORY}.API"
API_LIMIT_REACHED: Final = f"{ADVISORY}.API.LIMIT_REACHED"
STREAM_CREATED: Final = f"{ADVISORY}.STREAM.CREATED."
STREAM_DELETED: Final = f"{ADVISORY}.STREAM.DELETED."
STREAM_UPDATED: Final = f"{ADVISORY}.STREAM.UPDATED."
SNAPSHOT_CREATE: Final = f"{ADVISORY}.STREAM.SNAPSHOT_CREATE."
SNAPSHOT_COMPLETE: Final = f"{ADVISORY}.STREAM.SNAPSHOT_COMPLETE."
RESTORE_CREATE: Final = f"{ADVISORY}.STREAM.RESTORE_CREATE."
RESTORE_COMPLETE: Final = f"{ADVISORY}.STREAM.RESTORE_COMPLETE."
BATCH_ABANDONED: Final = f"{ADVISORY}.STREAM.BATCH_ABANDONED."
CONSUMER_CREATED: Final = f"{ADVISORY}.CONSUMER.CREATED."
CONSUMER_DELETED: Final = f"{ADVISORY}.CONSUMER.DELETED."
CONSUMER_PAUSE: Final = f"{ADVISORY}.CONSUMER.PAUSE."
CONSUMER_PINNED: Final = f"{ADVISORY}.CONSUMER.PINNED."
CONSUMER_UNPINNED: Final = f"{ADVISORY}.CONSUMER.UNPINNED."
MAX_DELIVERIES: Final = f"{ADVISORY}.CONSUMER.MAX_DELIVERIES."
MSG_NAKED: Final = f"{ADVISORY}.CONSUMER.MSG_NAKED."
MSG_TERMINATED: Final = f"{ADVISORY}.CONSUMER.MSG_TERMINATED."
CONSUMER_ACK: Final = f"{METRIC}.CONSUMER.ACK."


def domain_api(domain: str) -> str:
    """What stands for `$JS.API` towards a domain."""
    return f"$JS.{domain}.API"
