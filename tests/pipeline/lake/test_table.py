"""Every kind of table: each batch once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.lake.errors import LakeError
from pipeline.lake.table import LakeTable, ParquetTable
from tests.pipeline.lake.rows import KINDS, SCHEMA, expected, make, offer, read, rows, write

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
PARTITIONING: list[tuple[str, ...]] = [(), ("day",)]


class _Killed(BaseException):
    """Like kill -9: no code catches it."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PARTITIONING, ids=["flat", "by day"])
def by(request: pytest.FixtureRequest) -> Any:
    return request.param


def opened(kind: str, path: Path, by: tuple[str, ...] = (), query: str = "query-one") -> LakeTable:
    table = make(kind, path, query, by)
    table.open(SCHEMA)
    return table


def test_what_is_committed_is_read_once(kind: str, by: tuple[str, ...], tmp_path: Path) -> None:
    table = opened(kind, tmp_path, by)
    assert offer(table, 0, rows(0, 99), rows(0, 49, 1))
    assert offer(table, 1, rows(100, 199))
    table.close()
    assert read(kind, tmp_path) == sorted([*expected(0, 199), *expected(0, 49, 1)])


def test_a_batch_that_is_offered_again_is_skipped(kind: str, by: tuple[str, ...], tmp_path: Path) -> None:
    table = opened(kind, tmp_path, by)
    assert offer(table, 0, rows(0, 9))
    assert not offer(table, 0, rows(0, 9))
    table.close()
    table = opened(kind, tmp_path, by)
    assert not offer(table, 0, rows(0, 9))
    assert offer(table, 1, rows(10, 19))
    table.close()
    assert read(kind, tmp_path) == list(expected(0, 19))


def test_an_empty_batch_counts(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    table.commit(0, [])
    assert table.holds(0)
    table.close()
    table = opened(kind, tmp_path)
    assert table.holds(0)
    table.close()


def _die_at(monkeypatch: pytest.MonkeyPatch, table: LakeTable, moment: str) -> None:
    """Let a commit be killed at one of its steps."""
    journal = table.journal

    def die(*_: object) -> None:
        raise _Killed

    def half(manifest: Any) -> None:
        first = manifest.files[0]
        (table.path / first.path).parent.mkdir(parents=True, exist_ok=True)
        (table.path / first.staged).rename(table.path / first.path)
        raise _Killed

    if moment == "before the manifest":
        monkeypatch.setattr(journal, "write", die)
    elif moment == "before any rename":
        monkeypatch.setattr(journal, "move", die)
    elif moment == "between two renames":
        monkeypatch.setattr(journal, "move", half)
    else:
        wrapped: Callable[[Any], None] = journal.move

        def whole(manifest: Any) -> None:
            wrapped(manifest)
            raise _Killed

        monkeypatch.setattr(journal, "move", whole)


MOMENTS = ["before the manifest", "before any rename", "between two renames", "after all renames"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_mid_commit_nothing_is_lost_or_doubled(
    kind: str, by: tuple[str, ...], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(kind, tmp_path, by)
    offer(table, 0, rows(0, 9), rows(0, 9, 1))
    with monkeypatch.context() as patch, pytest.raises(_Killed):
        _die_at(patch, table, moment)
        offer(table, 1, rows(10, 19), rows(10, 14, 1))
    table.close()
    if kind != "parquet":
        assert read(kind, tmp_path) == sorted([*expected(0, 9), *expected(0, 9, 1)]), "committed too early"
    # The batch comes again; its tasks are cut differently, as with another number of cores.
    table = opened(kind, tmp_path, by)
    offer(table, 1, rows(10, 12), rows(13, 19), rows(10, 14, 1))
    offer(table, 2, rows(20, 29))
    table.close()
    assert read(kind, tmp_path) == sorted([*expected(0, 29), *expected(0, 14, 1)])
    on_disk = {str(path.relative_to(table.path)) for path in table.path.rglob("*.parquet")}
    assert sum(pq.ParquetFile(table.path / name).metadata.num_rows for name in on_disk) == 45, (
        "orphans are left"
    )


def test_what_dead_tasks_left_is_invisible_and_swept(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    offer(table, 0, rows(0, 9))
    write(table, 1, rows(10, 19))
    table.close()
    assert read(kind, tmp_path) == list(expected(0, 9))
    table = opened(kind, tmp_path)
    assert table.swept == 1
    table.close()
    assert not list(table.path.rglob("*.inprogress"))


def test_another_query_may_not_write_the_same_offsets(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    offer(table, 0, rows(0, 9))
    table.close()
    other = opened(kind, tmp_path, query="query-two")
    with pytest.raises(
        LakeError, match=r"already holds orders-0 from offset 0 to 9, written by query query-one"
    ):
        offer(other, 0, rows(5, 14))
    assert offer(other, 0, rows(10, 19))
    other.close()
    assert read(kind, tmp_path) == list(expected(0, 19))


def test_two_processes_may_not_run_the_same_query(kind: str, tmp_path: Path) -> None:
    table = opened(kind, tmp_path)
    with pytest.raises(LakeError, match="another run of this query"):
        opened(kind, tmp_path)
    table.close()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([*SCHEMA, ("total", pa.float64())]), "the table lacks the column total"),
        (pa.schema(list(SCHEMA)[1:]), "this job lacks the column key"),
        (
            SCHEMA.set(4, pa.field("offset", pa.string())),
            r"the column offset: (int64|long) in the table, string in",
        ),
    ],
)
def test_other_columns_are_refused(kind: str, schema: pa.Schema, says: str, tmp_path: Path) -> None:
    opened(kind, tmp_path).close()
    with pytest.raises(LakeError, match=says):
        make(kind, tmp_path).open(schema)


def test_columns_of_every_type_are_known_again(kind: str, tmp_path: Path) -> None:
    text = pa.string()
    types: list[pa.DataType] = [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), text, pa.binary(),
        pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(12, 2), pa.struct([("city", text), ("n", pa.int16())]),
        pa.list_(pa.field("element", pa.struct([("key", text)]))), pa.map_(text, pa.int64()),
    ]  # fmt: skip
    schema = pa.schema([*SCHEMA, *[(f"c{number}", kind) for number, kind in enumerate(types)]])
    for _ in range(2):
        table = make(kind, tmp_path)
        table.open(schema)
        table.close()


def test_old_files_of_a_parquet_table_may_be_removed(tmp_path: Path) -> None:
    table = opened("parquet", tmp_path)
    offer(table, 0, rows(0, 9))
    table.close()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    table = opened("parquet", tmp_path)
    assert offer(table, 1, rows(10, 19))
    table.close()
    assert read("parquet", tmp_path) == list(expected(10, 19))


def test_a_missing_row_that_a_manifest_names_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened("parquet", tmp_path)
    with monkeypatch.context() as patch, pytest.raises(_Killed):
        _die_at(patch, table, "before any rename")
        offer(table, 0, rows(0, 9))
    table.close()
    for path in tmp_path.rglob("*.inprogress"):
        path.unlink()
    with pytest.raises(LakeError, match="lost its rows"):
        opened("parquet", tmp_path)


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    table = opened("parquet", tmp_path)
    (tmp_path / f"orders-0-{0:020}-{9:020}.parquet").write_bytes(b"not ours")
    with pytest.raises(LakeError, match="no manifest of ours"):
        offer(table, 0, rows(0, 9))
    table.close()
    assert isinstance(table, ParquetTable)
