"""Check a job as far as possible before Spark starts, which takes ten seconds."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from pipeline.jobs.plan import client, plan, source_options, topics_of
from pipeline.jobs.settings import (
    Aggregate,
    Dedup,
    Export,
    Job,
    Lake,
    Replay,
    Snapshot,
    Streaming,
    Usage,
    Verify,
    check_starting,
)
from pipeline.jobs.state import checkpoint, standing
from pipeline.source.options import OptionError, read_options

# The library of each kind of table, which the extra `[lake]` installs.
_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


class PreflightError(Exception):
    """A job that cannot run. The message is one sentence for its user."""


def preflight(job: Job) -> None:
    """Ask the disk and the brokers what a job needs. Raises PreflightError and WireError."""
    _check_library(job)
    if isinstance(job, Lake) and not Path(job.lake).is_dir():
        raise PreflightError(f"there is no table in {job.lake}")
    if isinstance(job, Export | Snapshot):
        _check_directory(Path(job.to))
    if isinstance(job, Streaming):
        try:
            read_options(source_options(job, headers=True), streaming=True)
        except OptionError as error:
            raise PreflightError(str(error)) from None
        _check_starting(job, [(one.topic, one.partition) for one in plan(job)])
        _check_state(job)
    with client(job) as cluster:
        if isinstance(job, Snapshot | Usage):
            topics_of(cluster, job.topics, job.pattern if isinstance(job, Usage) and not job.topics else None)
        there = cluster.topics(None)
    for use, topic in _written(job).items():
        if topic is not None and topic not in there:
            raise PreflightError(f"{use}: the cluster has no topic {topic!r}; make it first")


def _written(job: Job) -> dict[str, str | None]:
    """The topics beside those that a job follows, by the setting that names them."""
    if isinstance(job, Dedup | Aggregate):
        return {"to": job.to}
    if isinstance(job, Replay):
        return {"topic": job.topic}
    return {"dead_letter": job.dead_letter} if isinstance(job, Export | Verify) else {}


def _check_library(job: Job) -> None:
    kind = getattr(job, "format", "parquet")
    library = _LIBRARIES.get(kind)
    if library is not None and find_spec(library) is None:
        raise PreflightError(f"format {kind} needs the library {library}: pip install 'sluice[lake]'")


def _check_directory(table: Path) -> None:
    """Refuse a place where no table can be made."""
    there = next(path for path in (table, *table.absolute().parents) if path.exists())
    if not there.is_dir():
        raise PreflightError(f"to: {there} is a file; a table is a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PreflightError(f"to: {there} may not be written by this user")


def _check_starting(job: Streaming, there: list[tuple[str, int]]) -> None:
    """Refuse offsets for other partitions than there are, unless a checkpoint makes them idle."""
    if job.starting in ("earliest", "latest") or _stood(job):
        return
    named = {(topic, part) for topic, parts in check_starting(job.starting).items() for part in parts}
    wanted = {(topic, str(part)) for topic, part in there}
    for problem, places in (("lacks", wanted - named), ("has, and there is not,", named - wanted)):
        if places:
            names = ", ".join(f"{topic}-{part}" for topic, part in sorted(places))
            raise PreflightError(
                f"starting must name every partition (-1 latest, -2 earliest): it {problem} {names}"
            )


def _stood(job: Streaming) -> dict[str, dict[str, int]]:
    """The directory with the state of an earlier run; empty if there was none."""
    stood = standing(checkpoint(Path(job.state), job.title()))
    return stood.offsets or stood.begun_offsets


def _check_state(job: Streaming) -> None:
    """Refuse to continue with the state of other topics; Spark could only report that they are missing."""
    left = sorted(_stood(job).keys() - set(job.topics))
    if job.topics and left and job.source.get("failOnDataLoss", "true").lower() != "false":
        raise PreflightError(
            f"the job {job.title()} has read {', '.join(left)} until now, which this run leaves out: name all of "
            f"them, or give another --name. Its state is in {checkpoint(Path(job.state), job.title())}"
        )
