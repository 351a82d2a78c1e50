"""What a task writes: split by partition and Hive value, bounded in open files, without the rows that do not fit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.lake import staging
from pipeline.lake.files import Staged
from pipeline.lake.staging import Layout, split, stage
from tests.pipeline.lake.rows import SCHEMA, rows


def run(layout: Layout, *batches: pa.RecordBatch) -> Staged:
    (result,) = stage(layout)(iter(batches))
    return msgspec.json.decode(result.column(0)[0].as_py(), type=Staged)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(
        table=str(tmp_path), staging=str(tmp_path / "_sluice" / "staging"), columns=tuple(SCHEMA.names)
    )


def test_a_file_is_named_by_what_is_in_it(layout: Layout, tmp_path: Path) -> None:
    (file,) = run(layout, rows(5, 9), rows(10, 20)).files
    assert file.path == f"orders-0-{5:020}-{20:020}.parquet"
    assert (file.first, file.last, file.rows) == (5, 20, 16)
    assert file.size == (tmp_path / file.staged).stat().st_size
    assert pq.read_table(tmp_path / file.staged).num_rows == 16


def test_partitions_of_a_topic_go_into_files_of_their_own(layout: Layout) -> None:
    mixed = pa.Table.from_batches([rows(0, 3), rows(0, 1, 1), rows(7, 7, 0, "other")]).combine_chunks()
    files = run(layout, *mixed.to_batches()).files
    assert sorted((file.topic, file.partition, file.first, file.last, file.rows) for file in files) == [
        ("orders", 0, 0, 3, 4),
        ("orders", 1, 0, 1, 2),
        ("other", 0, 7, 7, 1),
    ]


def test_hive_values_are_in_the_path_and_not_in_the_file(layout: Layout, tmp_path: Path) -> None:
    files = run(msgspec.structs.replace(layout, partition_by=("day",)), rows(0, 3)).files
    assert sorted(file.path for file in files) == [
        f"day=2025-01-01/orders-0-{0:020}-{2:020}.parquet",
        f"day=2025-01-02/orders-0-{1:020}-{3:020}.parquet",
    ]
    assert "day" not in pq.read_schema(tmp_path / files[0].staged).names


def test_no_more_files_are_open_than_the_limit(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MAX_OPEN_FILES", 2)
    files = run(layout, *[rows(n, n, n % 3) for n in range(9)]).files
    assert sum(file.rows for file in files) == 9
    assert len(files) == 9, "three partitions in turn, two files: each row closes one"


def test_rows_with_a_reason_are_left_out_and_the_first_is_told(layout: Layout) -> None:
    batch = rows(0, 9).append_column(
        "_reason", pa.array([None, None, "bad", "worse", *[None] * 6], pa.string())
    )
    done = run(msgspec.structs.replace(layout, reason="_reason"), batch)
    assert done.rejected == 2
    assert done.first_rejected is not None
    assert (done.first_rejected.offset, done.first_rejected.reason) == (2, "bad")
    assert done.files[0].rows == 8


def test_a_task_without_rows_writes_no_file(layout: Layout) -> None:
    assert run(layout).files == []
    assert run(layout, rows(0, -1)).files == []


def test_nulls_are_a_group_of_their_own() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array(["x", None, "x", None]), "n": [1, 2, 3, 4]})
    assert {key: part.column("n").to_pylist() for key, part in split(batch, ["a"])} == {
        ("x",): [1, 3],
        (None,): [2, 4],
    }
    nulls = batch.filter(pa.array([False, True, False, True]))
    assert [(key, part.num_rows) for key, part in split(nulls, ["a"])] == [((None,), 2)]
