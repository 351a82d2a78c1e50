"""Spark programs that tests start as processes of their own, to kill them or parts of them.

`python -m tests.pipeline.children copy SERVERS SOURCE TARGET CHECKPOINT BATCH [HTTP]`: a stream from topic to topic,
in batches of BATCH offsets, until it has read all records; exactly once if it is given the URL of the HTTP API.
`… spark-parquet SERVERS SOURCE DIRECTORY CHECKPOINT BATCH`: the same into Spark's own Parquet sink.
`… lose-executor SERVERS TOPIC`: a query over a local cluster of two executors, one of which is killed in the middle;
prints how many rows it saw, how many of them different, and whether one was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.broker_process import ROOT
from tests.pipeline.class_archive import java_options

EXECUTOR = "CoarseGrainedExecutorBackend"


def session(master: str, work: str) -> SparkSession:
    """A quiet session; executors find the pipeline by their path."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.chdir(work)
    return (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.executor.memory", "512m")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.defaultJavaOptions", java_options())
        .config("spark.executor.defaultJavaOptions", java_options())
        .getOrCreate()
    )


def read(spark: SparkSession, servers: str, source: str, batch: str) -> DataFrame:
    """Read a topic from its beginning, a number of offsets at a time."""
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": batch}
    return spark.readStream.format("sluice").options(**{"kafka.bootstrap.servers": servers}, **options).load()


def write(writer: DataStreamWriter, checkpoint: str) -> None:
    """Run a query until it has read what is there."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def copy(servers: str, source: str, target: str, checkpoint: str, batch: str, http: str = "") -> None:
    """Copy a topic; with the URL of the HTTP API exactly once."""
    once = {"delivery": "exactly-once", "httpUrl": http} if http else {}
    spark = session("local[2]", str(Path(checkpoint).parents[2]))
    writer = read(spark, servers, source, batch).writeStream.format("sluice")
    write(writer.options(**{"kafka.bootstrap.servers": servers}, topic=target, **once), checkpoint)
    spark.stop()


def spark_parquet(servers: str, source: str, directory: str, checkpoint: str, batch: str) -> None:
    """A topic into a directory of Parquet files."""
    spark = session("local[2]", str(Path(checkpoint).parents[2]))
    writer = read(spark, servers, source, batch).writeStream.format("parquet")
    write(writer.option("path", directory), checkpoint)
    spark.stop()


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    """Hand Arrow batches on, and take time for it."""
    for batch in batches:
        time.sleep(0.3)
        yield batch


def executors() -> list[int]:
    """The executors that belong to this process."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                command = (directory / "cmdline").read_bytes()
                group = os.getpgid(int(directory.name))
            except OSError:
                continue
            if EXECUTOR.encode() in command and group == os.getpgid(0):
                found.append(int(directory.name))
    return sorted(found)


def lose_executor(servers: str, topic: str, work: str) -> None:
    """Count a topic with two executors, and kill one of them once a few tasks are done."""
    spark = session("local-cluster[2,1,512]", work)
    tracker = spark.sparkContext.statusTracker()
    killed = []

    def kill() -> None:
        while not killed:
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks > 10 and info.numCompletedTasks >= 3:
                    killed.append(executors()[-1])
                    os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.05)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "columns": "partition,offset"}
    frame = spark.read.format("sluice").options(**options, maxRecordsPerPartition=500).load()
    rows = frame.mapInArrow(slowly, frame.schema).collect()
    print(len(rows), len(set(rows)), bool(killed))
    spark.stop()


if __name__ == "__main__":
    {"copy": copy, "spark-parquet": spark_parquet, "lose-executor": lose_executor}[sys.argv[1]](*sys.argv[2:])
