"""The export job: a topic into Parquet, JSON into typed columns, and how long a small batch takes to a table."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.case import Figure, case
from bench.load import Connection
from bench.server import broker
from bench.spark import PARTITIONS, RECORDS, TOPIC, at_least, fill, write_everywhere, yardstick
from core.protocol.messages.create_topics import CreatableTopic
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.report import Outcome, Progress

MEGA = 1e6
SCHEMA = "id BIGINT, total DOUBLE, city STRING, at TIMESTAMP, paid BOOLEAN"
# A busy machine takes minutes for four million: less tells the same, but for the seconds at start and end.
EXPORT_RECORDS = int(os.environ.get("SLUICE_BENCH_RECORDS", str(RECORDS)))
JSON_BATCH = 150
MICRO_ROWS, MICRO_BATCHES = 2_000, 40


class _Steps:
    """A report that keeps how long each micro-batch took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def note(self, text: str) -> None:
        """Nothing."""

    def progress(self, progress: Progress) -> None:
        """Keep the time of the batch."""
        self.seconds.append(progress.seconds)

    def done(self, outcome: Outcome) -> None:
        """Nothing."""


@contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """The session that `sluice spark run` makes."""
    from pipeline.jobs import session as jobs

    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-job-") as home,
        jobs.session("bench", f"local[{cores}]", Path(home), {"spark.driver.memory": "2g"}) as spark,
    ):
        yield spark


def fill_json(server: BrokerProcess, records: int = EXPORT_RECORDS) -> int:
    """A topic of JSON objects of about 100 B with five fields; answers how many there are."""
    connection = Connection(server.kafka_address)
    connection.create_topics([CreatableTopic(TOPIC, PARTITIONS, 1, [], [])])
    now = int(time.time() * 1000)
    values = [
        {
            "id": n,
            "total": n / 8,
            "city": f"city number {n:06}",
            "at": "2025-01-31T12:00:00.000Z",
            "paid": n % 2 == 0,
        }
        for n in range(JSON_BATCH)
    ]
    batch = build_batch([NewRecord(value=json.dumps(value).encode()) for value in values], now_ms=now)
    count = -(-records // PARTITIONS // JSON_BATCH)
    write_everywhere(connection, batch, count)
    connection.close()
    return count * JSON_BATCH * PARTITIONS


def export(spark: SparkSession, server: BrokerProcess, home: Path, **values: Any) -> tuple[Outcome, _Steps]:
    """Run the export job once into a new table, which is removed again."""
    from pipeline.jobs.registry import read_settings, run

    shutil.rmtree(home, ignore_errors=True)
    steps = _Steps()
    told = {
        "topics": [TOPIC],
        "to": str(home / "table"),
        "state": str(home / "state"),
        "once": True,
        **values,
    }
    done = run(spark, read_settings("export", {"bootstrap": server.kafka, **told}), steps)
    return done, steps


def _rates(
    spark: SparkSession, server: BrokerProcess, records: int, repeats: int, **values: Any
) -> list[float]:
    """Million rows a second into a table, the job's own start and end included, once the workers are warm."""
    rates = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-lake-") as directory:
        for repeat in range(min(repeats, 5) + 1):
            start = time.perf_counter()
            done, _ = export(spark, server, Path(directory) / "x", **values)
            if done.rows != records:
                raise RuntimeError(f"{done.rows} rows arrived of {records}")
            if repeat:
                rates.append(records / (time.perf_counter() - start) / MEGA)
    return rates


@case
def spark_export(repeats: int) -> list[Figure]:
    """Spark, local[2]: the export job, 4 M records of 100 B into our own Parquet table, exactly once."""
    with broker() as server, session(2) as spark:
        records = fill(server, EXPORT_RECORDS)
        yard = yardstick(server).rate
        rates = _rates(spark, server, records, repeats)
        return [at_least("Spark export, topic → Parquet", rates, "s/M rows", 0.5, yard)]


@case
def spark_export_json(repeats: int) -> list[Figure]:
    """Spark, local[2]: the export job, JSON of 100 B and five fields into a typed table."""
    with broker() as server, session(2) as spark:
        records = fill_json(server)
        yard = yardstick(server).rate
        rates = _rates(spark, server, records, repeats, mode="json", schema=SCHEMA)
        return [at_least("Spark export, JSON → typed table", rates, "s/M rows", 0.25, yard)]


@case
def spark_export_latency(repeats: int) -> list[Figure]:
    """Spark, local[2]: small micro-batches of 4 partitions into a table, p95."""
    figures = []
    with (
        broker() as server,
        session(2) as spark,
        tempfile.TemporaryDirectory(prefix="sluice-bench-lake-") as home,
    ):
        fill(server, MICRO_ROWS * MICRO_BATCHES)
        for kind in ("parquet", "delta"):
            told = {"format": kind, "max_offsets_per_trigger": MICRO_ROWS}
            _, steps = export(spark, server, Path(home) / kind, **told)
            warm = steps.seconds[len(steps.seconds) // 4 :]
            p95 = statistics.quantiles(warm, n=20)[-1]
            figures.append(Figure(f"Spark export, micro-batch into {kind}, p95", p95, "s", 1.0, samples=warm))
    return figures
