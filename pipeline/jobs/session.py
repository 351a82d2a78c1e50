"""A Spark session for a job: quiet, in UTC, all its temporary files in one directory that is removed at the end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import find_spark_home
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.data_source import SluiceDataSource

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss} %p %c{1}: %m%n
"""
# A Python worker must connect within this time, or the query fails. Spark's 15 s are too short on a busy machine.
WORKER_START = "60s"
# Executors say so often how many records their tasks have read; people watch seconds, and Spark's ten are too many.
# Elsewhere it is left to Spark: every executor of a large cluster would ask its driver that often.
LOCAL_HEARTBEAT = "2s"
# No request waits for a pause of a job's JVM, so the collector with the least total work is best. JSON is written to
# a table 7 % faster than with Java's default.
COLLECTOR = "-XX:+UseParallelGC"
# Where people say what Java is to do; it does not start with two collectors.
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Micro-batches are small; Spark's 200 would spend a second on empty tasks.
SHUFFLE_PARTITIONS = 8


def package_root() -> Path:
    """The directory that holds the `pipeline` package: workers of a local master import it from there."""
    return Path(__file__).resolve().parent.parent.parent


def prepare_environment(extra: Mapping[str, str]) -> None:
    """Make workers run this Python with this package; Spark would take `python3` from PATH.

    `spark.pyspark.python` names another one, for executors on other machines: Spark itself reads that setting in
    spark-submit only.
    """
    os.environ["PYSPARK_PYTHON"] = extra.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(package_root()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def collector(extra: Mapping[str, str]) -> str:
    """Return the flag for our collector; nothing if the user chose a collector."""
    said = [os.environ.get(name, "") for name in JAVA_VARIABLES]
    said += [value for key, value in extra.items() if key.endswith("JavaOptions")]
    home = Path(find_spark_home._find_spark_home()) / "conf"
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or home) / "spark-defaults.conf"
    if defaults.is_file():
        said.append(defaults.read_text(errors="replace"))
    return "" if re.search(r"-XX:\+Use\w+GC\b", " ".join(said)) else COLLECTOR


def settings(master: str, scratch: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a job; `extra` wins."""
    log = scratch / "log4j2.properties"
    homes = f"-Dderby.system.home={scratch} -Djava.io.tmpdir={scratch}"
    java = f"{collector(extra)} -Dlog4j2.configurationFile=file:{log} {homes}"
    ours = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": f"file:{scratch / 'warehouse'}",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": java,
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.python.authenticate.socketTimeout": WORKER_START,
    }
    if master.startswith("local"):
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
        ours["spark.executor.heartbeatInterval"] = LOCAL_HEARTBEAT
    return {**ours, **extra}


def sweep(parent: Path) -> None:
    """Remove scratch directories of dead processes, because a killed job cannot remove its own."""
    for left in parent.glob("run-*"):
        pid = left.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Processes started in here write into a file.

    The JVM's output at its start is of no use, unless it fails to start; then it writes the reason to stdout.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    with path.open("ab") as log:
        for number in kept:
            os.dup2(log.fileno(), number)
    try:
        yield
    finally:
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)


def _started(builder: SparkSession.Builder, log: Path) -> SparkSession:
    """The session. Raises SessionError without a JVM, and what Spark raises for wrong settings."""
    with _output_to(log):
        try:
            spark = builder.getOrCreate()
        except PySparkException as error:
            if "JAVA_GATEWAY_EXITED" in str(error):
                raise start_failure(log.read_text(errors="replace")) from None
            raise
        # Spark would find it by itself, and would not say why if it could not be imported.
        spark.dataSource.register(SluiceDataSource)
    return spark


# What it is about stands in the next line.
_VM_ERROR = "Error occurred during initialization of VM"


class SessionError(Exception):
    """Java could not be started; the message says what to do, or what Java said."""


def start_failure(said: str) -> SessionError:
    """Why there is no JVM, out of what its start left in the log."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    missing = ("JAVA_HOME", "java: not found", "java: command not found", "bin/java: No such file")
    if not lines or any(word in line for line in lines for word in (*missing, "UnsupportedClassVersion")):
        return SessionError("Spark needs Java 17 or 21: install a Java runtime, or set JAVA_HOME")
    words = ("Error", "Invalid", "Unrecognized", "Exception")
    telling = next((line for line in lines if line.startswith(words)), lines[-1])
    if telling == _VM_ERROR and telling != lines[-1]:
        telling = lines[lines.index(telling) + 1]
    return SessionError(f"Java did not start: {telling}")


@contextlib.contextmanager
def session(name: str, master: str, state: Path, extra: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session whose process works in a scratch directory below `state`. Both are ended and removed at the end.

    The working directory changes: paths must have been made absolute before.
    """
    parent = (state / "scratch").absolute()
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    scratch = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=parent))
    (scratch / "log4j2.properties").write_text(_LOG4J)
    prepare_environment(extra)
    before = Path.cwd()
    os.chdir(scratch)
    builder = SparkSession.Builder().appName(name)
    for key, value in settings(master, scratch, extra).items():
        builder = builder.config(key, value)
    try:
        spark = _started(builder, scratch / "spark.log")
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        os.chdir(before)
        shutil.rmtree(scratch, ignore_errors=True)
