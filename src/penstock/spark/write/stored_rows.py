"""Compare rows with the messages that the stream has under their ids, many at a time.

A restarted query may repeat a whole batch, so rows are kept as digests, and the messages are read
in ranges, as a source reads them.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING, Final

from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.options import ConnectionOptions

DIGEST_BYTES: Final = 8
#: Messages between two rows that are read along rather than beginning another range.
GAP_MAX: Final = 512


def digest_of(subject: str, payload: bytes, has_subjects: bool) -> int:
    """Return a digest of what a message contains; with its subject unless the stream changes it."""
    digest = hashlib.blake2b(payload, digest_size=DIGEST_BYTES)
    if has_subjects:
        digest.update(b"\0" + subject.encode())
    return int.from_bytes(digest.digest(), signed=True)


class StoredRows:
    """Sequences and digests of the repeated rows of a task: 16 bytes each."""

    def __init__(self, *, has_subjects: bool) -> None:
        self.has_subjects = has_subjects
        self._seqs = array("q")
        self._digests = array("q")

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, seq: int, digest: int) -> None:
        self._seqs.append(seq)
        self._digests.append(digest)

    def differing(self, options: ConnectionOptions, stream: str) -> int | None:
        """Return the sequence of a message that is not the row it should be; None if all are.

        Messages that were removed since are not compared.
        """
        for expected in self._spans():
            first, last = min(expected), max(expected)
            reader = shared_reader(options)
            for batch in reader.range(stream, start=first, stop=last + 1, skip_evicted=True):
                for subject, seq, _, _, payload in batch.rows():
                    wanted = expected.get(seq)
                    if wanted not in (None, digest_of(subject, payload, self.has_subjects)):
                        return seq
        return None

    def _spans(self) -> Iterator[dict[int, int]]:
        """Yield digests by sequence, for ranges without large gaps."""
        span: dict[int, int] = {}
        last = 0
        for at in sorted(range(len(self)), key=self._seqs.__getitem__):
            if span and self._seqs[at] - last > GAP_MAX:
                yield span
                span = {}
            last = self._seqs[at]
            span[last] = self._digests[at]
        if span:
            yield span
