"""Jobs that are killed, one for each sink: how they are started, how far they are, what a naive reader finds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.state import checkpoint, standing
from pipeline.sink.marks import HEADER
from tests.broker_process import ROOT
from tests.pipeline.class_archive import java_options
from tests.pipeline.committed import committed
from tests.pipeline.lake.rows import read
from tests.pipeline.topics import Topics

PARTITIONS = 4
# A shared machine may need a minute for a JVM, and each batch a few seconds.
PATIENCE_SECONDS = 600.0
POLL_SECONDS = 0.002
NAME = "kills"
Place = tuple[int, int]


class Held(NamedTuple):
    """One partition in a sink: rows, different offsets, the least and the greatest."""

    rows: int
    distinct: int
    least: int
    greatest: int


def held(places: Iterable[Place]) -> dict[int, Held]:
    """What (partition, offset) of every row come to, by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in places:
        found.setdefault(partition, []).append(offset)
    return {
        part: Held(len(all_), len(set(all_)), min(all_), max(all_)) for part, all_ in sorted(found.items())
    }


class Victim:
    """A job in a session of its own, over one state directory, that is started again and again."""

    sink = ""
    # Records of one micro-batch, over all partitions.
    batch = 2_000
    steps: tuple[str, ...] = ("offsets", "commits")

    def __init__(self, home: Path, topics: Topics) -> None:
        self.home, self.topics = home, topics
        self.source, self.target = f"{self.sink}-in", f"{self.sink}-out"
        self.state = home / "state"
        self.checkpoint = checkpoint(self.state, NAME)
        self._log = home / "log"
        self.process: subprocess.Popen[bytes] | None = None

    # --- its life ------------------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """How it is started."""
        raise NotImplementedError

    def prepare(self, fill: Callable[[], None]) -> None:
        """Whatever must be there before the first start; `fill` writes all that the rounds need."""

    def start(self) -> None:
        """Start it."""
        self.state.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self, *, orphans: bool) -> bool:
        """SIGKILL to its process group, and unless `orphans` to all others that it began; False if it had ended.

        Orphans end by themselves, since their driver has ended; but the next start finds them still at work.
        """
        assert self.process is not None
        if self.process.poll() is not None:
            assert self.process.returncode == 0, self.log()
            return False
        others = [] if orphans else psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGKILL)
        for other in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                other.kill()
        self.process.wait()
        return True

    def finish(self) -> None:
        """Let it come to its end, which must be a good one."""
        assert self.process is not None
        try:
            assert self.process.wait(PATIENCE_SECONDS) == 0, self.log()
        finally:
            self.kill(orphans=False)

    def wait_for_steps(self, step: str, steps: int) -> bool:
        """Wait until this many steps of a kind were made. Return False if it has ended before."""
        assert self.process is not None
        seen, deadline = self.watch(step), time.monotonic() + PATIENCE_SECONDS
        while seen() < steps:
            if self.process.poll() is not None:
                assert self.process.returncode == 0, self.log()
                return False
            if time.monotonic() > deadline:
                self.kill(orphans=False)
                raise AssertionError(f"no {step}: {self.log()}")
            time.sleep(POLL_SECONDS)
        return True

    def watch(self, step: str) -> Callable[[], int]:
        """A count of the steps of a kind from now on."""
        before = self._entries(step)
        return lambda: self._entries(step) - before

    def _entries(self, log: str) -> int:
        return sum(1 for path in (self.checkpoint / log).glob("*") if path.name.isdigit())

    def done(self) -> dict[int, int]:
        """Where the job's commits stand, by partition."""
        offsets = standing(self.checkpoint).offsets.get(self.source, {})
        return {int(partition): offset for partition, offset in offsets.items()}

    def log(self) -> str:
        """The end of all that it printed, over all starts."""
        return self._log.read_text(errors="replace")[-10_000:]

    # --- its sink ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What must hold right after a kill."""

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """Return what a naive reader finds in the end, and the number of duplicates. Raises AssertionError."""
        raise NotImplementedError

    def verify(self) -> None:
        """The same as Spark sees it, where there is a table."""


def _job(kind: str, victim: Victim, *flags: str) -> list[str]:
    return [
        sys.executable, "-m", "pipeline", "run", kind, "--json", "--name", NAME, "--state", str(victim.state),
        "--bootstrap", victim.topics.broker.kafka, "--master", "local[2]",
        "--spark", f"spark.driver.defaultJavaOptions={java_options()}", *flags,
    ]  # fmt: skip


class Export(Victim):
    """`sluice spark run export` into a table: not one row lost or twice, at any moment."""

    steps = ("offsets", "staged", "manifest", "commits")

    def __init__(self, home: Path, topics: Topics) -> None:
        super().__init__(home, topics)
        self.table = home / "table"
        self.files = self.table / "lake" / "orders" if self.sink == "iceberg" else self.table

    def _table(self) -> list[str]:
        return ["--format", self.sink, *(["--table", "lake.orders"] if self.sink == "iceberg" else [])]

    def command(self) -> list[str]:
        """An export of what is there."""
        flags = ["--topic", self.source, "--to", str(self.table), "--once", *self._table()]
        return _job("export", self, *flags, "--max-offsets-per-trigger", str(self.batch))

    def watch(self, step: str) -> Callable[[], int]:
        """Beside Spark's logs: files that tasks begin, and manifests."""
        patterns = {"staged": "_sluice/*/staging/*/*.inprogress", "manifest": "_sluice/*/0*.json"}
        if step not in patterns:
            return super().watch(step)
        before = set(self.files.glob(patterns[step]))
        seen: set[Path] = set()

        def count() -> int:
            seen.update(set(self.files.glob(patterns[step])) - before)
            return len(seen)

        return count

    def rows(self) -> list[Place]:
        """(partition, offset) of every row."""
        begun = {
            "parquet": "*.parquet", "delta": "_delta_log/0*.json", "iceberg": "lake/orders/metadata/*.json",
        }  # fmt: skip
        return read(self.sink, self.table) if list(self.table.glob(begun[self.sink])) else []

    def look(self) -> None:
        """A reader sees no duplicate row now, and no incomplete file."""
        rows = self.rows()
        assert len(rows) == len(set(rows)), held(rows)

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """Every row once, no orphan, and each file holds what its name says."""
        found = held(self.rows())
        assert found == wanted
        assert not list(self.table.rglob("*.inprogress")), "staged files are left"
        on_disk = {path: pq.read_metadata(path).num_rows for path in self.table.rglob("*.parquet")}
        assert sum(on_disk.values()) == sum(one.rows for one in wanted.values()), "orphans are left"
        for path, count in on_disk.items():
            first, last = path.name.removesuffix(".parquet").split("-")[
                -2 if self.sink == "parquet" else -3 :
            ][:2]
            assert count == int(last) - int(first) + 1, path
        assert not list((self.state / "scratch").iterdir()), "scratch directories are left"
        return found, 0

    def verify(self) -> None:
        """The job `verify`: Spark counts the table's rows, and compares them with the brokers' offsets."""
        flags = ["--lake", str(self.table), *self._table(), "--complete"]
        done = subprocess.run(
            _job("verify", self, *flags), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class ToParquet(Export):
    """Parquet files and nothing else."""

    sink = "parquet"


class ToDelta(Export):
    """Delta, committed by delta-rs."""

    sink = "delta"


class ToIceberg(Export):
    """Iceberg, committed by pyiceberg."""

    sink = "iceberg"


class SparkParquet(Victim):
    """The control: Spark's own Parquet sink, read without `_spark_metadata`."""

    sink = "spark"
    # A batch whose write has not begun cannot be a duplicate: only kills in mid-write prove something.
    steps = ("files",)

    def watch(self, step: str) -> Callable[[], int]:
        """Files that tasks began: of the third one, some are whole."""
        before = set((self.home / "table").glob("*.parquet"))
        return lambda: len(set((self.home / "table").glob("*.parquet")) - before)

    def command(self) -> list[str]:
        """A stream into a directory."""
        child = [sys.executable, "-m", "tests.pipeline.children", "spark-parquet", self.topics.broker.kafka]
        return [*child, self.source, str(self.home / "table"), str(self.checkpoint), str(self.batch)]

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """Nothing is lost. What is twice is counted; files that a death left half written are passed over."""
        rows: list[Place] = []
        for path in (self.home / "table").glob("*.parquet"):
            with contextlib.suppress(pa.ArrowInvalid):
                table = pq.read_table(path, columns=["partition", "offset"])
                rows += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        found = held(rows)
        assert {part: one[1:] for part, one in found.items()} == {
            part: one[1:] for part, one in wanted.items()
        }
        return found, len(rows) - len(set(rows))


class ToTopic(Victim):
    """A stream from topic to topic: every row, and what is twice has the same mark."""

    sink = "topic"
    batch = 800

    def prepare(self, fill: Callable[[], None]) -> None:
        """The topic that is written."""
        self.topics.create(self.target, PARTITIONS)

    def command(self) -> list[str]:
        """The sink of `writeStream`."""
        child = [sys.executable, "-m", "tests.pipeline.children", "copy", self.topics.broker.kafka]
        return [*child, self.source, self.target, str(self.checkpoint), str(self.batch)]

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """The first of each mark are the rows of the source, in its order."""
        rows = 0
        for partition in wanted:
            by_mark: dict[bytes, bytes] = {}
            for record in self.topics.records(self.target, partition):
                rows += 1
                mark, value = dict(record.headers)[HEADER] or b"", record.value or b""
                assert by_mark.setdefault(mark, value) == value, f"{mark!r} is two different rows"
            assert list(by_mark.values()) == [
                record.value for record in self.topics.records(self.source, partition)
            ], f"partition {partition}: rows are missing, or in another order"
        return wanted, rows - sum(one.rows for one in wanted.values())


class ToTopicOnce(ToTopic):
    """The same with delivery=exactly-once: every row once, also right after a kill."""

    sink = "exactly-once"

    def command(self) -> list[str]:
        """The sink of `writeStream`, told of the HTTP API."""
        return [*super().command(), self.topics.broker.http]

    def _values(self, topic: str) -> dict[int, list[bytes]]:
        return committed(self.topics.broker.kafka, topic, PARTITIONS)

    def look(self) -> None:
        """A reader of committed records sees the first rows of the source, in its order."""
        wanted = self._values(self.source)
        for partition, values in self._values(self.target).items():
            assert values == wanted[partition][: len(values)], f"partition {partition}"

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """The rows of the source, in its order, and nothing that is still open."""
        found = self._values(self.target)
        assert found == self._values(self.source)
        assert {part: len(values) for part, values in found.items()} == {
            part: one.rows for part, one in wanted.items()
        }
        return wanted, 0


class Replayed(Victim):
    """A table → a topic at a rate: what was written before is read back, and not written again."""

    sink = "replay"
    steps = ("records",)
    # So that it takes some seconds, and the sink's batches arrive one by one.
    rate = 20_000

    def prepare(self, fill: Callable[[], None]) -> None:
        """A table to replay, and a topic."""
        self.topics.create(self.target, PARTITIONS)
        fill()
        export = _job("export", self, "--topic", self.source, "--to", str(self.home / "table"), "--once")
        done = subprocess.run(export, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def done(self) -> dict[int, int]:
        """The table was made once: nothing more is needed of the source."""
        return {}

    def command(self) -> list[str]:
        """The replay, at its rate."""
        return _job(
            "replay", self, "--lake", str(self.home / "table"), "--topic", self.target, "--rate", str(self.rate),
            "--keep-partitions",
        )  # fmt: skip

    def _written(self) -> int:
        ends = (self.topics.wire.list_offset(self.target, -1, partition=part) for part in range(PARTITIONS))
        return sum(end.offset for end in ends)

    def watch(self, step: str) -> Callable[[], int]:
        """Thousands of records that arrived."""
        before = self._written()
        return lambda: (self._written() - before) // 1_000

    def check(self, wanted: dict[int, Held]) -> tuple[dict[int, Held], int]:
        """Each origin once, with its value: orphans have ended before the next start reads back what is there."""
        counts: Counter[Place] = Counter()
        for partition in wanted:
            values = [record.value for record in self.topics.records(self.source, partition)]
            for record in self.topics.records(self.target, partition):
                offset = int(dict(record.headers)["sluice.offset"] or b"-1")
                counts[partition, offset] += 1
                assert record.value == values[offset]
        found = held(counts)
        assert found == wanted
        twice = counts.total() - len(counts)
        assert not twice, f"{twice} records are duplicates"
        return found, twice


SINKS: dict[str, type[Victim]] = {
    kind.sink: kind for kind in (ToParquet, ToDelta, ToIceberg, SparkParquet, ToTopic, ToTopicOnce, Replayed)
}
