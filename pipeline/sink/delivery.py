"""The guarantees of delivery. One class for each; the writers use only these three methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from pipeline.sink.exactly_once import ExactlyOnce
from pipeline.sink.marks import Writer
from pipeline.sink.options import WriteOptions
from pipeline.sink.task import TaskWriter
from pipeline.sink.written import Written
from pipeline.wire.cluster import Cluster


class Delivery(Protocol):
    """A promise about the records of a job or a micro-batch."""

    def check(self) -> None:
        """In the driver, before anything is written: raise OptionError if the promise cannot be kept there."""

    def write(self, batches: Iterable[pa.RecordBatch], writer: Writer) -> Written:
        """In a task: write its rows."""

    def commit(self, written: Sequence[Written]) -> None:
        """In the driver: all tasks are done."""

    def abort(self, written: Sequence[Written | None]) -> None:
        """In the driver: a task has failed for good."""


class AtLeastOnce:
    """Records are there once their task has ended; what runs again writes again, under the same marks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def check(self) -> None:
        """Nothing is needed but a broker."""

    def write(self, batches: Iterable[pa.RecordBatch], writer: Writer) -> Written:
        """Write rows and wait for every acknowledgement."""
        with Cluster(self._options.settings) as cluster:
            task = TaskWriter(cluster, self._options, writer)
            task.write(batches)
            return Written(task.close())

    def commit(self, written: Sequence[Written]) -> None:
        """Nothing is left to do: each record was there when its task ended."""

    def abort(self, written: Sequence[Written | None]) -> None:
        """Nothing can be undone: what was written stays, with its marks."""


def delivery(options: WriteOptions, *, streaming: bool) -> Delivery:
    """The promise that the options ask for."""
    if options.exactly_once is None:
        return AtLeastOnce(options)
    return ExactlyOnce(options, options.exactly_once, streaming=streaming)
