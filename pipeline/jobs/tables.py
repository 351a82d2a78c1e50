"""Tables of the lake as Spark sees them: which files belong to them is asked of their own log."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.jobs.settings import Lake
from pipeline.jobs.stream import JobError
from pipeline.lake.iceberg import CATALOG_FILE, open_catalog

PLACE = ("topic", "partition", "offset", "timestamp")


def delta_files(path: Path) -> list[str]:
    """The data files of a Delta table's newest version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return list(DeltaTable(str(path)).file_uris())
    except DeltaError as error:
        raise JobError(f"{path} is no Delta table: {error}") from None


def iceberg_files(warehouse: Path, name: str) -> list[str]:
    """The data files of an Iceberg table's newest snapshot; refused if some of their rows are deleted since."""
    from pyiceberg.exceptions import NoSuchTableError

    if not (warehouse / CATALOG_FILE).exists():
        raise JobError(f"{warehouse} has no catalog of ours ({CATALOG_FILE})")
    try:
        tasks = list(open_catalog(warehouse).load_table(name).scan().plan_files())
    except NoSuchTableError:
        raise JobError(f"{warehouse} has no table {name}") from None
    if any(task.delete_files for task in tasks):
        raise JobError(f"{name} has delete files; rewrite the table first")
    return [task.file.file_path for task in tasks]


def frame(spark: SparkSession, settings: Lake) -> DataFrame:
    """A table's rows. Raises JobError when there is no such table."""
    path = Path(settings.lake)
    if not path.is_dir():
        raise JobError(f"there is no table in {path}")
    if settings.format == "parquet":
        if next(path.rglob("*.parquet"), None) is None:
            raise JobError(f"{path} holds no Parquet file")
        return spark.read.option("mergeSchema", "false").parquet(str(path))
    if settings.format == "delta":
        files = delta_files(path)
        reader = spark.read.option("basePath", str(path))
    else:
        files = iceberg_files(path, settings.table or "")
        # The columns are in the files; the directories' names would give them a second time.
        reader = spark.read.option("recursiveFileLookup", "true")
    if not files:
        raise JobError(f"{settings.target()} holds no rows")
    return reader.parquet(*files)


def place(rows: DataFrame) -> dict[str, str]:
    """Which columns say where a row comes from: `offset` in a raw table, `_offset` in a typed one."""
    for prefix in ("", "_"):
        names = {name: prefix + name for name in PLACE}
        if set(names.values()) <= set(rows.columns):
            return names
    raise JobError(
        f"the table lacks topic, partition, offset and timestamp; it has {', '.join(rows.columns)}"
    )
