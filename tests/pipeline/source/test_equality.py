"""The same rows by every way: wire, segment files, the plain decoder, and a client of another make.

The topic holds every codec, nulls, headers, times of the broker, and the gaps that compaction leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from core.records.record import NewRecord
from pipeline.decode import columns as c
from pipeline.decode import decoder as decoders
from pipeline.decode.decoder import plain_batches
from pipeline.source import segments, wire_range
from pipeline.source.batch import BatchReader
from pipeline.source.options import read_options
from pipeline.source.scan import scan
from tests.clients.wire import NOW
from tests.pipeline.topics import Topics

# Compaction and retention look soon, and segments are small.
BROKER_ENVIRONMENT = {
    "SLUICE_COMPACTION_MIN_DIRTY_RATIO": "0.01",
    "SLUICE_COMPACTION_INTERVAL_MS": "200",
    "SLUICE_BACKGROUND_INTERVAL_MS": "50",
    "SLUICE_CHECKPOINT_INTERVAL_MS": "200",
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "200",
}


class Row(NamedTuple):
    """A record as any client gives it; time in ms."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def table(topics: Topics, topic: str, **options: Any) -> pa.Table:
    """The topic by the reader, without Spark around it."""
    given = {**topics.options, "subscribe": topic, "includeHeaders": "true", **options}
    reader = BatchReader(read_options({k: str(v) for k, v in given.items()}, streaming=False))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return pa.Table.from_batches(batches, schema=c.arrow_schema(reader.options.columns))


def rows(found: pa.Table) -> list[Row]:
    """The rows of a table, in order."""
    return sorted(
        Row(
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in found.to_pylist()
    )


def by_librdkafka(topics: Topics, topic: str, partitions: int, count: int) -> list[Row]:
    """The topic by confluent-kafka, which must give as many rows."""
    consumer = Consumer({"bootstrap.servers": topics.broker.kafka, "group.id": "equality"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count, 0.5)
    found += consumer.consume(1, 0.3)
    consumer.close()
    return sorted(
        Row(
            one.partition(), one.offset(), one.timestamp()[1], one.timestamp()[0] - 1, one.key(), one.value(),
            tuple(one.headers() or ()),
        )
        for one in found
    )  # fmt: skip


def everything(start: int, codec: int) -> list[NewRecord]:
    """Records with all that a record may have, and with all that it may lack."""
    return [
        NewRecord(
            key=(None, b"", b"key-%d" % n, bytes(300))[n % 4],
            value=(b"v" * (n % 50), None, b"", b"\xff\x00")[n % 4],
            timestamp=NOW + (-1) ** n * 1000 * n,
            headers=((), (("a", b"1"),), (("é", None), ("a", b""), ("a", bytes(codec))))[n % 3],
        )
        for n in range(start, start + 37)
    ]


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """Two partitions: all codecs in one, the broker's own time in the other topic of that name."""
    with Topics(broker) as topics:
        name = topics.create("everything", partitions=2, segment_bytes="4096")
        for codec in (0, 1, 2, 3, 4, 0):
            topics.write(name, everything(37 * codec, codec), codec=codec)
            topics.write(name, everything(1000 + codec, codec), codec=codec, partition=1)
        return name


WAYS: dict[str, dict[str, Any]] = {
    "wire": {},
    "segments": {"transport": "segments"},
    "small fetches": {"kafka.max.partition.fetch.bytes": 1024},
    "many tasks": {"minPartitions": 40},
    "segments in many tasks": {"transport": "segments", "maxRecordsPerPartition": 11},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_codec_null_header_and_time_is_read_as_another_client_reads_it(
    topics: Topics, topic: str, way: str
) -> None:
    found = rows(table(topics, topic, **WAYS[way]))
    assert len(found) == 2 * 6 * 37
    assert found == by_librdkafka(topics, topic, 2, len(found))


@pytest.mark.parametrize("transport", ["wire", "segments"])
def test_the_plain_decoder_gives_the_same_tables(
    topics: Topics, topic: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = table(topics, topic, transport=transport)
    for module in (wire_range, segments):
        monkeypatch.setattr(module, "decoder", lambda: plain_batches)
    plain = table(topics, topic, transport=transport)
    assert decoders.decoder() is not plain_batches
    assert compiled.combine_chunks().equals(plain.combine_chunks())
    compiled.validate(full=True)


def test_the_brokers_own_times_are_told_as_such(topics: Topics) -> None:
    name = topics.create("own-time", message_timestamp_type="LogAppendTime")
    topics.write(name, ["a", "b"], codec=3)
    found = rows(table(topics, name))
    assert [row.timestamp_type for row in found] == [1, 1]
    assert found == by_librdkafka(topics, name, 1, 2)


def wait_for(what: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_the_gaps_that_compaction_leaves_are_read_over_by_every_way(topics: Topics) -> None:
    name = topics.create("compacted", cleanup_policy="compact", segment_bytes="2048")
    for number in range(40):
        records = [NewRecord(key=b"k%d" % (n % 7), value=b"%d-%d" % (number, n)) for n in range(20)]
        topics.write(name, records, codec=number % 5)
    # Most records are deleted, in batches, between batches and whole segments of them.
    wait_for(lambda: table(topics, name).num_rows < 300)
    wait_for(lambda: len({table(topics, name).num_rows for _ in range(3)}) == 1)
    wire = rows(table(topics, name))
    assert wire[-1].offset == 799
    assert rows(table(topics, name, transport="segments")) == wire
    assert rows(table(topics, name, transport="segments", minPartitions=30)) == wire
    assert by_librdkafka(topics, name, 1, len(wire)) == wire


def test_segments_that_retention_takes_away_while_they_are_read_are_lost_or_read_whole(
    topics: Topics,
) -> None:
    name = topics.create("retained", segment_bytes="2048")
    topics.fill(name, 600, batch=10)
    options = {**topics.options, "subscribe": name, "transport": "segments", "failOnDataLoss": "false"}
    reader = BatchReader(read_options(options, streaming=False))
    (task,) = reader.partitions()
    found = scan(task.ranges, reader.options)
    first = next(found)
    topics.truncate(name, 400)
    wait_for(lambda: not list(topics.broker.data_dir.glob(f"{name}-0/{0:020d}.log")))
    offsets = first.column("offset").to_pylist()
    for batch in found:
        offsets += batch.column("offset").to_pylist()
    # Open files were read to their end, existing ones are read; only deleted records are missing, none is repeated.
    assert offsets == sorted(set(offsets))
    assert set(range(400, 600)) <= set(offsets)
    assert offsets[0] == 0
