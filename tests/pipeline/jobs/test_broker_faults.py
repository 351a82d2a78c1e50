"""Jobs whose broker dies under them: one that comes back costs time and no record, one that stays away is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from core.records.record import NewRecord
from pipeline.jobs.stream import JobError
from tests.pipeline.jobs.running import Runner, naive, once
from tests.pipeline.topics import Topics
from tests.pipeline.tripwire import Tripwire

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)
PARTITIONS, RECORDS, SIZE = 2, 10_000, 150
# In the middle of what a job reads.
HALF = PARTITIONS * RECORDS * SIZE // 2


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tripwire]:
    """A broker with a tripwire before it, and a topic `many` of 3 MB."""
    made = Tripwire(tmp_path_factory.mktemp("tripwire") / "data")
    with Topics(made.broker) as topics:
        topics.create("many", PARTITIONS)
        topics.create("few")
        for partition in range(PARTITIONS):
            for start in range(0, RECORDS, 500):
                keyed = [
                    NewRecord(key=b"%d/%d" % (partition, n), value=b"v" * SIZE)
                    for n in range(start, start + 500)
                ]
                topics.write("many", keyed, partition=partition)
    yield made
    made.close()


@pytest.fixture
def faulty(spark: SparkSession, wire: Tripwire, tmp_path: Path) -> Iterator[Runner]:
    """Runs jobs against it."""
    with Topics(wire.broker) as topics:
        yield Runner(spark, topics, tmp_path)


def _all() -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), RECORDS)


def test_a_stream_reads_on_where_it_was_when_the_broker_is_back(faulty: Runner, wire: Tripwire) -> None:
    wire.arm(HALF, wire.restart)
    job = {"bootstrap": wire.address, "topics": ["many"], "to": faulty.path("t")}
    assert faulty.run("export", **job, max_offsets_per_trigger=RECORDS).rows == PARTITIONS * RECORDS
    assert wire.tripped.is_set()
    assert naive(faulty.path("t")) == once("many", _all())


def test_batch_jobs_do_as_well(faulty: Runner, wire: Tripwire) -> None:
    wire.arm(HALF, wire.restart)
    assert faulty.run("usage", bootstrap=wire.address, topics=["many"]).rows == PARTITIONS * RECORDS
    assert wire.tripped.is_set()
    wire.arm(HALF, wire.restart)
    job = {"bootstrap": wire.address, "topics": ["many"], "to": faulty.path("s")}
    assert faulty.run("snapshot", **job).rows == PARTITIONS * RECORDS
    assert wire.tripped.is_set()


def test_a_replay_writes_each_record_once(faulty: Runner, wire: Tripwire) -> None:
    faulty.run("export", bootstrap=wire.address, topics=["many"], to=faulty.path("t"))
    wire.arm(HALF, wire.restart)
    with Topics(wire.broker) as topics:
        topics.create("again", PARTITIONS)
    job = {"bootstrap": wire.address, "lake": faulty.path("t"), "topic": "again", "keep_partitions": True}
    assert faulty.run("replay", **job).rows == PARTITIONS * RECORDS
    assert wire.tripped.is_set()
    with Topics(wire.broker) as topics:
        for partition in range(PARTITIONS):
            # Once, and in order: the producer is idempotent.
            keys = [record.key for record in topics.records("again", partition)]
            assert keys == [b"%d/%d" % (partition, n) for n in range(RECORDS)]


def test_a_broker_that_stays_away_ends_the_job_in_one_line_and_nothing_is_lost_or_twice(
    faulty: Runner, wire: Tripwire
) -> None:
    job = {"bootstrap": wire.address, "topics": ["many"], "to": faulty.path("t"), "name": "away"}
    # Small fetches: else the first batch would be given all that the second one asks for.
    impatient = {"kafka.default.api.timeout.ms": "1000", "kafka.max.partition.fetch.bytes": "32768"}
    wire.arm(HALF, wire.broker.kill)
    with pytest.raises(JobError, match=r"^[^\n]*the broker at 127.0.0.1:\d+[^\n]*$"):
        faulty.run("export", **job, source=impatient, max_offsets_per_trigger=RECORDS // 2)
    assert wire.tripped.is_set()
    wire.broker.start()
    done = faulty.run("export", **job)
    assert 0 < done.rows < PARTITIONS * RECORDS
    assert naive(faulty.path("t")) == once("many", _all())
