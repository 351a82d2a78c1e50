"""How far a batch is: what is reported while a step runs, at its end, and when Spark's books cannot be read."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline import limits
from pipeline.jobs.watch import Look, Seen, Watch
from tests.pipeline.jobs.running import Notes


class _Context:
    """The local properties of a session, and nothing else of it."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {"spark.jobGroup.id": "mine"}

    def getLocalProperty(self, key: str) -> Any:  # noqa: N802
        return self.properties.get(key)

    def setLocalProperty(self, key: str, value: Any) -> None:  # noqa: N802
        self.properties[key] = value


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setattr(limits, "WATCH_SECONDS", 0.005)
    return Notes()


def _watch(notes: Notes, look: Look, context: _Context | None = None) -> Watch:
    session = cast("SparkSession", SimpleNamespace(sparkContext=context or _Context()))
    return Watch("usage", notes, session, look)


def _wait_for(notes: Notes, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(notes.steps) < count and time.monotonic() < deadline:
        time.sleep(0.002)


def test_a_step_says_what_is_done_and_what_is_left_and_ends_with_nothing_left(notes: Notes) -> None:
    told = iter([Seen(4, 0, 10), Seen(4, 2, 60), Seen(3, 1, 40)])
    last = Seen(4, 3, 90)
    with _watch(notes, lambda _: next(told, last)).step("counting", 100):
        _wait_for(notes, 4)
    first, second, third, *_, end = notes.steps
    assert (first.step, first.tasks, first.tasks_done, first.rows, first.lag) == ("counting", 4, 0, 10, 90)
    assert (second.tasks_done, second.rows, second.total_rows, second.lag) == (2, 50, 60, 40)
    # A stage that is run again begins at 0; what was reported stays reported.
    assert (third.rows, third.total_rows, third.lag) == (0, 60, 40)
    assert (end.tasks_done, end.total_rows, end.lag) == (4, 90, 0)
    assert sum(step.rows for step in notes.steps) == 90


def test_a_measure_of_the_steps_own_counts_instead_of_spark(notes: Notes) -> None:
    with _watch(notes, lambda _: Seen(1, 0, 5)).step("writing", 10, lambda: 7):
        _wait_for(notes, 1)
    assert (notes.steps[0].total_rows, notes.steps[0].lag) == (7, 3)


def test_books_that_cannot_be_read_stop_no_job_and_a_job_that_fails_reports_no_end(notes: Notes) -> None:
    def torn(_: str) -> Seen:
        raise OSError("the JVM has ended")

    with _watch(notes, torn).step("counting"):
        _wait_for(notes, 1)
    assert notes.steps[-1].lag is None
    count = len(notes.steps)
    with pytest.raises(ValueError, match="broken"), _watch(notes, lambda _: Seen()).step("counting", 1):
        raise ValueError("broken")
    assert [step for step in notes.steps[count:] if step.lag == 0] == []


def test_only_the_steps_own_jobs_are_looked_at_and_the_session_is_left_as_it_was(notes: Notes) -> None:
    context, groups = _Context(), set()

    def look(group: str) -> Seen:
        groups.add(group)
        return Seen()

    watch = _watch(notes, look, context)
    for name in ("one", "two"):
        with watch.step(name):
            groups.add(context.properties["spark.jobGroup.id"])
            assert context.properties["spark.job.description"] == f"usage: {name}"
    assert len(groups) == 2
    assert context.properties == {"spark.jobGroup.id": "mine", "spark.job.description": None}
