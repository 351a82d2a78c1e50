"""Where the pipeline runs: on a standalone cluster of the pip install, as docs/spark/where-it-runs.md says, with the
real command and curl; with the package sent along to executors that do not have it; through a Spark Connect server.

Each Spark application here is a JVM or two of its own; there are as few as show it.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.broker_process import ROOT, BrokerProcess
from tests.conftest import java_path
from tests.docs.examples import SCENARIOS, commands_of
from tests.pipeline.class_archive import java_options
from tests.pipeline.standalone import SPARK_HOME, Standalone
from tests.pipeline.topics import Topics

JOB_SECONDS = 400
pytestmark = [pytest.mark.timeout(2 * JOB_SECONDS), pytest.mark.slow]
SMALL = {
    "spark.driver.defaultJavaOptions": java_options(),
    "spark.executor.defaultJavaOptions": java_options(),
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "60s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and a worker."""
    if java_path() is None:
        say = "Java is not installed: `python3 tests/run.py` installs it, as root"
        if os.environ.get("CI") == "true":
            pytest.fail(say, pytrace=False)
        pytest.skip(say)
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with everything that the pipeline needs, and without the pipeline."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    # A path of a path file is no site of its own: what was installed in place is not found there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = str(home / "bin" / "python")
    program = (
        "import importlib.util as u, pyarrow, msgspec; print([u.find_spec(n) for n in ('pipeline', 'core')])"
    )
    done = subprocess.run([python, "-c", program], cwd=home, env={}, capture_output=True, text=True)
    assert done.stdout == "[None, None]\n", done.stdout + done.stderr
    return python


def _environment(**more: str) -> dict[str, str]:
    """Ours without what would lead Python to the repository by itself."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    return {**kept, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def _pairs(settings: dict[str, str], flag: str) -> list[str]:
    return [part for key, value in settings.items() for part in (flag, f"{key}={value}")]


def _tour() -> list[str]:
    """The lines of the tour of docs/spark/jobs/README.md."""
    return [command.text for block in SCENARIOS["spark-tour"] for command in commands_of(block)]


@pytest.mark.client("curl")
def test_the_whole_tour_with_curl_and_the_command_on_a_standalone_cluster(
    broker: BrokerProcess, cluster: Standalone, tmp_path: Path
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, program in (("sluice", "-m app"), ("python", "")):
        (bin_ / name).write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {sys.executable} {program} "$@"\n'
        )
        (bin_ / name).chmod(0o755)
    environment = _environment(
        PATH=f"{bin_}:{os.environ['PATH']}", SLUICE_URL=broker.http, SLUICE_BOOTSTRAP=broker.kafka,
        JAVA_TOOL_OPTIONS=java_options(),
    )  # fmt: skip
    home = tmp_path / "home"
    home.mkdir()
    there = shlex.join(_pairs({**SMALL, "spark.executorEnv.PYTHONPATH": str(ROOT)}, "--spark"))
    said = []
    for line in _tour():
        typed = line.replace("http://127.0.0.1:8082", broker.http)
        if "run export" in line:
            typed += f" --master {cluster.master} {there}"
        done = subprocess.run(
            ["sh", "-c", typed],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
        )
        assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr[-5000:]}"
        said.append(done.stdout)
    assert sum(line.startswith("curl ") for line in _tour()) == 2
    value = '{"id": 1, "total": 12.5}'
    assert pq.read_table(home / "lake" / "tour")["value"].to_pylist()[0] == value.encode()
    assert "export: 2 rows" in "".join(said) and "replay: 2 rows" in "".join(said)
    assert said[-1].splitlines()[0] == value
    # Spark's droppings went with its scratch directory; state and table stay.
    assert sorted(path.name for path in home.iterdir()) == ["lake", "sluice-spark"]
    assert list((home / "sluice-spark" / "scratch").iterdir()) == []


JOB = """
import sys
from pyspark.sql import SparkSession
from pyspark_sluice import DefaultSource

def where(batches):
    import pyarrow, pipeline.source.scan
    for batch in batches:
        place = [pipeline.source.scan.__file__] * batch.num_rows
        yield pyarrow.RecordBatch.from_pydict({"where": place, "python": [sys.executable] * batch.num_rows})

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(DefaultSource)
servers = {"kafka.bootstrap.servers": sys.argv[1]}
rows = spark.read.format("sluice").options(**servers, subscribe="sent").load()
print(*rows.mapInArrow(where, "where string, python string").distinct().collect()[0], rows.count())
rows.select("value").write.format("sluice").options(**servers, topic="sent-back").mode("append").save()
"""


def test_the_package_is_sent_to_executors_that_do_not_have_it(
    topics: Topics, cluster: Standalone, bare_python: str, tmp_path: Path
) -> None:
    topics.create("sent", 2)
    topics.create("sent-back", 1)
    topics.fill("sent", 5, partitions=2)
    with zipfile.ZipFile(tmp_path / "sluice.zip", "w") as archive:
        for name in ("core", "pipeline", "pyspark_sluice.py"):
            files = [ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py")
            for file in files:
                archive.write(file, file.relative_to(ROOT))
    (tmp_path / "job.py").write_text(JOB)
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *_pairs(SMALL, "--conf"),
        "--py-files", "sluice.zip", "job.py", topics.broker.kafka,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, env=_environment(PYSPARK_PYTHON=bare_python), capture_output=True, text=True,
        timeout=JOB_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    place, python, count = done.stdout.split()[-3:]
    assert "sluice.zip/pipeline/source/scan.py" in place
    assert (python, count) == (bare_python, "10")
    assert len(topics.records("sent-back")) == 10


CLIENT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
servers = {"kafka.bootstrap.servers": sys.argv[2]}
rows = spark.read.format("sluice").options(**servers, subscribe="asked").load()
rows.where("offset < 3").select("value").write.format("sluice").options(**servers, topic="told").mode("append").save()
stream = spark.readStream.format("sluice").options(**servers, subscribe="asked", startingOffsets="earliest").load()
query = (
    stream.where("offset >= 3").select("value").writeStream.format("sluice").options(**servers, topic="told")
    .option("checkpointLocation", sys.argv[3]).trigger(availableNow=True).start()
)
query.awaitTermination()
print("counted", rows.count())
"""


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server, which has the package."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        **SMALL, "spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": "127.0.0.1",
    }  # fmt: skip
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[1]", *_pairs(settings, "--conf"),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    log = tmp_path / "server.log"
    environment = _environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-5000:]
                time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_a_thin_client_reads_writes_and_streams_through_spark_connect(
    topics: Topics, connect_server: str, tmp_path: Path
) -> None:
    topics.create("asked", 1)
    topics.create("told", 1)
    topics.fill("asked", 5)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, connect_server, topics.broker.kafka, str(tmp_path / "checkpoint")],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=JOB_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert done.stdout.split()[-2:] == ["counted", "5"]
    assert [one.value for one in topics.records("told")] == [one.value for one in topics.records("asked")]
