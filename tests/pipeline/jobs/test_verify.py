"""Verify finds missing and duplicate rows, and reports nothing for a good table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipeline.jobs.running import Runner
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_gaps_duplicates_and_lag_are_found(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("checked", 2)
    topics.fill(topic, 60, partitions=2)
    jobs.run("export", topics=[topic], to=jobs.path("t"), name="x", max_offsets_per_trigger=40)
    good = jobs.run("verify", lake=jobs.path("t"), complete=True)
    assert (good.rows, good.problems) == (120, [])
    table = Path(jobs.path("t"))
    files = sorted(table.glob("checked-0-*.parquet"))
    shutil.copy(files[0], table / "copy.parquet")
    files[1].unlink()
    topics.fill(topic, 5, partitions=1)
    bad = jobs.run("verify", lake=jobs.path("t"))
    lost = files[1].name.split("-")
    doubled = int(files[0].name.split("-")[3].removesuffix(".parquet")) + 1
    assert bad.problems == [
        f"checked-0: {doubled} rows are there more than once",
        f"checked-0: the table lacks offsets {int(lost[2])} to {int(lost[3].removesuffix('.parquet'))}",
    ]
    assert [row["behind"] for row in bad.table] == [5, 0]
    assert jobs.run("verify", lake=jobs.path("t"), complete=True, compacted=True).problems != []
