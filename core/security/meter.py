"""The client quotas of one caller over HTTP and the line protocol, which refuse where the Kafka listener mutes.

A request is refused before it has an effect, while earlier ones have used up the quota. One that is accepted is
counted as a whole, so that a request larger than the quota is not refused forever: the requests after it wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord, Record
from core.security.quotas import Bucket, QuotaTable
from core.vocabulary.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE

# Names of the keys in messages.
_WORDS = {
    PRODUCER_BYTE_RATE: "bytes written",
    CONSUMER_BYTE_RATE: "bytes read",
    CONTROLLER_MUTATION_RATE: "partitions created and deleted",
}


class Meter:
    """Counts for one user. Its requests have no client id. `mutes`: changes of topics are counted by the listener."""

    def __init__(self, table: QuotaTable, clock: Clock, user: str, *, mutes: bool = False) -> None:
        self._table = table
        self._clock = clock
        self._user = user
        self._mutes = mutes

    def produce(self, records: Sequence[NewRecord]) -> None:
        """Count records that are about to be written. Raises THROTTLING_QUOTA_EXCEEDED."""
        if self._table and (bucket := self._open(PRODUCER_BYTE_RATE)) is not None:
            bucket.record(sum(map(_size_of, records)), self._clock.monotonic())

    def readable(self, max_bytes: int) -> int:
        """Return how many of `max_bytes` may be read now, at least 1. Raises THROTTLING_QUOTA_EXCEEDED."""
        if not self._table or (bucket := self._open(CONSUMER_BYTE_RATE)) is None:
            return max_bytes
        return max(min(max_bytes, int(bucket.left(self._clock.monotonic()))), 1)

    def read(self, records: Iterable[Record]) -> None:
        """Count records that were read."""
        if self._table and (bucket := self._bucket(CONSUMER_BYTE_RATE)) is not None:
            bucket.record(sum(map(_size_of, records)), self._clock.monotonic())

    @contextmanager
    def changing(self, partitions: int) -> Iterator[None]:
        """Count partitions that are created or deleted, unless that fails. Raises THROTTLING_QUOTA_EXCEEDED."""
        bucket = None
        if partitions and self._table and not self._mutes:
            bucket = self._open(CONTROLLER_MUTATION_RATE)
        if bucket is None:
            yield
            return
        bucket.record(partitions, self._clock.monotonic())
        try:
            yield
        except BrokerError:
            bucket.record(-partitions, self._clock.monotonic())
            raise

    def _bucket(self, key: str) -> Bucket | None:
        return self._table.bucket(key, self._user, "", self._clock.monotonic())

    def _open(self, key: str) -> Bucket | None:
        """Return the bucket of a key, None without a quota. Raises THROTTLING_QUOTA_EXCEEDED while it is in debt."""
        bucket = self._bucket(key)
        if bucket is not None and (wait := bucket.wait(self._clock.monotonic())) > 0:
            raise exceeded(key, bucket.bound, wait)
        return bucket


def exceeded(key: str, bound: float, wait: float) -> BrokerError:
    """Return the refusal of a request beyond a quota; `retry_after` in its details is in whole seconds."""
    seconds = math.ceil(wait)
    return BrokerError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"The quota {key} is {bound:g} {_WORDS[key]} per second, and earlier requests have used it up. "
        f"Try again in {seconds} s.",
        quota=key,
        retry_after=seconds,
    )


def _size_of(record: NewRecord | Record) -> int:
    """Return the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
