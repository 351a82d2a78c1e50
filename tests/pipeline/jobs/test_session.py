"""What a job's session leaves, and what its workers are told. (That it works is shown by the kill loop.)"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline.jobs.session import (
    COLLECTOR,
    JAVA_VARIABLES,
    collector,
    package_root,
    prepare_environment,
    settings,
    start_failure,
    sweep,
)
from tests.broker_process import ROOT


def test_scratch_of_dead_processes_is_swept_and_that_of_living_ones_is_not(tmp_path: Path) -> None:
    dead, alive, foreign = (
        tmp_path / f"run-{2**22 + 1}-x",
        tmp_path / f"run-{os.getpid()}-y",
        tmp_path / "other",
    )
    for directory in (dead, alive, foreign):
        (directory / "deep").mkdir(parents=True)
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, foreign.name])


def test_workers_run_this_python_with_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/first{os.pathsep}{ROOT}")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    prepare_environment({})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/first"]
    assert package_root() == ROOT
    prepare_environment({"spark.pyspark.python": "/there/python"})
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (
        "/there/python",
        sys.executable,
    )


def test_what_the_user_sets_wins(tmp_path: Path) -> None:
    found = settings("spark://host:7077", tmp_path, {"spark.ui.enabled": "true"})
    assert found["spark.ui.enabled"] == "true"
    assert "spark.driver.host" not in found
    assert settings("local[2]", tmp_path, {})["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_collector_that_the_user_chose_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in JAVA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert (collector({}), collector({"spark.driver.defaultJavaOptions": "-Xss2m"})) == (COLLECTOR, COLLECTOR)
    assert collector({"spark.driver.defaultJavaOptions": "-Xss2m -XX:+UseZGC"}) == ""
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("spark.driver.defaultJavaOptions -XX:+UseG1GC")
    assert collector({}) == ""
    defaults.unlink()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    assert collector({}) == ""
    assert COLLECTOR not in settings("local[2]", tmp_path, {})["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", "Spark needs Java 17 or 21: install a Java runtime, or set JAVA_HOME"),
        ("/x/spark-class: line 71: /no/bin/java: No such file or directory\n", "Spark needs Java 17 or 21"),
        ("Exception: java.lang.UnsupportedClassVersionError: has been compiled by a more recent", "Java 17"),
        ("Invalid maximum heap size: -Xmx1x\nError: Could not create", "start: Invalid maximum heap size: -Xmx1x"),
        ("Picked up JAVA_TOOL_OPTIONS: -Xq\nUnrecognized option: -Xq\n", "start: Unrecognized option: -Xq"),
        (
            "Error occurred during initialization of VM\nMultiple garbage collectors selected\n",
            "Java did not start: Multiple garbage collectors selected",
        ),
        ("whatever\nlast words\n", "Java did not start: last words"),
    ],
)  # fmt: skip
def test_a_java_that_does_not_start_is_told_in_one_line(said: str, told: str) -> None:
    assert told in str(start_failure(said))
