"""What every lake table can do, and the plain Parquet one.

A table takes batches of one query, in order: `open` → for each batch `holds`? else tasks write below `layout`'s
staging directory, then `commit`. A batch that is offered again after a crash is held already and is skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import msgspec

from pipeline.lake.columns import check_columns
from pipeline.lake.errors import LakeError
from pipeline.lake.files import DataFile
from pipeline.lake.journal import HOME, Journal, write_durably
from pipeline.lake.staging import Layout


class LakeTable(ABC):
    """A table in a directory that driver and workers see under the same path, and the journal of one query."""

    # Whether the files have the partition columns as well (Iceberg reads them there), or only the directory's name.
    keep_values = False
    # Where data files live below the table's directory.
    directory = ""

    def __init__(self, path: Path, query: str, partition_by: tuple[str, ...] = ()) -> None:
        self.path, self.query, self.partition_by = path, query, partition_by
        self.journal = Journal(path, query)
        self.swept = 0

    def open(self, schema: Any) -> None:
        """Take the lock, finish or undo what a crash left, sweep orphans. `schema` is the Arrow schema of rows."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.journal.open()
        try:
            self._prepare(schema)
            self._recover()
            self.swept = self.journal.sweep()
        except BaseException:
            self.journal.close()
            raise

    def close(self) -> None:
        """Let the lock go."""
        self.journal.close()

    def layout(self, batch: int, columns: tuple[str, ...]) -> Layout:
        """What tasks of a batch need to know; the caller replaces the names of the columns if they differ."""
        return Layout(
            table=str(self.path),
            staging=str(self.journal.staging(batch)),
            columns=columns,
            partition_by=self.partition_by,
            keep_values=self.keep_values,
            mark=self._mark,
            directory=self.directory,
        )

    @property
    def _mark(self) -> str:
        return ""

    @abstractmethod
    def holds(self, batch: int) -> bool:
        """Whether a batch of this query is in the table."""

    @abstractmethod
    def commit(self, batch: int, files: list[DataFile], rejected: int = 0) -> None:
        """Make the files of a batch part of the table, all or none. An empty batch counts too."""

    @abstractmethod
    def _prepare(self, schema: Any) -> None:
        """Create the table if it is not there; refuse rows that do not fit it."""

    @abstractmethod
    def _recover(self) -> None:
        """Finish or undo the newest batch, according to whether it was committed."""


class ParquetTable(LakeTable):
    """Parquet files and nothing else: any reader of the directory sees each row once.

    The manifest is the commit. A reader that lists the directory while files of a batch are being renamed, or
    between a crash there and the next start, may see a part of that batch; never a row twice, never a broken file.
    """

    def holds(self, batch: int) -> bool:
        """Whether a manifest of this batch, or of a later one, was written."""
        return self.journal.last is not None and self.journal.last.batch >= batch

    def commit(self, batch: int, files: list[DataFile], rejected: int = 0) -> None:
        """Write the manifest, then the names. After a `LakeError` before the manifest no file is left."""
        self.journal.check(files)
        for file in files:
            if (self.path / file.path).exists():
                raise LakeError(f"{self.path / file.path} is there already and no manifest of ours names it")
        manifest = self.journal.write(batch, files, rejected)
        self.journal.move(manifest)
        self.journal.accept(manifest)

    def _prepare(self, schema: Any) -> None:
        """Keep the columns beside the manifests: files of different columns in one directory are of no use."""
        known = self.path / HOME / "columns.json"
        columns = {field.name: str(field.type) for field in schema}
        if known.exists():
            check_columns(self.path, msgspec.json.decode(known.read_bytes()), columns)
        else:
            write_durably(known, msgspec.json.encode(columns))

    def _recover(self) -> None:
        # Without its staging directory the newest batch was moved completely, and later removals of files are
        # allowed.
        if self.journal.last is not None and self.journal.staging(self.journal.last.batch).is_dir():
            self.journal.move(self.journal.last)
