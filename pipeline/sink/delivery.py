"""The guarantees of delivery. One class for each; the writers use only these four methods.

Exactly once is another class of this shape: `write` inside a transaction of the task, `commit` that ends those of all
tasks, `abort` that aborts them. It waits for brokers with transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pipeline.sink.marks import Writer
from pipeline.sink.options import AT_LEAST_ONCE, WriteOptions
from pipeline.sink.task import TaskWriter
from pipeline.wire.cluster import Cluster, TopicPartition

Written = Mapping[TopicPartition, int]


class Delivery(Protocol):
    """A promise about the records of a job or a micro-batch."""

    def write(self, batches: Iterable[pa.RecordBatch], writer: Writer) -> Written:
        """In a task: write its rows; answers the records of each partition."""

    def commit(self, written: Sequence[Written]) -> None:
        """In the driver: all tasks are done."""

    def abort(self, written: Sequence[Written | None]) -> None:
        """In the driver: a task has failed for good."""


class AtLeastOnce:
    """Records are there once their task has ended; what runs again writes again, under the same marks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, batches: Iterable[pa.RecordBatch], writer: Writer) -> Written:
        """Write rows and wait for every acknowledgement."""
        with Cluster(self._options.settings) as cluster:
            task = TaskWriter(cluster, self._options, writer)
            task.write(batches)
            return task.close()

    def commit(self, written: Sequence[Written]) -> None:
        """Nothing is left to do: each record was there when its task ended."""

    def abort(self, written: Sequence[Written | None]) -> None:
        """Nothing can be undone: what was written stays, with its marks."""


def delivery(options: WriteOptions) -> Delivery:
    """The promise that the options ask for."""
    return {AT_LEAST_ONCE: AtLeastOnce}[options.delivery](options)
