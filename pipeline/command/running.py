"""From settings to an exit code: 0 done, 1 it failed or found something wrong, 2 it cannot start."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from pipeline.command.output import table
from pipeline.jobs import registry, state
from pipeline.jobs.plan import lost, plan
from pipeline.jobs.preflight import preflight
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Job, Lake, Replay, Streaming


def absolute(job: Job) -> Job:
    """The same job with absolute paths: the process will work in its scratch directory."""
    changed = {"state": str(Path(job.state).absolute())}
    # `to` is a path where there is a kind of table beside it, else a topic.
    for field in ("to", "lake") if hasattr(job, "format") else ():
        value = getattr(job, field, None)
        if isinstance(value, str):
            changed[field] = str(Path(value.removeprefix("file://")).absolute())
    for field in ("sasl_password_file", "ssl_ca_location", "ssl_certificate_location", "ssl_key_location"):
        if getattr(job, field) is not None:
            changed[field] = str(Path(getattr(job, field)).absolute())
    name = job.title()
    return msgspec.structs.replace(job, **changed, name=name)


def _fail(report: Report, job: Job, message: str, began: float) -> int:
    report.done(
        Outcome(
            job=job.job, seconds=round(time.monotonic() - began, 2), problems=[f"{job.job} failed: {message}"]
        )
    )
    return 1


def run_job(job: Job, report: Any) -> int:
    """Run a job to its end and answer the exit code."""
    job = absolute(job)
    began = time.monotonic()
    metered = None
    if job.metrics_port is not None:
        from pipeline.command.metrics import Metered

        try:
            metered = report = Metered(report, job.job, job.title(), job.metrics_port)
        except OSError as error:
            print(f"sluice spark: metrics_port {job.metrics_port}: {error.strerror}", file=sys.stderr)
            return 2
    directory = Path(job.state)
    note = state.begin_run(directory, job.job, job.title(), msgspec.to_builtins(job))
    try:
        outcome = _in_session(job, report)
    except Exception as error:
        from pipeline.jobs.stream import telling_line

        message = str(error) if type(error).__module__.startswith("pipeline.") else telling_line(str(error))
        state.end_run(directory, note, "failed", error=message)
        return _fail(report, job, message, began)
    finally:
        if metered is not None:
            metered.close()
    outcome.seconds = round(time.monotonic() - began, 2)
    state.end_run(directory, note, "failed" if outcome.problems else "done", outcome.rows)
    report.done(outcome)
    return 1 if outcome.problems else 0


def _in_session(job: Job, report: Report) -> Outcome:
    preflight(job)
    from pipeline.jobs.session import session

    with session(job.title(), job.master, Path(job.state), job.spark) as spark:
        return registry.run(spark, job, report)


def _look_at_table(job: Lake) -> dict[str, Any]:
    """Return what a job would read of its table, and what its target holds. Raises JobError, or WireError."""
    from pipeline.jobs.replay import bounds
    from pipeline.jobs.tables import holding

    row = {"table": job.lake, "format": job.format, **holding(job)._asdict()}
    if isinstance(job, Replay):
        low, high = bounds(job)
        row |= {"topic": job.topic, "partitions": len(high), "there": sum(high.values()) - sum(low.values())}
    return row


def show_plan(job: Job, as_json: bool) -> int:
    """Print what a job would read."""
    job = absolute(job)
    try:
        preflight(job)
        if isinstance(job, Lake):
            _print_rows([_look_at_table(job)], as_json)
            return 0
        ranges = plan(job)
    except Exception as error:
        if not type(error).__module__.startswith("pipeline."):
            raise
        print(f"sluice spark: {error}", file=sys.stderr)
        return 1
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "from": one.start,
            "to": one.end,
            "records": one.records,
        }
        for one in ranges
    ]
    _print_rows(rows, as_json)
    if not as_json:
        click.echo(_in_all(job, sum(one.records for one in ranges)))
    problems = lost(ranges)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    else:
        click.echo(table(rows))


def _in_all(job: Job, total: int) -> str:
    """The last line of a plan."""
    if not isinstance(job, Streaming):
        return f"{total:,} records"
    most = job.max_offsets_per_trigger
    batches = f", {-(-total // most)} batches" if most else ""
    return f"{total:,} records{batches}; state in {state.checkpoint(Path(job.state), job.title())}"


def leave(code: int) -> None:
    """End the process at once, after its words are out: native libraries of the lake own threads, and one of them
    may abort an interpreter that takes its time."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
