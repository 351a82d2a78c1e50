"""The writers that Spark calls: in tasks with Arrow batches, in the driver when all of them are done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pipeline.sink.delivery import delivery
from pipeline.sink.marks import NO_BATCH, Writer
from pipeline.sink.options import WriteOptions
from pipeline.sink.written import Written

# Local properties by which Spark tells a task what it belongs to.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class TaskWritten(WriterCommitMessage):
    """The message of a task."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: WriteOptions) -> None:
        self._delivery = delivery(options, streaming=False)
        told = options.exactly_once
        # Made in the driver, so that all tasks, and their second attempts, mark with the same id.
        self._query = str(uuid.uuid4()) if told is None or told.app is None else told.app
        self._batch = NO_BATCH if told is None or told.version is None else str(told.version)

    def check(self) -> None:
        """In the driver: raise OptionError if what is promised cannot be kept there."""
        self._delivery.check()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        return TaskWritten(self._delivery.write(iterator, Writer(self._query, self._batch, task, attempt)))

    def commit(self, messages: list[Any]) -> None:
        """All tasks are done."""
        self._delivery.commit([message.written for message in messages if message])

    def abort(self, messages: list[Any]) -> None:
        """A task has failed."""
        self._delivery.abort([message and message.written for message in messages])


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, options: WriteOptions) -> None:
        self._delivery = delivery(options, streaming=True)

    def check(self) -> None:
        """In the driver: raise OptionError if what is promised cannot be kept there."""
        self._delivery.check()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task of a micro-batch, which only the task's context names."""
        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        writer = Writer(query or "", batch or NO_BATCH, context.partitionId(), context.attemptNumber())
        return TaskWritten(self._delivery.write(iterator, writer))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """All tasks of the micro-batch are done."""
        self._delivery.commit([message.written for message in messages if message])

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """A task of the micro-batch has failed."""
        self._delivery.abort([message and message.written for message in messages])
