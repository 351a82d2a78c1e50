"""A Delta table, committed by delta-rs: workers write the files, the driver adds them to Delta's log.

Each commit carries an app transaction (query id, batch id), which Delta keeps as the newest version per
application. So whether a batch is in the table is asked of the
table itself, and the answer is as durable as its rows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from pipeline.lake.columns import check_columns
from pipeline.lake.errors import LakeError
from pipeline.lake.files import DataFile
from pipeline.lake.table import LakeTable


class DeltaLakeTable(LakeTable):
    """Delta's log has the files; the journal notes what is about to be added, to undo it after a crash."""

    def __init__(self, path: Path, query: str, partition_by: tuple[str, ...] = ()) -> None:
        super().__init__(path, query, partition_by)
        self._table: Any = None
        self._schema: Any = None

    @property
    def _mark(self) -> str:
        return self.query[:8]

    def holds(self, batch: int) -> bool:
        """Whether Delta's log has a transaction of this query with this number, or a higher one."""
        version = self._table.transaction_version(self.query)
        return version is not None and int(version) >= batch

    def commit(self, batch: int, files: list[DataFile], rejected: int = 0) -> None:
        """Note, rename, add to the log. A commit that failed is undone at the next start."""
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        self.journal.check(files)
        manifest = self.journal.write(batch, files, rejected)
        self.journal.move(manifest)
        now = int(time.time() * 1000)
        adds = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.values,
                modification_time=now,
                data_change=True,
                stats=msgspec.json.encode({"numRecords": file.rows}).decode(),
            )
            for file in files
        ]
        properties = CommitProperties(
            custom_metadata={"sluice.query": self.query, "sluice.batch": str(batch)},
            app_transactions=[Transaction(app_id=self.query, version=batch)],
        )
        try:
            self._table.create_write_transaction(
                adds, "append", self._schema, list(self.partition_by), commit_properties=properties
            )
        except DeltaError as error:
            raise LakeError(f"Delta refused batch {batch} for {self.path}: {error}") from error
        self._table.update_incremental()
        self.journal.accept(manifest)

    def _prepare(self, schema: Any) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if not DeltaTable.is_deltatable(str(self.path)):
                DeltaTable.create(str(self.path), schema, partition_by=list(self.partition_by) or None)
            self._table = DeltaTable(str(self.path))
        except DeltaError as error:
            raise LakeError(f"{self.path} cannot be a Delta table of these columns: {error}") from error
        self._schema = self._table.schema()
        check_columns(self.path, _columns(self._schema), _columns(_delta_schema(schema)))
        by = tuple(self._table.metadata().partition_columns)
        if by != self.partition_by:
            raise LakeError(f"{self.path} is partitioned by {by}, this job partitions by {self.partition_by}")

    def _recover(self) -> None:
        if self.journal.last is not None and not self.holds(self.journal.last.batch):
            self.journal.withdraw(self.journal.last)


def _delta_schema(schema: Any) -> Any:
    """The Delta schema of an Arrow schema."""
    from deltalake import Schema

    return Schema.from_arrow(schema)


def _columns(schema: Any) -> dict[str, str]:
    """Name → type of a Delta schema, in Delta's words: `long`, or JSON of what is composed."""
    return {field.name: field.type.to_json().strip('"') for field in schema.fields}
