"""Client quotas on the Kafka listener: count a request, and say how long its connection is muted (KIP-219, KIP-599).

A request is answered at once, with the time in `throttle_time_ms`; then nothing more is read from its connection for
that time, so that clients that do not know the field wait as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.listener import KafkaSession
from core.protocol.traits import refuses_mutations_beyond_quota
from core.security.quotas import Bucket
from core.vocabulary.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE


def count_produce(session: KafkaSession) -> int:
    """Count the bytes of the Produce in progress, as Kafka all of the request. Return the throttle time in ms."""
    bucket = session.quota(PRODUCER_BYTE_RATE)
    return 0 if bucket is None else session.throttle(bucket.record(session.received, session.listener.now()))


class FetchQuota:
    """What a Fetch may read. Without a quota nothing is counted."""

    def __init__(self, session: KafkaSession) -> None:
        self._session = session
        self._bucket: Bucket | None = session.quota(CONSUMER_BYTE_RATE)

    def readable(self, max_bytes: int) -> int:
        """Return `max_bytes`, or less if the window has less space; at least 1, which means one batch."""
        if self._bucket is None:
            return max_bytes
        return max(min(max_bytes, int(self._bucket.left(self._session.listener.now()))), 1)

    def exceeded(self) -> int:
        """Return the throttle time in ms if the answer must be empty, because the quota is used up; else 0."""
        if self._bucket is None:
            return 0
        return self._session.throttle(self._bucket.wait(self._session.listener.now()))

    def count(self, size: int) -> int:
        """Count the records of the answer. Return the throttle time in ms."""
        if self._bucket is None or not size:
            return 0
        return self._session.throttle(self._bucket.record(size, self._session.listener.now()))


class Mutations:
    """The partitions that one request creates or deletes.

    Beyond the quota a request of a later version gets THROTTLING_QUOTA_EXCEEDED for the topic, and the throttle time
    to retry after. A request of an earlier version is carried out, and throttled.
    """

    def __init__(self, session: KafkaSession, key: int) -> None:
        self._session = session
        self._strict = refuses_mutations_beyond_quota(key, session.version)
        self._bucket = session.quota(CONTROLLER_MUTATION_RATE)

    @contextmanager
    def counted(self, partitions: int) -> Iterator[None]:
        """Count partitions that a change creates or deletes, unless it fails. Raises THROTTLING_QUOTA_EXCEEDED."""
        if self._bucket is None or not partitions:
            yield
            return
        now = self._session.listener.now()
        if self._strict and self._bucket.wait(now) > 0:
            # Kafka's words.
            text = "The throttling quota has been exceeded."
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self._bucket.record(partitions, now)
        try:
            yield
        except BrokerError:
            self._bucket.record(-partitions, self._session.listener.now())
            raise

    def throttle(self) -> int:
        """Return the throttle time of the request in ms."""
        if self._bucket is None:
            return 0
        return self._session.throttle(self._bucket.wait(self._session.listener.now()))
