"""Spark programs that tests start as processes of their own, to kill them or parts of them.

`python -m tests.pipeline.children copy SERVERS SOURCE TARGET CHECKPOINT`: a stream from topic to topic, in small
batches, until it has read what is there.
`python -m tests.pipeline.children lose-executor SERVERS TOPIC`: a query over a local cluster of two executors, one of
which is killed in the middle; prints how many rows it saw, how many of them different, and whether one was killed.
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

from pyspark.sql import SparkSession

from tests.broker_process import ROOT

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
        .getOrCreate()
    )


def copy(servers: str, source: str, target: str, checkpoint: str) -> None:
    """Copy a topic, 500 offsets at a time."""
    spark = session("local[2]", str(Path(checkpoint).parent))
    common = {"kafka.bootstrap.servers": servers}
    frame = (
        spark.readStream.format("sluice")
        .options(**common, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=500)
        .load()
    )
    query = (
        frame.writeStream.format("sluice")
        .options(**common, topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
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
    {"copy": copy, "lose-executor": lose_executor}[sys.argv[1]](*sys.argv[2:])
