"""Run jobs in the tests' session, and read tables like a reader that does not know Sluice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.jobs import registry
from pipeline.jobs.report import Outcome, Progress
from tests.pipeline.topics import Topics


class Notes:
    """A report that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[Progress] = []

    def note(self, text: str) -> None:
        """Remember it."""
        self.notes.append(text)

    def progress(self, progress: Progress) -> None:
        """Remember it."""
        self.steps.append(progress)

    def done(self, outcome: Outcome) -> None:
        """Nothing: `Runner.run` answers it."""


class Runner:
    """Runs jobs against a broker, with a state directory of the test's own."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path) -> None:
        self.spark, self.topics, self.home = spark, topics, home
        self.report = Notes()

    def run(self, kind: str, **values: Any) -> Outcome:
        """Run a job to its end; what follows topics does what is there."""
        values = {"bootstrap": self.topics.broker.kafka, "state": str(self.home / "state"), **values}
        if kind in ("export", "aggregate", "dedup"):
            values = {"once": True, **values}
        return registry.run(self.spark, registry.read_settings(kind, values), self.report)

    def path(self, name: str) -> str:
        """A path below the test's directory."""
        return str(self.home / name)


def naive(path: str | Path, prefix: str = "") -> Counter[tuple[str, int, int]]:
    """How often each (topic, partition, offset) is in a directory of Parquet files, as pyarrow reads it."""
    names = [prefix + name for name in ("topic", "partition", "offset")]
    table = pq.read_table(path, columns=names)
    return Counter(zip(*[table[name].to_pylist() for name in names], strict=True))


def once(topic: str, counts: dict[int, int]) -> Counter[tuple[str, int, int]]:
    """What `naive` answers if each partition has that number of records, each once."""
    return Counter({(topic, part, offset): 1 for part, count in counts.items() for offset in range(count)})
