"""Ranges over the wire when things go wrong: restarts, truncation, corrupt bytes, silence. Without Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Producer

from pipeline.source.batch import BatchReader
from pipeline.source.options import OptionError, read_options
from pipeline.source.planning import OffsetRange
from pipeline.source.scan import scan
from pipeline.wire.cluster import UnknownTopicError
from pipeline.wire.errors import CorruptDataError, DataLossError, WireError
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import Topics


def reader(topics: Topics, topic: str, **options: Any) -> BatchReader:
    """The reader of a topic."""
    given = {**topics.options, "subscribe": topic, "columns": "offset,value", **options}
    return BatchReader(read_options({k: str(v) for k, v in given.items()}, streaming=False))


def offsets(found: Any) -> list[int]:
    """The offsets of Arrow batches."""
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_restarts_in_mid_read_costs_time_and_no_record(
    topics: Topics, broker: BrokerProcess, how: str
) -> None:
    name = topics.create(f"restart-{how}")
    topics.fill(name, 5000, batch=100)
    one = reader(topics, name, **{"kafka.max.partition.fetch.bytes": 20_000})
    (task,) = one.partitions()
    found = scan(task.ranges, one.options)
    seen = offsets([next(found), next(found)])
    getattr(broker, how)()
    later = threading.Timer(0.3, broker.start)
    later.start()
    seen += offsets(found)
    later.join()
    assert seen == list(range(5000))


@pytest.mark.parametrize("transport", ["wire", "segments"])
def test_records_that_went_before_they_were_read_are_an_error_or_left_out(
    topics: Topics, transport: str
) -> None:
    name = topics.create(f"lost-{transport}", segment_bytes="2048")
    topics.fill(name, 100, batch=10)
    strict = reader(topics, name, startingOffsets=f'{{"{name}":{{"0":0}}}}', transport=transport)
    lenient = reader(topics, name, failOnDataLoss="false", transport=transport)
    (task,) = strict.partitions()
    topics.truncate(name, 35)
    with pytest.raises(
        DataLossError, match=r"partition 0: offsets \(0, 100\) were asked for, the log has \(35, 100\)"
    ):
        strict.partitions()
    if transport == "wire":
        with pytest.raises(
            DataLossError, match=f"Topic {name}, partition 0, offset 0 is lost.*failOnDataLoss"
        ):
            offsets(scan(task.ranges, strict.options))
        assert offsets(scan(task.ranges, lenient.options)) == list(range(35, 100))
    (later,) = lenient.partitions()
    assert offsets(scan(later.ranges, lenient.options)) == list(range(35, 100))


def test_a_deleted_topic_is_told_apart_from_an_empty_one(topics: Topics) -> None:
    name = topics.create("empty")
    assert reader(topics, name).partitions() == []
    with pytest.raises(UnknownTopicError, match="the cluster has no topic 'gone'"):
        reader(topics, "gone").partitions()
    ranges = (OffsetRange("gone", 0, 0, 5),)
    with pytest.raises(DataLossError, match="Topic gone, partition 0, offset 0 is lost"):
        offsets(scan(ranges, reader(topics, name).options))
    assert offsets(scan(ranges, reader(topics, name, failOnDataLoss="false").options)) == []


@pytest.mark.parametrize("transport", ["wire", "segments"])
def test_a_flipped_bit_on_the_disk_is_named_by_topic_partition_and_offset(
    topics: Topics, transport: str
) -> None:
    name = topics.create(f"flipped-{transport}", segment_bytes="2048")
    topics.fill(name, 60, batch=10)
    files = sorted((topics.broker.data_dir / f"{name}-0").glob("*.log"))
    assert len(files) > 2
    data = bytearray(files[1].read_bytes())
    data[len(data) - 20] ^= 1
    files[1].write_bytes(data)
    one = reader(topics, name, transport=transport)
    (task,) = one.partitions()
    with pytest.raises(
        CorruptDataError,
        match=rf"corrupt batch in topic {name}, partition 0, offset \d+.*its checksum is wrong",
    ):
        offsets(scan(task.ranges, one.options))


def test_bounds_by_offset_and_by_time_are_as_sparks_kafka_source_has_them(topics: Topics) -> None:
    from core.records.record import NewRecord

    name = topics.create("bounds")
    topics.write(name, [NewRecord(value=b"v", timestamp=1_700_000_000_000 + n) for n in range(20)])

    def read(**options: Any) -> list[int]:
        one = reader(topics, name, **options)
        return [o for task in one.partitions() for o in offsets(scan(task.ranges, one.options))]  # type: ignore[attr-defined]

    assert read(startingOffsets='{"bounds":{"0":5}}', endingOffsets='{"bounds":{"0":9}}') == [5, 6, 7, 8]
    assert read(startingOffsets='{"bounds":{"0":-2}}', endingOffsets='{"bounds":{"0":-1}}') == list(range(20))
    assert read(startingTimestamp=1_700_000_000_017) == [17, 18, 19]
    assert read(endingTimestamp=1_700_000_000_002) == [0, 1]
    assert read(endingTimestamp=1_800_000_000_000) == list(range(20))
    late = {"startingTimestamp": 1_800_000_000_000}
    assert read(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(OptionError, match="partition 0 has no record at or after 1800000000000"):
        read(**late)
    with pytest.raises(
        OptionError, match=r"must name every partition that is read.*it lacks bounds-0; it has"
    ):
        read(startingOffsets='{"bounds":{"1":5}}')
    with pytest.raises(OptionError, match="start 9 is above end 5"):
        read(startingOffsets='{"bounds":{"0":9}}', endingOffsets='{"bounds":{"0":5}}')


def test_topics_are_chosen_by_pattern_and_partitions_by_assignment(topics: Topics) -> None:
    for name in ("metrics-a", "metrics-b", "other"):
        topics.create(name, partitions=2)
        topics.write(name, ["v"], partition=1)
    base = topics.options

    def read(**options: str) -> list[tuple[str, int]]:
        one = BatchReader(read_options({**base, **options}, streaming=False))
        return [(r.topic, r.partition) for task in one.partitions() for r in task.ranges]  # type: ignore[attr-defined]

    assert read(subscribePattern="metrics-.*") == [("metrics-a", 1), ("metrics-b", 1)]
    assert read(subscribePattern="metrics") == []
    assert read(assign='{"other":[1],"metrics-a":[0]}') == [("other", 1)]
    with pytest.raises(OptionError, match=r"assign: topic other lacks partitions \[2\]; it has 2"):
        read(assign='{"other":[2]}')


def test_files_that_are_not_on_this_host_are_an_error_in_words(topics: Topics) -> None:
    name = topics.create("elsewhere")
    topics.write(name, ["a"])
    one = reader(topics, name, transport="segments", dataDir="/no/such/directory")
    (task,) = one.partitions()
    with pytest.raises(OptionError, match="transport=segments: /no/such/directory/elsewhere-0 is not there"):
        offsets(scan(task.ranges, one.options))


def test_a_broker_that_shows_nothing_below_its_own_high_watermark_is_not_waited_for_without_end(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import limits

    name = topics.create("short")
    topics.write(name, ["a"])
    monkeypatch.setattr(limits, "FETCH_WAIT_MS", 1)
    with pytest.raises(WireError, match="topic short, partition 0: nothing comes at offset 1, though"):
        offsets(scan((OffsetRange(name, 0, 0, 5),), reader(topics, name).options))


def test_committed_reads_leave_out_open_and_aborted_transactions(topics: Topics) -> None:
    name = topics.create("transactions", segment_bytes="2048")
    producers = [
        Producer({"bootstrap.servers": topics.broker.kafka, "transactional.id": f"spark-{i}", "linger.ms": 0})
        for i in range(3)
    ]
    for producer in producers:
        producer.init_transactions(30)

    def write(number: int, *values: str) -> None:
        for value in values:
            producers[number].produce(name, value.encode() * 50)
        assert producers[number].flush(30) == 0

    for _ in range(10):
        for producer in producers[:2]:
            producer.begin_transaction()
        write(0, "c")
        write(1, "a", "a")
        topics.write(name, ["plain"])
        write(0, "c")
        producers[1].abort_transaction(30)
        producers[0].commit_transaction(30)
    producers[2].begin_transaction()
    write(2, "open")
    topics.write(name, ["plain, after it"])

    def read(**options: Any) -> list[bytes]:
        one = reader(topics, name, **{"kafka.max.partition.fetch.bytes": 1024, **options})
        found = [batch for task in one.partitions() for batch in scan(task.ranges, one.options)]
        return [value for batch in found for value in batch.column("value").to_pylist()]

    committed = [b"c" * 50, b"plain", b"c" * 50] * 10
    for transport in ("wire", "segments"):
        assert read(transport=transport) == committed
        assert read(transport=transport, minPartitions=7) == committed
        every = read(transport=transport, **{"kafka.isolation.level": "read_uncommitted"})
        assert every[-2:] == [b"open" * 50, b"plain, after it"]
        assert every.count(b"a" * 50) == 20
    producers[2].abort_transaction(30)
    assert read() == read(transport="segments") == [*committed, b"plain, after it"]
