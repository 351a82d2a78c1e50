"""The latest value of each key as a table: what a compacted topic would hold, however large the topic is.

Each run replaces the table in one step. For Parquet the table is a symbolic link to a directory with this run's
files; Delta and Iceberg replace their files in one commit of their log.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs import json_columns
from pipeline.jobs.aggregate import checked
from pipeline.jobs.plan import cluster_options, plan
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Snapshot
from pipeline.jobs.stream import SOURCE, JobError
from pipeline.jobs.watch import Watch
from pipeline.lake.iceberg import open_catalog
from pipeline.lake.journal import fsync_directory

# Versions of a Parquet snapshot that stay beside the newest one, for readers that have just opened it.
KEEP_VERSIONS = 2


def latest(records: DataFrame) -> DataFrame:
    """The last record of each key of each topic; keys whose last value is null (tombstones) are left out.

    Within a partition the offset decides. A key that is in several partitions, because some were added, takes
    the latest timestamp among their last records.
    """
    keyed = records.where(f.col("key").isNotNull())
    row = f.struct("value", "headers", "offset", "timestamp")
    each = keyed.groupBy("topic", "key", "partition").agg(f.max_by(row, "offset").alias("row"))
    row = f.struct("partition", "row.*")
    one = each.select("topic", "key", row.alias("row")).groupBy("topic", "key")
    newest = one.agg(f.max_by("row", f.struct("row.timestamp", "row.offset")).alias("row"))
    return newest.select("topic", "key", "row.*").where(f.col("value").isNotNull())


def shape(records: DataFrame, settings: Snapshot) -> DataFrame:
    """The rows of the table."""
    rows = latest(records)
    if settings.schema is None:
        return rows
    try:
        schema = json_columns.parse_schema(settings.schema)
    except ValueError as error:
        raise JobError(str(error)) from None
    return checked(json_columns.typed(rows, schema, "ignore"), settings.on_error)


def run(spark: SparkSession, settings: Snapshot, report: Report) -> Outcome:
    """Read the topics from start to end, and replace the table."""
    began = time.monotonic()
    options = {**cluster_options(settings), "subscribe": ",".join(settings.topics)}
    records = spark.read.format(SOURCE).options(**options, includeHeaders="true").load()
    rows = shape(records, settings)
    target = Path(settings.to).absolute()
    there = sum(one.records for one in plan(settings))
    with Watch(settings.job, report, spark).step("the latest of each key", there):
        if settings.format == "parquet":
            files = _replace_parquet(rows, target)
        elif settings.format == "delta":
            files = _replace_delta(rows, target)
        else:
            files = _replace_iceberg(rows, target, settings.table or "")
    return Outcome(
        job=settings.job,
        seconds=time.monotonic() - began,
        rows=sum(pq.read_metadata(file).num_rows for file in files),
        files=len(files),
        bytes=sum(file.stat().st_size for file in files),
    )


def _write(rows: DataFrame, directory: Path) -> list[Path]:
    """Write rows by Spark's own batch writer, which commits when all tasks are done."""
    # Spark's default, INT96, is read as nanoseconds, which Iceberg refuses.
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows.write.mode("error").option("compression", "zstd").parquet(str(directory))
    return sorted(path for path in directory.glob("*.parquet"))


def _replace_parquet(rows: DataFrame, target: Path) -> list[Path]:
    """A new directory beside the table, then the link: readers see the old files or the new ones."""
    if target.exists() and not target.is_symlink():
        raise JobError(f"{target} is there and is no snapshot of ours; it will not be overwritten")
    versions = target.with_name(f".{target.name}.versions")
    versions.mkdir(parents=True, exist_ok=True)
    new = versions / f"{time.time_ns():020}"
    files = _write(rows, new)
    link = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    link.symlink_to(os.path.relpath(new, target.parent))
    link.replace(target)
    fsync_directory(target.parent)
    for old in sorted(path for path in versions.iterdir() if path != new)[: -KEEP_VERSIONS or None]:
        shutil.rmtree(old, ignore_errors=True)
    return files


def _replace_delta(rows: DataFrame, target: Path) -> list[Path]:
    """Files under a directory of this run, then one commit that removes the old and adds the new."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction

    if target.exists() and not DeltaTable.is_deltatable(str(target)):
        raise JobError(f"{target} is there and is no Delta table; it will not be overwritten")
    schema = Schema.from_arrow(to_arrow_schema(rows.schema, timezone="UTC"))
    files = _write(rows, target / f"snapshot-{time.time_ns():020}")
    adds = [
        AddAction(
            path=str(file.relative_to(target)), size=file.stat().st_size, partition_values={},
            modification_time=int(time.time() * 1000), data_change=True,
            stats=msgspec.json.encode({"numRecords": pq.read_metadata(file).num_rows}).decode(),
        )
        for file in files
    ]  # fmt: skip
    try:
        if not DeltaTable.is_deltatable(str(target)):
            DeltaTable.create(str(target), schema)
        DeltaTable(str(target)).create_write_transaction(adds, "overwrite", schema)  # type: ignore[arg-type]
    except DeltaError as error:
        raise JobError(f"Delta refused the snapshot for {target}: {error}") from None
    return files


def _replace_iceberg(rows: DataFrame, warehouse: Path, name: str) -> list[Path]:
    """The same in one transaction of Iceberg."""
    from pyiceberg.exceptions import NoSuchTableError

    catalog = open_catalog(warehouse)
    namespace, _, table_name = name.rpartition(".")
    catalog.create_namespace_if_not_exists(namespace)
    location = warehouse / namespace / table_name
    try:
        table: Any = catalog.load_table(name)
    except NoSuchTableError:
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        table = catalog.create_table(name, schema, location=f"file://{location}")
    files = _write(rows, location / "data" / f"snapshot-{time.time_ns():020}")
    with table.transaction() as transaction:
        if table.current_snapshot() is not None:
            transaction.delete(_everything())
        transaction.add_files([f"file://{file}" for file in files], check_duplicate_files=False)
    return files


def _everything() -> Any:
    """Iceberg's expression for all rows."""
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()
