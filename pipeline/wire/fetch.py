"""One partition read over the wire, one answer ahead of the decoder."""

from __future__ import annotations

import time
from typing import NamedTuple

from core.errors import ErrorCode
from core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pipeline import limits
from pipeline.wire.cluster import Cluster, UnknownTopicError, may_pass
from pipeline.wire.connection import Connection
from pipeline.wire.errors import WireError, error_code, refuse

FETCH = 1


class OffsetGoneError(WireError):
    """The offset asked for is below the start of the log, or above its end."""


class Fetched(NamedTuple):
    """Bytes of whole batches and perhaps a part of one, valid until the next `take`; and the bounds of the log.

    `aborted` are (producer id, first offset) of aborted transactions, with read_committed.
    """

    records: memoryview
    high_watermark: int
    aborted: tuple[tuple[int, int], ...] = ()


class PartitionFetcher:
    """Fetches of one partition. `ask(offset)`, then `take()`; asking before the last answer is decoded is the point.

    After a lost connection or a move of the leader the offset is fetched again, until nothing has come for
    `settings.retry` seconds.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._offset = -1
        self._max_bytes = cluster.settings.fetch_bytes
        # Where the request is under way; None if it could not be sent.
        self._asked: Connection | None = None

    def ask(self, offset: int) -> None:
        """Ask for records from `offset` on. It never fails: `take` handles errors."""
        self._offset = offset
        self._asked = None
        try:
            self._send()
        except WireError:
            self._asked = None

    def grow(self) -> None:
        """Ask for twice as much from now on: old brokers cut a batch that is larger than what was asked for."""
        self._max_bytes = min(2 * self._max_bytes, limits.MAX_FRAME_BYTES // 2)

    def take(self) -> Fetched:
        """The answer to what was asked. Raises OffsetGoneError, UnknownTopicError, or what did not pass in time."""
        deadline = time.monotonic() + self._cluster.settings.retry
        pause = limits.RETRY_PAUSE_S
        while True:
            try:
                if self._asked is None:
                    self._send()
                return self._receive()
            except WireError as error:
                if not may_pass(error) or time.monotonic() + pause > deadline:
                    raise
                self._asked = None
                self._cluster.forget()
            time.sleep(pause)
            pause = min(2 * pause, limits.RETRY_PAUSE_MAX_S)

    def _send(self) -> None:
        connection = self._cluster.leader(self._topic, self._partition)
        partition = FetchPartition(
            partition=self._partition, fetch_offset=self._offset, partition_max_bytes=self._max_bytes
        )
        connection.send(
            FETCH,
            FetchRequest(
                max_wait_ms=limits.FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=max(self._max_bytes, limits.MIB),
                isolation_level=int(self._cluster.settings.read_committed),
                topics=[FetchTopic(topic=self._topic, partitions=[partition])],
            ),
        )
        self._asked = connection

    def _receive(self) -> Fetched:
        assert self._asked is not None
        connection, self._asked = self._asked, None
        answer = connection.receive(FetchResponse)
        where = f"fetch of {self._topic} partition {self._partition} offset {self._offset}"
        refuse(answer.error_code, where)
        data = self._partition_data(answer, where)
        code = error_code(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetGoneError(f"{where}: the log begins at {data.log_start_offset}")
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"{where}: the broker does not know the partition")
        refuse(data.error_code, where)
        aborted = tuple((one.producer_id, one.first_offset) for one in data.aborted_transactions or ())
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        return Fetched(records, data.high_watermark, aborted)

    def _partition_data(self, answer: FetchResponse, where: str) -> PartitionData:
        for topic in answer.responses:
            for partition in topic.partitions:
                if topic.topic == self._topic and partition.partition_index == self._partition:
                    return partition
        raise WireError(f"{where}: the answer does not name it")
