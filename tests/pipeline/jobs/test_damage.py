"""Jobs over a batch whose checksum is wrong: it is named, nothing after it is trusted, and the job can continue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.records.record import NewRecord
from pipeline.jobs.stream import JobError
from tests.pipeline.jobs.running import Runner, naive, once
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)
START = 1_700_000_000_000
MINUTE = 60_000
BATCHES, RECORDS = 3, 10
BAD = 1


def _fill(topics: Topics, name: str) -> str:
    """Three batches of ten records, a minute each; the value is JSON, the key its number."""
    topics.create(name)
    for batch in range(BATCHES):
        numbers = range(batch * RECORDS, (batch + 1) * RECORDS)
        topics.write(
            name,
            [
                NewRecord(
                    key=b"%d" % n, value=json.dumps({"n": n}).encode(), timestamp=START + batch * 10 * MINUTE
                )
                for n in numbers
            ],
        )
    return name


@contextmanager
def damaged(topics: Topics, name: str) -> Iterator[None]:
    """A bit of the second batch on the disk is wrong; at the end it is right again."""
    (path,) = (topics.broker.data_dir / f"{name}-0").glob("*.log")
    good = path.read_bytes()
    position = good.rindex(b'{"n": %d}' % ((BAD + 1) * RECORDS - 1))

    def write(byte: int) -> None:
        with path.open("r+b") as file:
            file.seek(position + 2)
            file.write(bytes([byte]))

    write(good[position + 2] ^ 1)
    try:
        yield
    finally:
        write(good[position + 2])


def refused(name: str) -> Any:
    """The error: one line that says where."""
    said = rf"^corrupt batch in topic {name}, partition 0, offset {BAD * RECORDS} [^\n]*its checksum is wrong[^\n]*$"
    return pytest.raises(JobError, match=said)


def test_an_export_keeps_what_it_had_and_continues_when_the_batch_is_whole_again(
    jobs: Runner, topics: Topics
) -> None:
    name = _fill(topics, "damaged-export")
    job = {"topics": [name], "to": jobs.path("t"), "name": "d"}
    with damaged(topics, name):
        for _ in range(2):
            with refused(name):
                jobs.run("export", **job, max_offsets_per_trigger=RECORDS)
            assert naive(jobs.path("t")) == once(name, {0: RECORDS})
    assert jobs.run("export", **job).rows == (BATCHES - 1) * RECORDS
    assert naive(jobs.path("t")) == once(name, {0: BATCHES * RECORDS})


def test_a_batch_that_stays_damaged_can_be_deleted_and_the_gap_is_found(jobs: Runner, topics: Topics) -> None:
    name = _fill(topics, "stays-damaged")
    job = {"topics": [name], "to": jobs.path("t"), "name": "d", "max_offsets_per_trigger": RECORDS}
    with damaged(topics, name):
        with refused(name):
            jobs.run("export", **job)
        topics.truncate(name, (BAD + 1) * RECORDS)
        with pytest.raises(JobError, match=f"Topic {name}, partition 0, offset {BAD * RECORDS} is lost"):
            jobs.run("export", **job)
        assert jobs.run("export", **job, source={"failOnDataLoss": "false"}).rows == RECORDS
    assert naive(jobs.path("t")) == {
        place: 1 for place in once(name, {0: BATCHES * RECORDS}) if place[2] // RECORDS != BAD
    }
    assert jobs.run("verify", lake=jobs.path("t")).problems == [f"{name}-0: the table lacks offsets 10 to 19"]


def test_dedup_and_aggregate_write_nothing_and_then_all(jobs: Runner, topics: Topics) -> None:
    name, clean, sums = _fill(topics, "damaged-flow"), topics.create("flow-clean"), topics.create("flow-sums")
    flow = {"topics": [name]}
    windows = {"schema": "n BIGINT", "compute": ["count(*) AS n"], "late": "1 minute"}
    with damaged(topics, name):
        with refused(name):
            jobs.run("dedup", **flow, to=clean)
        with refused(name):
            jobs.run("aggregate", **flow, **windows, to=sums)
        assert topics.records(clean) == topics.records(sums) == []
    jobs.run("dedup", **flow, to=clean)
    jobs.run("aggregate", **flow, **windows, to=sums)
    assert sorted(int(one.key or b"-1") for one in topics.records(clean)) == list(range(BATCHES * RECORDS))
    # The last window is still open.
    assert [json.loads(one.value or b"")["n"] for one in topics.records(sums)] == [RECORDS, RECORDS]


def test_snapshot_and_usage_fail_as_a_whole_and_the_old_snapshot_stays(jobs: Runner, topics: Topics) -> None:
    name = _fill(topics, "damaged-whole")
    snapshot = {"topics": [name], "to": jobs.path("t")}
    assert jobs.run("snapshot", **snapshot).rows == BATCHES * RECORDS
    before = Path(jobs.path("t")).resolve()
    with damaged(topics, name):
        with refused(name):
            jobs.run("snapshot", **snapshot)
        with refused(name):
            jobs.run("usage", topics=[name])
    assert Path(jobs.path("t")).resolve() == before
    assert jobs.run("usage", topics=[name]).rows == BATCHES * RECORDS


def test_verify_and_replay_read_topics_too(jobs: Runner, topics: Topics) -> None:
    name, target = _fill(topics, "damaged-back"), topics.create("back-target")
    jobs.run("export", topics=[name], to=jobs.path("t"))
    replay = {"lake": jobs.path("t"), "topic": target}
    assert jobs.run("replay", **replay, until="2023-11-14T22:30Z").rows == 2 * RECORDS
    # What was replayed is read back, to continue after it; here the target is damaged.
    with damaged(topics, name), refused(name):
        jobs.run("verify", lake=jobs.path("t"), dead_letter=name)
    (path,) = (topics.broker.data_dir / f"{target}-0").glob("*.log")
    good = path.read_bytes()
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    with pytest.raises(JobError, match=f"corrupt batch in topic {target}, partition 0, offset 0 "):
        jobs.run("replay", **replay)
    assert len(path.read_bytes()) == len(good), "nothing was written after what cannot be read"
    path.write_bytes(good)
    assert jobs.run("replay", **replay).rows == RECORDS
    assert sorted(int(one.key or b"-1") for one in topics.records(target)) == list(range(BATCHES * RECORDS))
