"""An idempotent producer for many callers: their records share batches, their order is kept, none is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from core.client.cluster import ClusterClient
from core.errors import BrokerError
from core.records.record import NewRecord
from core.types import AppendResult, TopicPartition


class Part(NamedTuple):
    """The result of `count` records of a `send`, from number `first` on: offsets, or the error that refused them.

    An error INVALID_RECORD has `record_errors` in its details, a list of (number in the whole `send`, message).
    """

    first: int
    count: int
    result: AppendResult | None
    error: BrokerError | None = None


class Producer:
    """Appends to partitions of a cluster."""

    def __init__(self, cluster: ClusterClient) -> None: ...

    def send(
        self,
        tp: TopicPartition,
        records: Sequence[NewRecord],
        *,
        now_ms: int,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[list[Part]]:
        """Append records to a partition, in one batch with those of other callers if they come at the same time.

        The parts are in the order of the records, mostly one for all; a batch that was too large is split. A record
        without a time gets `now_ms`. acks 0 is sent as 1. Raises THROTTLING_QUOTA_EXCEEDED if the records of waiting
        callers fill `buffer_memory`.
        """
        raise NotImplementedError

    def append(
        self,
        tp: TopicPartition,
        batch: bytearray,
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[AppendResult]:
        """Append one record batch as it is, in its turn after earlier calls for this partition.

        A batch without a producer id gets that of this producer, in place. One with an id keeps id, epoch and
        sequence: its caller answers for their order. The future fails with BrokerError.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Fail what waits, and stop."""
