"""A micro-batch of a streaming query → one commit of a table.

Why `foreachBatch` and not a writer of the Python Data Source API: its `commit` knows the batch id, but its `write`
has to be asked for it through the task's local properties, and the sink as a whole could neither pass records to
another sink, nor refuse a batch before its tasks begin. `foreachBatch` gets the batch and its id in one place on the
driver. Rows go from Spark to the tasks' Parquet files as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from pyspark.sql import DataFrame

from pipeline.lake.errors import BadRecordError
from pipeline.lake.files import Staged
from pipeline.lake.null_lists import hide
from pipeline.lake.staging import RESULT_SCHEMA, Layout, stage
from pipeline.lake.table import LakeTable

OnError = Literal["suspend", "skip", "quarantine"]


class Columns(msgspec.Struct, frozen=True):
    """Which columns of a batch are written, and which say where a row comes from and why it is left out."""

    written: tuple[str, ...]
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"
    reason: str | None = None


def write_rows(batch: DataFrame, layout: Layout) -> list[Any]:
    """Run the tasks that write the rows of a batch; answers a row of each, with what it did."""
    return hide(batch).mapInArrow(stage(layout), RESULT_SCHEMA).collect()


class LakeSink:
    """What `foreachBatch` is given. `quarantine` takes a batch and must have stored its rejected rows on return.

    `write` runs the tasks of a batch: `write_rows`, or whatever else answers what that does. `rows` and `rejected`
    count what was committed since the start; `skipped` the batches that were held already.
    """

    def __init__(
        self,
        table: LakeTable,
        columns: Columns,
        *,
        on_error: OnError = "suspend",
        quarantine: Callable[[DataFrame], None] | None = None,
        write: Callable[[DataFrame, Layout], list[Any]] = write_rows,
    ) -> None:
        self.table, self.columns, self.write = table, columns, write
        self.on_error, self.quarantine = on_error, quarantine
        self.rows, self.rejected, self.files, self.bytes, self.skipped = 0, 0, 0, 0, 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write and commit one micro-batch; a `BadRecordError` when it may not be committed."""
        if self.table.holds(batch_id):
            self.skipped += 1
            return
        done = self._write(batch, batch_id)
        if done.first_rejected is not None:
            bad = done.first_rejected
            if self.on_error == "suspend":
                raise BadRecordError(bad.topic, bad.partition, bad.offset, bad.reason, done.rejected)
            if self.on_error == "quarantine" and self.quarantine is not None:
                # Before the commit: after a crash in between it is put aside twice (its headers tell), never lost.
                self.quarantine(batch)
        self.table.commit(batch_id, done.files, done.rejected)
        self.rows += sum(file.rows for file in done.files)
        self.bytes += sum(file.size for file in done.files)
        self.files += len(done.files)
        self.rejected += done.rejected

    def _write(self, batch: DataFrame, batch_id: int) -> Staged:
        """Run the tasks; answers what all of them did together."""
        names = self.columns
        layout = msgspec.structs.replace(
            self.table.layout(batch_id, names.written),
            topic=names.topic,
            partition=names.partition,
            offset=names.offset,
            reason=names.reason,
        )
        together = Staged()
        for row in self.write(batch, layout):
            one = msgspec.json.decode(row["result"], type=Staged)
            together.files.extend(one.files)
            together.rejected += one.rejected
            together.first_rejected = together.first_rejected or one.first_rejected
        return together
