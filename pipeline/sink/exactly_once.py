"""Exactly once: the rows of a micro-batch become visible by one decision of the broker, which also counts the batch.

    task      transactional id `spark/<query>/<batch>/<task>/<attempt>`: writes, flushes, does not commit; its message
              to the driver has the id, the producer and the epoch
    driver    one request: commit these transactions, and move the marker from N to N + 1
    marker    the offset of the group `spark-sink-<query>` in partition 0 of the topic: the next batch

The broker does all of it or nothing, and nothing but this decision moves the marker. So the marker always tells which
batches are there.

- Spark runs a batch again after a crash, as its checkpoint does not say that it was committed: the marker does, and
  nothing is written.
- The answer to the request is lost: it is sent again, refused, and the marker says that the batch is there.
- An attempt that Spark gave up, or a driver that has been replaced, writes on: its transaction is in no list. A list
  of such a driver is refused, because the marker has moved, or because its transactions were taken over.
- A transaction ends before the batch does, by its timeout: the list is refused as a whole, and the batch is done
  again.

The query's id is that of its checkpoint. A new checkpoint is a new query, begins with the marker unset, and skips
nothing. An older copy of a checkpoint would skip batches that are not the same any more: a stream refuses to skip
more than the last one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import pyarrow as pa

from core.errors import ErrorCode
from pipeline.sink.marks import NO_BATCH, Writer
from pipeline.sink.options import ExactlyOnceOptions, WriteOptions
from pipeline.sink.task import TaskWriter
from pipeline.sink.written import Batch, Written
from pipeline.source.options import OptionError
from pipeline.wire import groups, transactions
from pipeline.wire.cluster import Cluster
from pipeline.wire.errors import KafkaError, WireError
from pipeline.wire.http import RefusedError

logger = logging.getLogger(__name__)

_OVERVIEW, _COMMIT, _ABORT = "/api/v1", "/api/v1/transactions:commit", "/api/v1/transactions:abort"
# The marker's partition of the topic.
PARTITION = 0
# `expected` of an offset that is not there yet.
NO_OFFSET = -1


class BatchError(WireError):
    """A batch could not be committed; nothing of it is visible."""


class Marker(NamedTuple):
    """Which batches of a query are there: those below `next`, None before the first one.

    Of a stream only the last batch is ever run again (`replays_last`); a named `df.write` may be, whichever it was.
    """

    next: int | None
    replays_last: bool

    def has(self, batch: Batch) -> bool:
        """Return whether a batch is there. Raises BatchError where another one of the same number may be."""
        if self.next is None or batch.number >= self.next:
            return False
        if self.replays_last and batch.number < self.next - 1:
            raise BatchError(
                f"batch {batch.number} of query {batch.query} was written, and batches up to {self.next - 1} after "
                "it: the checkpoint is older than what was written. Restore the newer one, or begin a new one"
            )
        return True


def group(query: str) -> str:
    """Return the group whose offset is the marker of a query."""
    return f"spark-sink-{query}"


class ExactlyOnce:
    """All rows of a batch at once, and once."""

    def __init__(self, options: WriteOptions, told: ExactlyOnceOptions, *, streaming: bool) -> None:
        self._options = options
        self._told = told
        self._streaming = streaming

    # --- the driver, before anything is written ------------------------------------------------------------

    def check(self) -> None:
        """Raise OptionError unless both addresses are of one Sluice; WireError when one of them stays away."""
        servers = ", ".join(f"{host}:{port}" for host, port in self._options.settings.bootstrap)
        with Cluster(self._options.settings) as cluster:
            by_kafka = cluster.cluster_id()
            try:
                told = cluster.patiently(lambda: self._told.http.call("GET", _OVERVIEW))
            except RefusedError as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    raise
                raise OptionError(self._no_sluice(str(error))) from None
        if told.get("name") != "sluice":
            raise OptionError(self._no_sluice("the answer is not Sluice's"))
        if told.get("cluster_id") != by_kafka:
            raise OptionError(
                f"httpUrl {self._told.http.url} is of cluster {told.get('cluster_id')}, kafka.bootstrap.servers "
                f"{servers} of cluster {by_kafka}: they must be of one broker"
            )

    def _no_sluice(self, why: str) -> str:
        return (
            f"delivery=exactly-once commits a batch over the HTTP API of Sluice, which is not at httpUrl "
            f"{self._told.http.url}: {why}. With another Kafka write at-least-once, and drop duplicates by marks"
        )

    # --- a task --------------------------------------------------------------------------------------------

    def write(self, batches: Iterable[pa.RecordBatch], writer: Writer) -> Written:
        """Write the rows into a transaction that stays open; nothing if the batch is there already."""
        if self._streaming and (not writer.query or writer.batch == NO_BATCH):
            raise BatchError("Spark does not tell this task its query and its batch: nothing is written")
        batch = Batch.of(writer)
        with Cluster(self._options.settings) as cluster:
            if self._marker(cluster, batch).has(batch):
                deque(batches, maxlen=0)
                return Written({}, batch, skipped=True)
            transaction = self._begin(cluster, batch.transactional_id(writer))
            try:
                task = TaskWriter(cluster, self._options, writer, transaction)
                task.write(batches)
                records = task.close()
            except BaseException as error:
                # Answers to batches may be under way on the old connections.
                cluster.forget()
                with suppress(WireError):
                    transactions.abort(cluster, transaction)
                if isinstance(error, KafkaError) and error.code in transactions.ENDED:
                    raise BatchError(f"{error}. {self._ended()}") from error
                raise
        return Written(records, batch, transaction if records else None)

    def _begin(self, cluster: Cluster, transactional_id: str) -> transactions.Transaction:
        try:
            return transactions.begin(cluster, transactional_id, self._told.timeout_ms)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise OptionError(
                f"kafka.transaction.timeout.ms: the broker allows less than {self._told.timeout_ms} ms "
                "(SLUICE_TRANSACTION_MAX_TIMEOUT_MS)"
            ) from None

    # --- the driver ----------------------------------------------------------------------------------------

    def commit(self, written: Sequence[Written]) -> None:
        """Make all of it visible, unless it is. BatchError: nothing is visible, other WireError: that is unknown."""
        batch = _batch_of(written)
        if batch is None:
            return
        with Cluster(self._options.settings) as cluster:
            marker = self._marker(cluster, batch)
            if marker.has(batch):
                self._clean_up(batch.prefix)
                return
            if any(one.skipped for one in written):
                raise BatchError(
                    f"the marker of batch {batch.number} was there and is not: group {group(batch.query)} or the "
                    "topic was deleted meanwhile"
                )
            participants = [one.transaction for one in written if one.transaction is not None]
            cluster.patiently(lambda: self._decide(cluster, batch, marker, participants))
        self._clean_up(batch.query_prefix)

    def _decide(
        self,
        cluster: Cluster,
        batch: Batch,
        marker: Marker,
        participants: Sequence[transactions.Transaction],
    ) -> None:
        moved = {
            "group": group(batch.query),
            "topic": self._told.topic,
            "partition": PARTITION,
            "expected": NO_OFFSET if marker.next is None else marker.next,
            "offset": batch.number + 1,
        }
        body = {
            "participants": [one._asdict() for one in participants],
            "offsets": [moved],
            # Or each id would be kept for a week.
            "ephemeral": True,
        }
        try:
            self._told.http.call("POST", _COMMIT, body)
        except RefusedError as error:
            # Perhaps it is the second try of a request that was served.
            if not self._marker(cluster, batch).has(batch):
                raise BatchError(
                    f"nothing of batch {batch.number} was written. {error}. {self._ended()}"
                ) from error

    def abort(self, written: Sequence[Written | None]) -> None:
        """Abort the transactions of a batch that has failed. What cannot be reached ends by its timeout."""
        batch = _batch_of(written)
        if batch is not None:
            self._clean_up(batch.prefix)

    def _clean_up(self, prefix: str) -> None:
        """Abort what attempts and drivers that were given up have left open: it holds up readers. One try."""
        try:
            self._told.http.call("POST", _ABORT, {"prefix": prefix, "ephemeral": True})
        except WireError as error:
            logger.warning("open transactions of %s end by their timeout: %s", prefix, error)

    def _marker(self, cluster: Cluster, batch: Batch) -> Marker:
        topic = self._told.topic
        found = groups.committed(cluster, group(batch.query), {topic: [PARTITION]})
        return Marker(found.get((topic, PARTITION)), self._streaming)

    def _ended(self) -> str:
        return (
            "A transaction ends before its batch if the batch takes longer than kafka.transaction.timeout.ms "
            f"({self._told.timeout_ms} ms), or if another driver runs the same query"
        )


def _batch_of(written: Sequence[Written | None]) -> Batch | None:
    """Return the batch that the tasks have written; None if no task has told it."""
    return next((one.batch for one in written if one is not None), None)
