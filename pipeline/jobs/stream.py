"""A streaming query from its topics to its end: options, checkpoint, progress, a clean stop.

The checkpoint is the truth about progress: Spark writes where a micro-batch ends before it begins it, and that it is
done after it. A job that was killed offers its last batch again, with the same records and the same number.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.jobs.plan import client, cluster_options, source_options
from pipeline.jobs.report import Outcome, Progress, Report
from pipeline.jobs.settings import Job, Streaming
from pipeline.jobs.state import checkpoint, standing
from pipeline.lake.errors import BadRecordError, LakeError
from pipeline.wire.errors import WireError
from pipeline.wire.groups import commit

SOURCE = "sluice"
POLL_SECONDS = 0.1


class JobError(Exception):
    """A job that cannot continue. The message is for its user."""


def read_stream(spark: SparkSession, settings: Streaming, *, headers: bool = True) -> DataFrame:
    """The topics of a job as a stream, with the columns of Spark's Kafka source."""
    return spark.readStream.format(SOURCE).options(**source_options(settings, headers=headers)).load()


def to_topic(records: DataFrame, settings: Job, topic: str) -> DataStreamWriter:
    """A stream of key, value, headers, timestamp into a topic: at least once; marks show duplicates."""
    stream = _without_null_headers(records).writeStream.format(SOURCE)
    return stream.options(**cluster_options(settings), topic=topic)


def write_topic(records: DataFrame, settings: Job, topic: str, rate: float | None = None) -> None:
    """Rows of key, value, headers, timestamp into a topic, once; an error if one of them was not taken.

    `rate`: records a second of each task, at most.
    """
    options = {**cluster_options(settings), "topic": topic}
    if rate is not None:
        options["recordsPerSecond"] = str(rate)
    _without_null_headers(records).write.format(SOURCE).mode("append").options(**options).save()


def _without_null_headers(records: DataFrame) -> DataFrame:
    """To a topic null and empty are the same; to Spark a column of nulls is slow (see `pipeline.lake.null_lists`)."""
    if "headers" not in records.columns:
        return records
    empty = f.array().cast(records.schema["headers"].dataType)
    return records.withColumn("headers", f.coalesce("headers", empty))


class Meter:
    """Turns the progress of a query into reports; `extra` adds what only the sink knows.

    `count` answers the records of a batch, where Spark counts something else.
    """

    def __init__(
        self,
        job: str,
        report: Report,
        extra: Callable[[Progress], None] | None = None,
        count: Callable[[int], int] | None = None,
    ) -> None:
        self._job, self._report, self._extra, self._count = job, report, extra, count
        self._seen = -1
        self.rows, self.batches = 0, 0

    def look(self, query: StreamingQuery) -> None:
        """Report the micro-batches that ended since the last look."""
        for one in query.recentProgress:
            if int(one["batchId"]) <= self._seen:
                continue
            self._seen = int(one["batchId"])
            rows, spent = int(one["numInputRows"]), int(one["durationMs"].get("triggerExecution", 0)) / 1000
            if not rows:
                continue
            if self._count is not None:
                rows = self._count(self._seen)
            self.rows += rows
            self.batches += 1
            progress = Progress(
                job=self._job,
                batch=self._seen,
                rows=rows,
                total_rows=self.rows,
                rows_per_second=round(rows / spent, 1) if spent else 0.0,
                seconds=spent,
                lag=_lag(one),
            )
            if self._extra is not None:
                self._extra(progress)
            self._report.progress(progress)


def _lag(progress: Any) -> int | None:
    """Return the number of records after the end offset, by the source's latest offsets."""
    behind, known = 0, False
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                known = True
                behind += max(0, int(offset) - int(end.get(topic, {}).get(partition, offset)))
    return behind if known else None


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


class _Stop:
    """SIGTERM and Ctrl-C ask the loop to end after the micro-batch under way is let go."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> _Stop:
        try:
            self._before = {
                number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
            }
        except ValueError:  # not the main thread: the caller stops the job in another way
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def run_query(
    writer: DataStreamWriter,
    settings: Streaming,
    meter: Meter,
    cause: Callable[[], Exception | None] | None = None,
) -> Outcome:
    """Start a query and wait for its end, or follow its topics until it is stopped.

    Raises JobError with one clear sentence; `cause` may know a better one than Spark's exception.
    """
    began = time.monotonic()
    writer = writer.option(
        "checkpointLocation", str(checkpoint(Path(settings.state), settings.title()))
    ).queryName(settings.title())
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=settings.interval or "0 seconds")
    with _Stop() as stop:
        query = writer.start()
        try:
            while query.isActive and not stop.asked:
                meter.look(query)
                time.sleep(POLL_SECONDS)
            if stop.asked:
                query.stop()
            failure = query.exception()
            meter.look(query)
        finally:
            query.stop()
    if settings.group:
        _commit_end(settings, settings.group)
    if failure is not None:
        raise JobError(_say(failure, cause() if cause is not None else None)) from None
    return Outcome(
        job=settings.job, seconds=round(time.monotonic() - began, 2), rows=meter.rows, batches=meter.batches
    )


def _commit_end(settings: Streaming, group: str) -> None:
    """Commit where the checkpoint stands. Spark tells the source that a batch is done when it begins the next one."""
    done = standing(checkpoint(Path(settings.state), settings.title())).offsets
    offsets = {(topic, int(part)): offset for topic, parts in done.items() for part, offset in parts.items()}
    if offsets:
        with contextlib.suppress(WireError), client(settings) as cluster:
            commit(cluster, group, offsets)


def _say(failure: StreamingQueryException, cause: Exception | None) -> str:
    """One sentence of a failure: ours if it is ours, else the most telling line of Spark's."""
    if isinstance(cause, BadRecordError):
        others = f" (and {cause.count - 1} more in this batch)" if cause.count > 1 else ""
        return f"{cause}{others}; nothing of the batch was written. See --on-error."
    if isinstance(cause, LakeError | JobError):
        return str(cause)
    return telling_line(str(failure))


def telling_line(text: str) -> str:
    """The last line of a Python traceback inside a Java one, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("pipeline.", "core.")) and ": " in line]
    if ours:
        return ours[-1].split(": ", 1)[1]
    errors = [
        line for line in lines if ("Error: " in line or "Exception: " in line) and not line.startswith("at ")
    ]
    told = errors[-1] if errors else (lines[0] if lines else "the query failed")
    # py4j puts a colon in front of Java's words, and Spark's own class says nothing.
    return told.removeprefix(": ").removeprefix("org.apache.spark.SparkException: ")
