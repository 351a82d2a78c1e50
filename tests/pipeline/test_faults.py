"""Queries that are killed, in whole and in part, and batches that are replayed: every row, and twice can be told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker_process import ROOT
from tests.pipeline.kills import kills
from tests.pipeline.source.test_stream import run, stream
from tests.pipeline.topics import Topics
from tests.pipeline.victims import SINKS

# A start of Spark takes 10 s on a quiet machine, and a minute on one that others use as well.
KILLS = 3
CHILD_SECONDS = 240


@contextmanager
def child(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Spark program in a process group of its own, all of which is ended afterwards."""
    command = [sys.executable, "-m", "tests.pipeline.children", *arguments]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the program, its JVM and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.client("java")
@pytest.mark.timeout((KILLS + 1) * CHILD_SECONDS)
def test_a_query_that_is_killed_again_and_again_reads_every_record_and_replays_batches_as_they_were(
    topics: Topics, tmp_path: Path
) -> None:
    outcome = kills(SINKS["topic"](tmp_path, topics), topics, KILLS, seed=7)
    assert len(outcome.kills) == KILLS


def test_a_batch_whose_commit_was_lost_is_read_again_with_the_same_rows(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.create("replayed")
    topics.fill(name, 100)
    _, first = run(stream(spark, topics, name, checkpoint, maxOffsetsPerTrigger=40))
    assert list(first.batches) == [0, 1, 2]
    for file in (Path(checkpoint) / "commits").glob("*2*"):
        file.unlink()
    topics.fill(name, 10)
    _, second = run(stream(spark, topics, name, checkpoint, maxOffsetsPerTrigger=40))
    assert second.batches == {2: first.batches[2], 3: {0: list(range(100, 110))}}


@pytest.mark.client("java")
@pytest.mark.timeout(CHILD_SECONDS + 60)
def test_an_executor_that_is_killed_in_mid_query_costs_no_row(topics: Topics, tmp_path: Path) -> None:
    name = topics.create("executors", partitions=2)
    topics.fill(name, 6000, partitions=2, batch=500)
    log = tmp_path / "log"
    with child(log, "lose-executor", topics.broker.kafka, name, str(tmp_path)) as process:
        assert process.wait(CHILD_SECONDS) == 0, log.read_text()
    assert log.read_text().splitlines()[-1] == "12000 12000 True"
