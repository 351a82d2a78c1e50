"""Rows as an export writes them, a table of each kind, and how others read it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.lake.delta import DeltaLakeTable
from pipeline.lake.files import DataFile, Staged
from pipeline.lake.iceberg import IcebergTable, open_catalog
from pipeline.lake.staging import stage
from pipeline.lake.table import LakeTable, ParquetTable

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)
KINDS = ("parquet", "delta", "iceberg")


def rows(first: int, last: int, partition: int = 0, topic: str = "orders") -> pa.RecordBatch:
    """Records `first` to `last` of a partition; odd offsets are of another day than even ones."""
    moment = datetime.datetime(2025, 1, 31, 12, tzinfo=datetime.UTC)
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": None,
                "value": b"value %d" % offset,
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "timestamp": moment,
                "day": datetime.date(2025, 1, 1 + offset % 2),
            }
            for offset in range(first, last + 1)
        ],
        schema=SCHEMA,
    )


def make(kind: str, path: Path, query: str = "query-one", by: tuple[str, ...] = ()) -> LakeTable:
    """A table of a kind, not opened."""
    if kind == "iceberg":
        return IcebergTable(path, "lake.orders", query, by)
    return (DeltaLakeTable if kind == "delta" else ParquetTable)(path, query, by)


def write(table: LakeTable, batch: int, *tasks: pa.RecordBatch) -> list[DataFile]:
    """What the tasks of a batch do, one for each RecordBatch."""
    layout = table.layout(batch, tuple(SCHEMA.names))
    found: list[DataFile] = []
    for task in tasks:
        for result in stage(layout)(iter([task])):
            found += msgspec.json.decode(result.column(0)[0].as_py(), type=Staged).files
    return found


def offer(table: LakeTable, batch: int, *tasks: pa.RecordBatch) -> bool:
    """What a query does with a batch: skip it, or write and commit it."""
    if table.holds(batch):
        return False
    table.commit(batch, write(table, batch, *tasks))
    return True


def read(kind: str, path: Path) -> list[tuple[int, int]]:
    """(partition, offset) of every row, sorted, as a reader sees it that knows nothing of us."""
    if kind == "parquet":
        table = pq.read_table(path)
    elif kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(path)).to_pyarrow_table()
    else:
        table = open_catalog(path).load_table("lake.orders").scan().to_arrow()
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def expected(first: int, last: int, partition: int = 0) -> Iterator[tuple[int, int]]:
    """What `read` answers for `rows(first, last, partition)`."""
    return ((partition, offset) for offset in range(first, last + 1))
