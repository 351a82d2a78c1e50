"""A job's words: a bar on a terminal, lines in a log, JSON for a machine, numbers for Prometheus."""

from __future__ import annotations

import io
import json
import urllib.request

import msgspec

from pipeline.command.metrics import Metered
from pipeline.command.output import ForMachines, ForPeople, count, table
from pipeline.jobs.report import Outcome, Progress

STEP = Progress(
    job="export", batch=3, rows=10, total_rows=75, rows_per_second=2e6, seconds=0.5, lag=25, rejected=2
)
DONE = Outcome(job="export", rows=75, files=4, bytes=1234, rejected=2, seconds=1.5, problems=["t-0: a gap"])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_log_gets_lines() -> None:
    terminal, log, out = _Terminal(), io.StringIO(), io.StringIO()
    for stream in (terminal, log):
        people = ForPeople(out, stream)
        people.progress(STEP)
        people.note("well")
    assert "━━━" in terminal.getvalue() and " 75%" in terminal.getvalue()
    assert log.getvalue() == "batch 3  75 rows  2.0 M/s  lag 25  rejected 2\nwell\n"


def test_a_step_of_a_batch_fills_its_bar_by_records_or_by_tasks_and_a_log_is_not_flooded() -> None:
    terminal, log = _Terminal(), io.StringIO()
    steps = [
        Progress(job="usage", step="counting", tasks=4, tasks_done=n, total_rows=n * 10) for n in (1, 2, 4)
    ]
    known = [msgspec.structs.replace(step, lag=40 - step.total_rows) for step in steps]
    for stream in (terminal, log):
        people = ForPeople(io.StringIO(), stream)
        for step in (*known, *steps):
            people.progress(step)
    bars = [part.split("%")[0].split()[-1] for part in terminal.getvalue().split("\r")[1:]]
    assert bars == ["25", "50", "100", "25", "50", "100"]
    # The end of a step is a line of its own, on a terminal as well.
    assert terminal.getvalue().count("\n") == 2
    assert log.getvalue() == "counting  4/4 tasks  40 rows  0/s\n" * 2


def test_the_end_is_one_line_and_the_problems() -> None:
    out = io.StringIO()
    ForPeople(out, io.StringIO()).done(DONE)
    assert out.getvalue() == "export: 75 rows, 4 files, 1,234 bytes, 2 rejected, 1.5 s\nt-0: a gap\n"


def test_a_job_that_did_nothing_but_fail_says_why_in_one_line() -> None:
    out = io.StringIO()
    ForPeople(out, io.StringIO()).done(Outcome(job="export", problems=["export failed: no topic"]))
    assert out.getvalue() == "export failed: no topic\n"


def test_a_machine_gets_one_object_a_line() -> None:
    out = io.StringIO()
    machine = ForMachines(out)
    machine.note("x")
    machine.progress(STEP)
    machine.done(DONE)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["type"] for line in lines] == ["note", "progress", "done"]
    assert (lines[1]["batch"], lines[1]["lag"], lines[2]["problems"]) == (3, 25, ["t-0: a gap"])


def test_prometheus_sees_progress_and_failure() -> None:
    notes = io.StringIO()
    metered = Metered(ForPeople(io.StringIO(), notes), "export", "mine", 0)
    try:
        metered.progress(STEP)
        metered.progress(STEP)
        metered.done(DONE)
        url = notes.getvalue().split()[2]
        text = urllib.request.urlopen(url, timeout=5).read().decode()
    finally:
        metered.close()
    assert 'sluice_spark_rows_total{job="export",name="mine"} 20.0' in text
    assert 'sluice_spark_lag{job="export",name="mine"} 25.0' in text
    assert 'sluice_spark_failed{job="export",name="mine"} 1.0' in text


def test_steps_are_no_batches_for_prometheus() -> None:
    notes = io.StringIO()
    metered = Metered(ForPeople(io.StringIO(), notes), "usage", "u", 0)
    try:
        metered.progress(
            Progress(job="usage", step="counting", tasks=4, tasks_done=1, rows=7, total_rows=7, lag=3)
        )
        url = notes.getvalue().split()[2]
        text = urllib.request.urlopen(url, timeout=5).read().decode()
    finally:
        metered.close()
    for line in (
        "batches_total{{}} 0.0",
        "rows_total{{}} 7.0",
        "step_tasks{{}} 4.0",
        "step_tasks_done{{}} 1.0",
        "lag{{}} 3.0",
    ):
        assert f"sluice_spark_{line.format()}".replace("{}", '{job="usage",name="u"}') in text


def test_tables_align_and_numbers_are_short() -> None:
    assert table([{"a": "x", "n": 5}, {"a": "longer", "n": None}]) == "A       N\nx       5\nlonger"
    assert [count(n) for n in (7, 12_345, 2_500_000, 3e9)] == ["7", "12.3 k", "2.5 M", "3.0 G"]
