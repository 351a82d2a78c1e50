"""A streaming job from its start to its end: stopped by a signal, cut off from its data, told in one sentence."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pipeline.jobs import state
from pipeline.jobs.report import Progress
from pipeline.jobs.stream import JobError, telling_line
from tests.pipeline.jobs.running import Runner, naive, once
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def _ask_to_end_at(report: int, reports: list[Progress]) -> None:
    """SIGTERM at that report alone: a job may report several batches at once, and takes a second as Ctrl-C."""
    if len(reports) == report:
        os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_ends_a_job_that_follows_its_topics_and_it_continues_later(
    jobs: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("followed", 2)
    topics.fill(topic, 50, partitions=2)
    seen: list[Progress] = []

    def stop(step: Progress) -> None:
        seen.append(step)
        _ask_to_end_at(1, seen)

    monkeypatch.setattr(jobs.report, "progress", stop)
    before = signal.getsignal(signal.SIGTERM)
    job = {"topics": [topic], "to": jobs.path("t"), "name": "f", "group": "lake"}
    done = jobs.run("export", **job, once=False)
    assert (done.rows, seen[0].rows, seen[0].lag) == (100, 100, 0)
    assert signal.getsignal(signal.SIGTERM) == before
    # Every report stops the process: of the jobs below, one that takes a second has some as well.
    monkeypatch.undo()
    topics.fill(topic, 5)
    assert jobs.run("export", **job).rows == 5
    assert naive(jobs.path("t")) == once(topic, {0: 55, 1: 50})
    standing = state.standing(state.checkpoint(jobs.home / "state", "f"))
    assert standing.offsets == {topic: {"0": 55, "1": 50}}
    lag = {row["partition"]: row["lag"] for row in jobs.run("usage", topics=[topic]).table}
    assert lag == {0: "lake: 0", 1: "lake: 0"}


def test_a_partition_that_is_added_under_a_running_job_is_read_from_its_beginning(
    jobs: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("widened", 1)
    topics.fill(topic, 20)
    steps: list[Progress] = []

    def widen(step: Progress) -> None:
        steps.append(step)
        _ask_to_end_at(2, steps)
        if len(steps) == 1:
            topics.add_partitions(topic, 2)
            topics.fill(topic, 30, partitions=2)

    monkeypatch.setattr(jobs.report, "progress", widen)
    job = {"topics": [topic], "to": jobs.path("t"), "name": "w"}
    jobs.run("export", **job, once=False)
    monkeypatch.undo()
    jobs.run("export", **job)
    assert naive(jobs.path("t")) == once(topic, {0: 50, 1: 30})
    assert jobs.run("verify", lake=jobs.path("t"), complete=True).problems == []


def test_lost_records_end_the_job_and_are_named(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("cut", 1)
    topics.fill(topic, 10)
    job = {"topics": [topic], "to": jobs.path("t"), "name": "c"}
    jobs.run("export", **job)
    topics.fill(topic, 20)
    topics.truncate(topic, 15)
    with pytest.raises(JobError, match=r"(?s)cut.*10.*15"):
        jobs.run("export", **job)
    assert jobs.run("export", **job, source={"failOnDataLoss": "false"}).rows == 15
    assert sorted(offset for _, _, offset in naive(jobs.path("t"))) == [*range(10), *range(15, 30)]
    assert jobs.run("verify", lake=jobs.path("t")).problems == ["cut-0: the table lacks offsets 10 to 14"]


def test_an_option_that_the_source_does_not_know_is_named(jobs: Runner, topics: Topics) -> None:
    topic = topics.create("optioned", 1)
    with pytest.raises(JobError, match="unknown option 'maxOffsetPerTrigger'"):
        jobs.run("export", topics=[topic], to=jobs.path("t"), source={"maxOffsetPerTrigger": "5"})


def test_of_a_java_traceback_the_telling_line_is_kept() -> None:
    text = """[STREAM_FAILED] Query terminated
    at org.apache.spark.Thing
    Traceback (most recent call last):
      File "x.py", line 1, in read
    pipeline.wire.errors.CorruptData: orders-0 at offset 7: wrong checksum
    at org.apache.spark.Other"""
    assert telling_line(text) == "orders-0 at offset 7: wrong checksum"
    assert (
        telling_line("java.lang.IllegalStateException: no\n\tat x") == "java.lang.IllegalStateException: no"
    )
    assert telling_line("") == "the query failed"
    assert telling_line("An error\n: org.apache.spark.SparkException: No such URL: 'x'") == "No such URL: 'x'"


def test_a_state_directory_without_jobs_is_empty(tmp_path: Path) -> None:
    assert state.runs(tmp_path) == []
    assert state.standing(tmp_path / "none").done == -1
