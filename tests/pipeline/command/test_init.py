"""The declarative project runs as it is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.command.init import write_project
from tests.broker_process import ROOT
from tests.pipeline.topics import Topics

# A JVM that lives for seconds never earns back what its optimizing compiler costs.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.mark.timeout(400)
def test_the_project_runs_as_it_is(topics: Topics, tmp_path: Path) -> None:
    topics.create("shop", 1)
    topics.create("shop-clean", 1)
    topics.write(
        "shop", ['{"id": 1, "total": 2.5}', '{"id": 2, "total": 4}', "nonsense", '{"id": "x"}', "[1]"]
    )
    project = tmp_path / "shop"
    write_project(project, bootstrap=topics.broker.kafka, topic="shop", output="shop-clean")
    program = Path(sys.executable).with_name("spark-pipelines")
    assert program.exists() or shutil.which("spark-pipelines")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": JAVA,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [str(program), "run"], cwd=project, env=environment, capture_output=True, text=True, timeout=350
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    tables = {path.name: pq.read_table(path) for path in (project / "spark-warehouse").iterdir()}
    assert {name: table.num_rows for name, table in tables.items()} == {
        "bronze": 5, "silver": 2, "quarantine": 3, "per_hour": 1,
    }  # fmt: skip
    assert sorted(zip(*[tables["silver"][name].to_pylist() for name in ("id", "total")], strict=True)) == [
        (1, 2.5), (2, 4.0),
    ]  # fmt: skip
    assert {row["offset"]: row["reason"] for row in tables["quarantine"].to_pylist()} == {
        2: "the value is not JSON",
        3: "the value does not fit the schema",
        4: "the value does not fit the schema",
    }
    assert tables["per_hour"]["total"].to_pylist() == [6.5]
    clean = [json.loads(one.value or b"") for one in topics.records("shop-clean")]
    assert clean == [{"id": 1, "total": 2.5}, {"id": 2, "total": 4.0}]
