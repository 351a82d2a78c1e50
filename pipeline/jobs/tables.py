"""Tables of the lake as Spark sees them: which files belong to them is asked of their own log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from pipeline.jobs.settings import Lake, Replay, moment
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


class Holding(NamedTuple):
    """What a table has for a job, from the footers of its files."""

    files: int
    rows: int
    bytes: int


def files(settings: Lake) -> list[str]:
    """The data files of a table. Raises JobError when there is no such table."""
    path = Path(settings.lake)
    if not path.is_dir():
        raise JobError(f"there is no table in {path}")
    if settings.format == "delta":
        found = delta_files(path)
    elif settings.format == "iceberg":
        found = iceberg_files(path, settings.table or "")
    else:
        found = [
            str(file) for file in sorted(path.rglob("*.parquet"))
            if not any(_hidden(part) for part in file.relative_to(path).parts)
        ]  # fmt: skip
        if not found:
            raise JobError(f"{path} holds no Parquet file")
    if not found:
        raise JobError(f"{settings.target()} holds no rows")
    return found


def _hidden(name: str) -> bool:
    """Whether Spark overlooks a file or a directory of that name; `_topic=a` is a partition."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def holding(settings: Lake) -> Holding:
    """What of a table a job would read, without Spark. Raises JobError as `frame` does."""
    local = [name.removeprefix("file://") for name in files(settings)]
    # Iceberg's files have all columns; of the others, some may be in the names of directories.
    parts: Any = None if settings.format == "iceberg" else ds.partitioning(flavor="hive")
    data = ds.dataset(local, format="parquet", partitioning=parts)
    names = place(data.schema.names)
    rows = data.count_rows(filter=_chosen(settings, names))
    return Holding(len(local), rows, sum(Path(name).stat().st_size for name in local))


def _chosen(settings: Lake, names: dict[str, str]) -> Any:
    """The rows of a job as an expression for pyarrow; None for all."""
    wanted = []
    if isinstance(settings, Replay):
        since, until = moment("since", settings.since), moment("until", settings.until)
        if settings.only:
            wanted.append(pc.field(names["topic"]).isin(settings.only))
        if since is not None:
            wanted.append(pc.field(names["timestamp"]) >= pc.scalar(since))
        if until is not None:
            wanted.append(pc.field(names["timestamp"]) < pc.scalar(until))
    found = None
    for one in wanted:
        found = one if found is None else found & one
    return found


def frame(spark: SparkSession, settings: Lake) -> DataFrame:
    """A table's rows. Raises JobError when there is no such table."""
    names, path = files(settings), Path(settings.lake)
    if settings.format == "parquet":
        return spark.read.option("mergeSchema", "false").parquet(str(path))
    if settings.format == "delta":
        reader = spark.read.option("basePath", str(path))
    else:
        # The columns are in the files; the directories' names would give them a second time.
        reader = spark.read.option("recursiveFileLookup", "true")
    return reader.parquet(*names)


def place(columns: Iterable[str]) -> dict[str, str]:
    """The columns with the origin of a row: `offset` in a raw table, `_offset` in a typed one."""
    columns = list(columns)
    for prefix in ("", "_"):
        names = {name: prefix + name for name in PLACE}
        if set(names.values()) <= set(columns):
            return names
    raise JobError(f"the table lacks topic, partition, offset and timestamp; it has {', '.join(columns)}")
