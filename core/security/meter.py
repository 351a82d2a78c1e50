"""The client quotas of one caller over HTTP and the line protocol, which refuse where the Kafka listener mutes.

A request is refused before it has an effect, while earlier ones have used up the quota. One that is accepted is
counted as a whole, so that a request larger than the quota is not refused forever: the requests after it wait.
A stream is never refused: it waits by `read_wait`, and its client sees records that come later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord, Record
from core.security.quotas import Bucket, QuotaTable
from core.vocabulary.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

# Names of the keys in messages.
_WORDS = {
    PRODUCER_BYTE_RATE: "bytes written per second",
    CONSUMER_BYTE_RATE: "bytes read per second",
    CONTROLLER_MUTATION_RATE: "partitions created and deleted per second",
    REQUEST_PERCENTAGE: "percent of the event loop's time",
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
            bucket.record(sum(map(payload_size, records)), self._clock.monotonic())

    def readable(self, max_bytes: int) -> int:
        """Return how many of `max_bytes` may be read now, at least 1. Raises THROTTLING_QUOTA_EXCEEDED."""
        if self._table:
            self._open(CONSUMER_BYTE_RATE)
        return self.readable_now(max_bytes)

    def readable_now(self, max_bytes: int) -> int:
        """Return how many of `max_bytes` may be read now, at least 1, which means one record."""
        if not self._table or (bucket := self._bucket(CONSUMER_BYTE_RATE)) is None:
            return max_bytes
        return max(min(max_bytes, int(bucket.left(self._clock.monotonic()))), 1)

    def read_wait(self) -> float:
        """Return the seconds that a stream must wait before it reads on; 0 within the quotas of bytes and time."""
        if not self._table:
            return 0.0
        now = self._clock.monotonic()
        buckets = (self._bucket(CONSUMER_BYTE_RATE), self._bucket(REQUEST_PERCENTAGE))
        return max(0.0 if bucket is None else bucket.wait(now) for bucket in buckets)

    def read(self, records: Iterable[Record]) -> None:
        """Count records that were read."""
        if self._table:
            self.read_bytes(sum(map(payload_size, records)))

    def read_bytes(self, count: int) -> None:
        """Count bytes of records that were read: `payload_size` of each."""
        if self._table and (bucket := self._bucket(CONSUMER_BYTE_RATE)) is not None:
            bucket.record(count, self._clock.monotonic())

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
        f"The quota {key} is {bound:g} {_WORDS[key]}, and earlier requests have used it up. "
        f"Try again in {seconds} s.",
        quota=key,
        retry_after=seconds,
    )


def payload_size(record: NewRecord | Record) -> int:
    """Return the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
