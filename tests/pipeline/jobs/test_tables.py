"""What a table holds for a job, told without Spark, for every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.jobs.registry import read_settings
from pipeline.jobs.settings import Lake
from pipeline.jobs.stream import JobError
from pipeline.jobs.tables import files, holding, place
from tests.pipeline.lake.rows import KINDS, make, offer, rows

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def _job(path: Path, form: str = "parquet", kind: str = "replay", **values: Any) -> Lake:
    if kind == "replay":
        values = {"topic": "t", **values}
    table = {"table": "lake.orders"} if form == "iceberg" else {}
    made = read_settings(kind, {"lake": str(path), "format": form, **table, **values})
    assert isinstance(made, Lake)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), ("day",)])
@pytest.mark.parametrize("form", KINDS)
def test_a_table_is_counted_as_a_job_would_read_it(form: str, by: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(form, path, by=by)
    table.open(rows(0, 0).schema)
    offer(table, 0, rows(0, 99), rows(0, 49, partition=1))
    offer(table, 1, rows(0, 9, topic="other"))
    table.close()
    whole = holding(_job(path, form))
    assert (whole.rows, whole.files) == (160, len(files(_job(path, form))))
    assert whole.bytes == sum(
        Path(one.removeprefix("file://")).stat().st_size for one in files(_job(path, form))
    )
    asked = {
        "only": (["other"], 10),
        "since": ("2025-01-31T12:00:01Z", 0),
        "until": ("2025-01-31T12:00:01Z", 160),
    }
    for name, (value, count) in asked.items():
        assert holding(_job(path, form, **{name: value})).rows == count, name
    assert holding(_job(path, form, "verify")).rows == 160


def test_what_is_hidden_is_no_part_of_a_table_and_a_column_that_begins_so_is(tmp_path: Path) -> None:
    for where in ("a.parquet", "_topic=x/b.parquet", "_sluice/c.parquet", ".tmp/d.parquet", "_e.parquet"):
        (tmp_path / where).parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([rows(0, 0)]), tmp_path / where)
    found = [str(Path(one).relative_to(tmp_path)) for one in files(_job(tmp_path))]
    assert found == ["_topic=x/b.parquet", "a.parquet"]


def test_what_is_no_table_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no table in"):
        files(_job(tmp_path / "none"))
    with pytest.raises(JobError, match="holds no Parquet file"):
        files(_job(tmp_path))
    with pytest.raises(JobError, match="is no Delta table"):
        files(_job(tmp_path, "delta"))
    with pytest.raises(JobError, match=r"has no catalog of ours \(catalog.db\)"):
        files(_job(tmp_path, "iceberg"))


def test_a_place_is_told_by_its_columns_in_raw_and_in_typed_tables() -> None:
    assert place(["value", "topic", "partition", "offset", "timestamp"])["offset"] == "offset"
    assert place(["id", "_topic", "_partition", "_offset", "_timestamp"])["offset"] == "_offset"
    with pytest.raises(JobError, match="it has id, topic"):
        place(["id", "topic"])
