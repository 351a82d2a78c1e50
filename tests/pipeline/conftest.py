"""One Spark session for all tests of the pipeline: a cold one costs twelve seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker_process import ROOT, BrokerProcess
from tests.conftest import java_path
from tests.peers.fetch import PEERS
from tests.pipeline.topics import Topics

# A query on a machine that others share may take a minute; the first one of a session starts a JVM as well.
SPARK_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs the session may take its time."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session: two cores, no UI, errors only. Spark's temporary files have a directory of their own.

    Spark finds the source by its short name because the repository is on the workers' path, as it is after
    `pip install`. Tests may set SQL settings, if they put them back.
    """
    if java_path() is None:
        say = "Java is not installed: `python3 tests/run.py` installs it, as root"
        if os.environ.get("CI") == "true":
            pytest.fail(say, pytrace=False)
        pytest.skip(say)
    work = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # Java writes log lines of its own start to stderr, before Spark can be told to be quiet.
    session = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.local.dir", str(work / "local"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.log.level", "ERROR")
        # A worker in Python has 15 seconds to start otherwise; on a machine that others use it may need more.
        .config("spark.python.authenticate.socketTimeout", "60s")
        # Spark's own Kafka connector, for its own test; beside Spark's jars, so that no session copies it.
        .config("spark.driver.extraClassPath", str(PEERS / "spark-kafka" / "*"))
        # The quick compiler and the plain collector: a JVM that lives for minutes never earns back the others.
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dderby.system.home={work} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        )
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def topics(broker: BrokerProcess) -> Iterator[Topics]:
    """Makes topics on this file's broker and writes records to them."""
    with Topics(broker) as made:
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for the checkpoint of a streaming query."""
    return str(tmp_path / "checkpoint")
