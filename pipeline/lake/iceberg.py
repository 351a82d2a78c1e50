"""An Iceberg table in a SQLite catalog: workers write the files, pyiceberg adds them as one snapshot.

The snapshot's summary has the batch id, for people. The table's properties have it too, set by the same transaction,
for the sink: properties outlive the expiration of snapshots.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.lake.columns import check_columns
from pipeline.lake.errors import LakeError
from pipeline.lake.files import DataFile
from pipeline.lake.table import LakeTable

CATALOG_FILE = "catalog.db"
CATALOG_NAME = "sluice"


def open_catalog(warehouse: Path) -> Any:
    """The SQLite catalog of a warehouse directory, made if it is not there."""
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{warehouse / CATALOG_FILE}"
    return SqlCatalog(CATALOG_NAME, uri=uri, warehouse=f"file://{warehouse}")


class IcebergTable(LakeTable):
    """`path` is the warehouse, `name` is `namespace.table`; the files are in `<warehouse>/namespace/table`."""

    # pyiceberg takes a file's partition from its statistics, so the column has to be in the file.
    keep_values = True
    directory = "data/"

    def __init__(self, path: Path, name: str, query: str, partition_by: tuple[str, ...] = ()) -> None:
        namespace, _, table = name.rpartition(".")
        super().__init__(path / namespace / table, query, partition_by)
        self.warehouse, self.name, self._namespace = path, name, namespace
        self._table: Any = None

    @property
    def _mark(self) -> str:
        return self.query[:8]

    @property
    def _key(self) -> str:
        return f"sluice.batch.{self.query}"

    def holds(self, batch: int) -> bool:
        """Whether the table's properties name this batch of the query, or a later one."""
        return int(self._table.properties.get(self._key, -1)) >= batch

    def commit(self, batch: int, files: list[DataFile], rejected: int = 0) -> None:
        """Note, rename, then one transaction of snapshot and property. What failed is undone at the next start."""
        self.journal.check(files)
        manifest = self.journal.write(batch, files, rejected)
        self.journal.move(manifest)
        summary = {"sluice.query": self.query, "sluice.batch": str(batch)}
        paths = [f"{self._table.location()}/{file.path}" for file in files]
        try:
            with self._table.transaction() as transaction:
                if paths:
                    transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
                transaction.set_properties({self._key: str(batch)})
        except ValueError as error:
            raise LakeError(f"Iceberg refused batch {batch} for {self.name}: {error}") from error
        self.journal.accept(manifest)

    def _prepare(self, schema: Any) -> None:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.transforms import IdentityTransform

        catalog = open_catalog(self.warehouse)
        catalog.create_namespace_if_not_exists(self._namespace)
        try:
            self._table = catalog.load_table(self.name)
        except NoSuchTableError:
            with (
                catalog.create_table_transaction(
                    self.name, schema, location=f"file://{self.path}"
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                for column in self.partition_by:
                    spec.add_field(column, IdentityTransform(), column)
            self._table = catalog.load_table(self.name)
        check_columns(self.name, _columns(self._table.schema().as_arrow()), _columns(schema))
        by = tuple(field.name for field in self._table.spec().fields)
        if by != self.partition_by:
            raise LakeError(f"{self.name} is partitioned by {by}, this job partitions by {self.partition_by}")

    def _recover(self) -> None:
        if self.journal.last is not None and not self.holds(self.journal.last.batch):
            self.journal.withdraw(self.journal.last)


def _columns(schema: Any) -> dict[str, str]:
    """Name → type of an Arrow schema, as far as Iceberg tells types apart: no large strings, no small integers."""
    return {field.name: re.sub(r"large_|(?<=\bint)(8|16)\b", _plain, str(field.type)) for field in schema}


def _plain(match: re.Match[str]) -> str:
    return "32" if match[1] else ""
