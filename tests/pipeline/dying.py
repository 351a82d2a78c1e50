"""The sink with a process that is killed at a named step: in a task, or while the driver commits.

Spark calls `commit` in a Python process of its own beside the JVM. Its death is, for the broker and for Spark's
checkpoint, that of the driver at that moment.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.data_source import SluiceDataSource
from pipeline.sink.options import WriteOptions
from pipeline.sink.writer import StreamWriter
from pipeline.wire.http import HttpApi

STEPS = ("begun", "written", "before commit", "in commit", "after commit")
# Milliseconds in which the broker may or may not take the decision.
IN_COMMIT_MS = 12


def die() -> None:
    """SIGKILL to this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamWriter):
    """Dies at a step of one batch; `step` is `BATCH STEP TASK` with a number of milliseconds for `in commit`."""

    def __init__(self, options: WriteOptions, plan: str) -> None:
        super().__init__(options)
        batch, self._step, number = plan.split("/")
        self._batch, self._number = int(batch), int(number)

    def _is_due(self, step: str, batch: int, task: int | None = None) -> bool:
        return (step, batch) == (self._step, self._batch) and task in (None, self._number)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Die with rows on their way, or with all of them written."""
        context = TaskContext.get()
        assert context is not None
        batch, task = int(context.getLocalProperty("streaming.sql.batchId") or -1), context.partitionId()

        def rows() -> Iterator[pa.RecordBatch]:
            yield from iterator
            if self._is_due("begun", batch, task):
                die()

        message = super().write(rows())
        if self._is_due("written", batch, task):
            die()
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Die before, in or after it."""
        if self._is_due("before commit", batchId):
            die()
        if self._is_due("in commit", batchId):
            real = HttpApi.call

            def call(api: HttpApi, method: str, path: str, body: object = None) -> Mapping[str, Any]:
                threading.Timer(self._number / 1000, die).start()
                return real(api, method, path, body)

            HttpApi.call = call  # type: ignore[method-assign]
        super().commit(messages, batchId)
        if self._is_due("after commit", batchId) or self._is_due("in commit", batchId):
            die()


class DyingDataSource(SluiceDataSource):
    """The data source with an option more for writes: `dies`."""

    @classmethod
    def name(cls) -> str:
        """Another name."""
        return "sluice-dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer that dies."""
        plan = self.options.pop("dies")
        return DyingWriter(self._writing(schema), plan)
