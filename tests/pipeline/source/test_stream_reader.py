"""The stream reader by itself: what it answers to each of Spark's questions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from pipeline.source.options import read_options
from pipeline.source.stream import StreamReader
from pipeline.wire.cluster import Cluster, UnknownTopicError
from pipeline.wire.errors import DataLossError
from pipeline.wire.groups import committed
from tests.pipeline.topics import Topics

EVERYTHING = ReadAllAvailable()


def reader(topics: Topics, topic: str | None = None, **options: Any) -> StreamReader:
    """The reader of a stream from the beginning of its topics."""
    given = {**topics.options, "startingOffsets": "earliest", **options} | (
        {"subscribe": topic} if topic else {}
    )
    return StreamReader(read_options({k: str(v) for k, v in given.items()}, streaming=True))


def ranges(made: StreamReader, start: Any, end: Any) -> list[tuple[str, int, int, int]]:
    """What the tasks between two offsets read."""
    return [tuple(one) for task in made.partitions(start, end) for one in task.ranges]  # type: ignore[attr-defined]


def test_offsets_are_in_sparks_shape_with_partitions_in_order_of_number(topics: Topics) -> None:
    name = topics.create("shape", partitions=11)
    topics.write(name, ["a"], partition=10)
    made = reader(topics, name)
    start = made.initialOffset()
    assert list(start[name]) == [str(number) for number in range(11)]
    end = made.latestOffset(start, EVERYTHING)
    assert end[name] == {**start[name], "10": 1}
    assert made.reportLatestOffset() == end
    assert ranges(made, start, end) == [(name, 10, 0, 1)]
    assert made.partitions(end, end) == []
    made.stop()


def test_a_stream_that_begins_at_the_end_sees_what_comes(topics: Topics) -> None:
    name = topics.create("tail")
    topics.write(name, ["a", "b"])
    made = reader(topics, name, startingOffsets="latest")
    start = made.initialOffset()
    assert start == {name: {"0": 2}}
    assert made.latestOffset(start, EVERYTHING) == start
    topics.write(name, ["c"])
    assert made.latestOffset(start, EVERYTHING) == {name: {"0": 3}}
    made.stop()


def test_limits_hold_unless_the_trigger_wants_everything(topics: Topics) -> None:
    name = topics.create("limits")
    topics.fill(name, 100)
    made = reader(topics, name, maxOffsetsPerTrigger=30)
    start, limit = made.initialOffset(), made.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert made.latestOffset(start, limit) == {name: {"0": 30}}
    assert made.reportLatestOffset() == {name: {"0": 100}}
    assert made.latestOffset(start, EVERYTHING) == {name: {"0": 100}}
    made.stop()


def test_a_batch_waits_for_enough_offsets_or_for_the_longest_delay(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("pipeline.source.stream.time.monotonic", lambda: now[0])
    name = topics.create("enough")
    topics.fill(name, 5)
    made = reader(topics, name, minOffsetsPerTrigger=10, maxTriggerDelay="5m")
    start, limit = made.initialOffset(), made.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = made.latestOffset(start, limit)
    assert first == {name: {"0": 5}}, "the first batch does not wait"
    topics.fill(name, 5)
    assert made.latestOffset(first, limit) == first
    now[0] += 299
    assert made.latestOffset(first, limit) == first
    now[0] += 1
    second = made.latestOffset(first, limit)
    assert second == {name: {"0": 10}}
    topics.fill(name, 10)
    assert made.latestOffset(second, limit) == {name: {"0": 20}}, "enough need not wait"
    made.stop()


def test_available_now_reads_what_was_there_when_it_began_and_no_more(topics: Topics) -> None:
    name = topics.create("now")
    topics.fill(name, 10)
    made = reader(topics, name, minOffsetsPerTrigger=50)
    start, limit = made.initialOffset(), made.getDefaultReadLimit()
    made.prepareForTriggerAvailableNow()
    topics.fill(name, 10)
    topics.add_partitions(name, 2)
    end = made.latestOffset(start, limit)
    assert end == {name: {"0": 10}}
    assert made.latestOffset(end, limit) == end
    ahead = {name: {"0": 15}}
    assert made.latestOffset(ahead, limit) == ahead, "a query that is further already ends"
    made.stop()


def test_new_topics_of_a_pattern_are_read_from_their_beginning(topics: Topics) -> None:
    topics.create("events-a")
    made = reader(topics, subscribePattern="events-.*")
    start = made.initialOffset()
    topics.create("events-b")
    topics.write("events-b", ["x", "y"])
    end = made.latestOffset(start, EVERYTHING)
    assert end == {"events-a": {"0": 0}, "events-b": {"0": 2}}
    assert ranges(made, start, end) == [("events-b", 0, 0, 2)]
    made.stop()


@pytest.mark.parametrize("strict", [True, False])
def test_topics_that_went_and_partitions_that_went_back_are_losses(topics: Topics, strict: bool) -> None:
    name = topics.create(f"back-{strict}".lower())
    topics.write(name, ["a"])
    made = reader(topics, name, failOnDataLoss=str(strict).lower())
    before = {name: {"0": 7}}
    assert made.latestOffset(before, EVERYTHING) == {name: {"0": 1}}
    gone = {"went": {"0": 3}, name: {"0": 1}}
    if strict:
        with pytest.raises(DataLossError, match=f"Topic {name}, partition 0 went back from 7 to 1"):
            made.partitions(before, {name: {"0": 1}})
        with pytest.raises(
            DataLossError, match=r"Partitions went-0 do not exist any more.*failOnDataLoss=false"
        ):
            made.latestOffset(gone, EVERYTHING)
    else:
        assert ranges(made, before, {name: {"0": 1}}) == [(name, 0, 0, 1)]
        assert made.latestOffset(gone, EVERYTHING) == {**gone}
    never = reader(topics, "never")
    with pytest.raises(UnknownTopicError, match="the cluster has no topic 'never'"):
        never.initialOffset()
    never.stop()
    made.stop()


def test_progress_is_committed_and_a_commit_that_fails_is_no_failure(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    name = topics.create("progress")
    made = reader(topics, name, commitGroup="nightly")
    made.commit({name: {"0": 5}})
    with Cluster(made.options.settings) as cluster:
        assert committed(cluster, "nightly", {name: [0]}) == {(name, 0): 5}
    made.commit({"no-such-topic": {"0": 5}})
    assert "was not committed to group nightly" in caplog.text
    made.stop()


def test_what_is_sent_to_workers_holds_no_connection(topics: Topics) -> None:
    name = topics.create("pickled")
    made = reader(topics, name)
    made.initialOffset()
    copy = pickle.loads(pickle.dumps(made))
    assert copy.options == made.options
    assert copy._cluster is None
    made.stop()
