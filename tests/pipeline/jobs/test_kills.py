"""The export as a process group that is killed again and again, and not one row lost or twice.

Three kills in CI. By hand: `SLUICE_KILLS=12 python -m pytest tests/pipeline/jobs/test_kills.py`, with
`SLUICE_FORMAT=delta` or `iceberg` for the other tables. When to kill is relative to what the job has done, not to the
clock: at once or up to 0.9 s after a batch began, a task began its first file, a manifest was written, or a batch
was committed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.broker_process import ROOT
from tests.pipeline.lake.rows import read
from tests.pipeline.topics import Topics

KILLS = int(os.environ.get("SLUICE_KILLS", "3"))
FORMAT = os.environ.get("SLUICE_FORMAT", "parquet")
# Four batches for each kill: some kills let a batch or two through.
PARTITIONS, RECORDS, BATCH = 4, 2_000 * KILLS, 2_000
SEED = int(os.environ.get("SLUICE_SEED", "7"))
# A shared machine may need a minute for a JVM, and each batch a few seconds.
PATIENCE_SECONDS = 240.0
# A JVM that is killed after some seconds never earns back what its optimizing compiler costs.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Job:
    """An export in a process group of its own, over one table and one state directory."""

    def __init__(self, home: Path, bootstrap: str) -> None:
        self.table, self.state = home / "table", home / "state"
        self.checkpoint = self.state / "checkpoints" / "kills"
        self._log = home / "log"
        self._command = [
            sys.executable, "-m", "pipeline", "run", "export", "--json", "--once", "--name", "kills",
            "--topic", "kills", "--to", str(self.table), "--state", str(self.state), "--bootstrap", bootstrap,
            "--max-offsets-per-trigger", str(BATCH), "--master", "local[2]",
            "--spark", f"spark.driver.defaultJavaOptions={JAVA}",
        ]  # fmt: skip
        if FORMAT != "parquet":
            self._command += ["--format", FORMAT]
        if FORMAT == "iceberg":
            self._command += ["--table", "lake.orders"]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def files(self) -> Path:
        """Where data files and the journal are."""
        return self.table / "lake" / "orders" if FORMAT == "iceberg" else self.table

    def rows(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row, sorted, as a reader sees it that knows nothing of us."""
        begun = {"parquet": "*.parquet", "delta": "_delta_log/0*", "iceberg": "catalog.db"}[FORMAT]
        if not list(self.table.glob(begun)) or (
            FORMAT == "iceberg" and not list(self.files.glob("metadata/*.json"))
        ):
            return []
        return read(FORMAT, self.table)

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """SIGKILL to all of it: driver, JVM, workers."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, seen: Callable[[], bool]) -> bool:
        """Wait until something is to be seen; False when the job has ended before."""
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not seen():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.002)
        return True

    def log(self) -> str:
        """All that it printed, over all starts."""
        return self._log.read_text()[-10_000:]

    def entries(self, log: str) -> int:
        """How many entries Spark's offset or commit log has."""
        return sum(1 for path in (self.checkpoint / log).glob("*") if path.name.isdigit())

    def manifests(self) -> int:
        """How many batches have a manifest."""
        return len(list(self.files.glob("_sluice/*/0*.json")))

    def staged(self) -> set[Path]:
        """What tasks are writing, or have written."""
        return set(self.files.glob("_sluice/*/staging/*/*.inprogress"))


def _moment(job: Job, name: str) -> Callable[[], bool]:
    """A test for the next event of a kind after now."""
    if name in ("offsets", "commits"):
        before = job.entries(name)
        return lambda: job.entries(name) > before
    if name == "manifest":
        had = job.manifests()
        return lambda: job.manifests() > had
    old = job.staged()
    return lambda: bool(job.staged() - old)


@pytest.mark.timeout(300 + 200 * KILLS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
def test_killed_at_random_moments_not_one_row_is_lost_or_twice(topics: Topics, tmp_path: Path) -> None:
    topics.create("kills", PARTITIONS)
    topics.fill("kills", RECORDS, partitions=PARTITIONS)
    job, choice = Job(tmp_path, topics.broker.kafka), random.Random(SEED)
    kills = 0
    while kills < KILLS:
        moment = choice.choice(["offsets", "staged", "manifest", "commits"])
        seen, pause = _moment(job, moment), choice.choice([0.0, choice.uniform(0, 0.9)])
        job.start()
        if not job.wait_for(seen):
            break
        time.sleep(pause)
        job.kill()
        kills += 1
        # Whoever looks now sees no row twice, and no file that is half there.
        rows = job.rows()
        assert len(rows) == len(set(rows))
    assert kills == KILLS, f"the job was done after {kills} kills: {job.log()}"
    job.start()
    assert job.process is not None
    assert job.process.wait(PATIENCE_SECONDS) == 0, job.log()
    assert job.rows() == [(part, offset) for part in range(PARTITIONS) for offset in range(RECORDS)]
    assert not list(job.table.rglob("*.inprogress"))
    done = json.loads(job.log().splitlines()[-1])
    assert done["type"] == "done"
    for path in job.table.glob("*.parquet"):
        assert pq.read_metadata(path).num_rows == _rows_by_name(path.name)
    assert not list((job.state / "scratch").iterdir()), "scratch directories are left"


def _rows_by_name(name: str) -> int:
    *_, first, last = name.removesuffix(".parquet").split("-")
    return int(last) - int(first) + 1
