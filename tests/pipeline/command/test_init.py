"""The declarative project runs as it is written, and again with what came in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.command.init import TEMPLATE, write_project
from tests.broker_process import ROOT
from tests.pipeline.class_archive import java_options
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.slow


def _run(project: Path, *command: str, conf: bool = True) -> subprocess.CompletedProcess[str]:
    """What the project's README says to type."""
    program = Path(sys.executable).with_name("spark-pipelines")
    assert program.exists() or shutil.which("spark-pipelines")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": java_options(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({"SPARK_CONF_DIR": "conf"} if conf else {}),
    }
    return subprocess.run(
        [str(program), *command], cwd=project, env=environment, capture_output=True, text=True, timeout=350
    )


def _tables(project: Path) -> dict[str, pa.Table]:
    return {path.name: pq.read_table(path) for path in (project / "spark-warehouse").iterdir()}


def _clean(topics: Topics) -> list[dict[str, float]]:
    return [json.loads(one.value or b"") for one in topics.records("shop-clean")]


@pytest.mark.timeout(600)
def test_the_project_runs_as_it_is_and_again_with_what_is_new(topics: Topics, tmp_path: Path) -> None:
    topics.create("shop", 1)
    topics.create("shop-clean", 1)
    fits = ['{"id": 1, "total": 2.5}', '{"id": 2, "total": 4}']
    topics.write("shop", [*fits, "nonsense", '{"id": "x"}', "[1]", '{"id": 8} {"id": 9}'])
    project = tmp_path / "shop"
    write_project(project, bootstrap=topics.broker.kafka, topic="shop", output="shop-clean")
    written = {path.name for path in project.iterdir()}
    done = _run(project, "run")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    tables = _tables(project)
    assert {name: table.num_rows for name, table in tables.items()} == {
        "bronze": 6, "silver": 2, "quarantine": 4, "per_hour": 1,
    }  # fmt: skip
    assert sorted(zip(*[tables["silver"][name].to_pylist() for name in ("id", "total")], strict=True)) == [
        (1, 2.5), (2, 4.0),
    ]  # fmt: skip
    assert {row["offset"]: row["reason"] for row in tables["quarantine"].to_pylist()} == {
        2: "the value is not JSON",
        3: "the value does not fit the schema",
        4: "the value does not fit the schema",
        5: "the value does not fit the schema",
    }
    assert tables["per_hour"]["total"].to_pylist() == [6.5]
    assert _clean(topics) == [{"id": 1, "total": 2.5}, {"id": 2, "total": 4.0}]
    # Spark's log and its catalog lie with the checkpoints.
    assert {path.name for path in project.iterdir()} == written | {"spark-warehouse", "storage"}

    topics.write("shop", ['{"id": 3, "total": 8}', "nonsense too"])
    done = _run(project, "run")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert sorted(_tables(project)["bronze"]["offset"].to_pylist()) == list(range(8))
    # What bronze takes in this run may reach the others in the next one; there are no duplicates.
    assert sorted(_tables(project)["silver"]["id"].to_pylist()) in ([1, 2], [1, 2, 3])
    assert [row["id"] for row in _clean(topics)] in ([1, 2], [1, 2, 3])


def test_without_its_settings_a_run_says_how_to_run_it() -> None:
    """Spark would fail at the second run only, with a useless message."""
    code = (TEMPLATE / "transformations" / "bronze.py").read_text()

    class Session:
        conf: ClassVar[dict[str, str]] = {"spark.sql.catalogImplementation": "in-memory"}

    modules = {
        "pyspark": SimpleNamespace(pipelines=None),
        "pyspark.sql": SimpleNamespace(DataFrame=None, SparkSession=SimpleNamespace(active=Session)),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        with pytest.raises(RuntimeError, match="SPARK_CONF_DIR=conf spark-pipelines run"):
            exec(compile(code, "bronze.py", "exec"), {})
