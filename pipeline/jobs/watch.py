"""The progress of a batch. It has no micro-batches, so a thread reads Spark's own counters while it runs.

A job is a few steps (a read, a count, a write); within each, Spark knows how many tasks there are, how many are done,
and how many records came out of sources so far (executors say so in their heartbeats). Where a step knows better what
to count, it brings a measure of its own.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from pipeline import limits
from pipeline.jobs.report import Progress, Report

_GROUP, _DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


class Seen(NamedTuple):
    """What was to be seen of a step: tasks known so far, those done, and records read so far."""

    tasks: int = 0
    done: int = 0
    rows: int = 0


Look = Callable[[str], Seen]
"""What is to be seen of a group of Spark's jobs."""


def books(spark: SparkSession) -> Look:
    """Looks into the status store of a session. Stages that Spark skipped, or has forgotten, count for nothing."""
    context: Any = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()

    def look(group: str) -> Seen:
        tasks = done = rows = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                if tracker.getStageInfo(stage) is None:
                    continue
                told = store.lastStageAttempt(stage)
                tasks += told.numTasks()
                done += told.numCompleteTasks()
                rows += told.inputRecords()
        return Seen(tasks, done, rows)

    return look


class Watch:
    """Reports a batch job's steps while they run."""

    def __init__(self, job: str, report: Report, spark: SparkSession, look: Look | None = None) -> None:
        self._job, self._report = job, report
        self._context: Any = spark.sparkContext
        self._look = look or books(spark)

    @contextmanager
    def step(
        self, name: str, expected: int | None = None, measure: Callable[[], int] | None = None
    ) -> Iterator[None]:
        """Watch what Spark does in here; the last report comes when it is done.

        `expected` is how many records there are; `measure` counts them instead of Spark.
        """
        group = f"sluice-{uuid.uuid4().hex}"
        before = {key: self._context.getLocalProperty(key) for key in (_GROUP, _DESCRIPTION)}
        self._context.setLocalProperty(_GROUP, group)
        self._context.setLocalProperty(_DESCRIPTION, f"{self._job}: {name}")
        teller = _Teller(self._job, name, self._report, expected)
        over = threading.Event()

        def look() -> Seen:
            seen = self._look(group)
            return seen if measure is None else seen._replace(rows=measure())

        def follow() -> None:
            while not over.wait(limits.WATCH_SECONDS):
                teller.tell(_quietly(look))

        thread = threading.Thread(target=follow, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for key, value in before.items():
                self._context.setLocalProperty(key, value)
        teller.end(_quietly(look))


def _quietly(look: Callable[[], Seen]) -> Seen | None:
    """What was seen; None if it cannot be seen just now. Whatever it is, the job itself will find out, and say it."""
    try:
        return look()
    except Exception:
        return None


class _Teller:
    """Makes reports of what was seen. Numbers never go back: a stage that Spark runs again was there before."""

    def __init__(self, job: str, step: str, report: Report, expected: int | None) -> None:
        self._job, self._step, self._report, self._expected = job, step, report, expected
        self._began = time.monotonic()
        self._seen = Seen()

    def tell(self, seen: Seen | None, *, over: bool = False) -> None:
        """Report what is new."""
        if seen is None:
            seen = self._seen
        rows = max(seen.rows, self._seen.rows)
        fresh, self._seen = rows - self._seen.rows, seen._replace(rows=rows)
        spent = time.monotonic() - self._began
        lag = None if self._expected is None else 0 if over else max(0, self._expected - rows)
        self._report.progress(
            Progress(
                job=self._job, step=self._step, tasks=seen.tasks, tasks_done=seen.tasks if over else seen.done,
                rows=fresh, total_rows=rows, rows_per_second=round(rows / spent, 1) if spent else 0.0,
                seconds=round(spent, 2), lag=lag,
            )
        )  # fmt: skip

    def end(self, seen: Seen | None) -> None:
        """The step is done, whatever the books say yet: they are written a moment later."""
        self.tell(seen, over=True)
