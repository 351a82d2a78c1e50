"""What a task does: it writes its rows as hidden Parquet files and says which.

A task may be started twice, may die half-way, or may be overtaken by its own copy. So it writes under names of
its own that no reader looks at (a directory that begins with `_`, a suffix that is not `.parquet`), and only the
driver, which knows which attempt counted, gives files their real names.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.lake.files import DataFile, Rejected, Staged, file_name, hive_directory, hive_value
from pipeline.lake.null_lists import reveal

IN_PROGRESS = ".inprogress"
RESULT_SCHEMA = "result string"
# Files that a task keeps open at once. A field with more values than that is a poor one to partition by; the
# oldest file is closed then, and the table gets more and smaller files instead of the worker more memory.
MAX_OPEN_FILES = 64
# Rows per row group: large enough for compression, small enough that 64 open files fit into a worker.
ROW_GROUP_ROWS = 262_144


class Layout(msgspec.Struct, frozen=True):
    """What a task must know of the table. `columns` are written, in that order.

    `topic`, `partition` and `offset` name the columns that say where a row comes from, `reason` the one that is
    not null in rows which are left out. `keep_values`: partition columns are written into the files as well.
    """

    table: str
    staging: str
    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"
    reason: str | None = None
    keep_values: bool = False
    mark: str = ""
    directory: str = ""
    compression: str = "zstd"


class _File:
    """A Parquet file that is being written, and the range of offsets in it."""

    def __init__(
        self, layout: Layout, schema: pa.Schema, topic: str, partition: int, values: dict[str, Any]
    ) -> None:
        self._layout, self._topic, self._partition = layout, topic, partition
        self._values = {name: hive_value(value) for name, value in values.items()}
        self._path = Path(layout.staging) / f"{uuid.uuid4().hex}{IN_PROGRESS}"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, schema, compression=layout.compression)
        self._first, self._last, self._rows = -1, -1, 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, rows: pa.RecordBatch, offsets: pa.Array) -> None:
        """Take rows; they reach the file in row groups of a sensible size."""
        bounds = pc.min_max(offsets).as_py()
        self._first = bounds["min"] if self._first < 0 else min(self._first, bounds["min"])
        self._last = max(self._last, bounds["max"])
        self._rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> DataFile:
        """Finish the file and put it on the disk: the driver's commit must not name bytes that a crash can take."""
        self._flush()
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        name = file_name(self._topic, self._partition, self._first, self._last, self._layout.mark)
        return DataFile(
            staged=os.path.relpath(self._path, self._layout.table),
            path=self._layout.directory + hive_directory(self._values) + name,
            topic=self._topic,
            partition=self._partition,
            first=self._first,
            last=self._last,
            rows=self._rows,
            size=size,
            values=self._values,
        )


def _uniform(column: pa.Array) -> bool:
    """Whether all values of a column are the same."""
    if column.null_count:
        return bool(column.null_count == len(column))
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def split(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of a batch by the values of some columns; usually all are the same and nothing is copied."""
    columns = [batch.column(name) for name in names]
    if all(_uniform(column) for column in columns):
        yield tuple(column[0].as_py() for column in columns), batch
        return
    groups = pa.table(columns, names=names).group_by(names).aggregate([])
    for row in groups.to_pylist():
        mask = None
        for name, column in zip(names, columns, strict=True):
            same = (
                pc.is_null(column) if row[name] is None else pc.fill_null(pc.equal(column, row[name]), False)
            )
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(row[name] for name in names), batch.filter(mask)


class _Stage:
    """The open files of one task."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._open: dict[tuple[Any, ...], _File] = {}
        self.done = Staged()

    def write(self, batch: pa.RecordBatch) -> None:
        layout = self._layout
        batch = reveal(batch)
        if layout.reason is not None:
            batch = self._take_out_rejected(batch, layout.reason)
        if not batch.num_rows:
            return
        names = [layout.topic, layout.partition, *layout.partition_by]
        for values, rows in split(batch, names):
            written = [
                name for name in layout.columns if layout.keep_values or name not in layout.partition_by
            ]
            data = rows.select(written)
            file = self._open.get(values)
            if file is None:
                if len(self._open) >= MAX_OPEN_FILES:
                    self.done.files.append(self._open.pop(next(iter(self._open))).close())
                by = dict(zip(layout.partition_by, values[2:], strict=True))
                file = self._open[values] = _File(layout, data.schema, values[0], values[1], by)
            file.write(data, rows.column(layout.offset))

    def _take_out_rejected(self, batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
        """Count the rows with a reason, remember the first of them, answer the others."""
        column = batch.column(reason)
        if column.null_count == len(column):
            return batch
        good = pc.is_null(column)
        self.done.rejected += len(column) - column.null_count
        if self.done.first_rejected is None:
            index = pc.index(good, False).as_py()
            layout = self._layout
            self.done.first_rejected = Rejected(
                topic=batch.column(layout.topic)[index].as_py(),
                partition=batch.column(layout.partition)[index].as_py(),
                offset=batch.column(layout.offset)[index].as_py(),
                reason=str(column[index].as_py()),
            )
        return batch.filter(good)

    def close(self) -> Staged:
        self.done.files.extend(file.close() for file in self._open.values())
        self._open.clear()
        return self.done


def stage(layout: Layout) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `DataFrame.mapInArrow`: writes all rows of a task, yields one row, a `Staged` as JSON."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Stage(layout)
        for batch in batches:
            files.write(batch)
        result = msgspec.json.encode(files.close()).decode()
        yield pa.RecordBatch.from_pylist([{"result": result}], schema=pa.schema([("result", pa.string())]))

    return write
