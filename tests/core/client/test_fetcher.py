"""The fetcher against an embedded broker: shared fetches, following, transactions, deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from core.broker.broker import Broker
from core.client.cluster import ClusterClient
from core.client.fetcher import Fetcher, Stretch
from core.client.settings import ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.records.aborted import AbortedRecords
from core.records.batch import batches, decode_all, read_records
from core.records.record import NewRecord
from core.types import LogOffsets, TopicPartition
from tests.core.client.conftest import Served
from tests.core.transactional_log import TransactionalLog

TP = TopicPartition("t", 0)
MIB = 2**20
FETCH_KEY = 1


class Reading:
    """A fetcher, and the partitions that it has told of."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.told = asyncio.Event()
        self.fetcher = Fetcher(cluster, lambda tp: self.told.set())

    async def wait(self) -> None:
        async with asyncio.timeout(60):
            await self.told.wait()
        self.told.clear()

    async def read_all(
        self, end: int, tp: TopicPartition = TP, *, committed: bool = True
    ) -> list[bytes | None]:
        """Read values from the start to `end`, as a reader does: at hand, or brought, or waited for."""
        found: list[bytes | None] = []
        offset = 0
        while offset < end:
            got = self.fetcher.at_hand(tp, offset, max_bytes=MIB, committed=committed)
            if got is None:
                got = await self.fetcher.bring(tp, offset, max_bytes=MIB, committed=committed)
            if got.next_offset == offset:
                await self.wait()
                continue
            found += visible(got, offset)
            offset = got.next_offset
        return found


def visible(got: Stretch, offset: int) -> list[bytes | None]:
    aborted = AbortedRecords(got.aborted)
    return [
        record.value
        for at, header in batches(got.data)
        if not aborted.hides(header)
        for record in read_records(got.data, at, header, max_bytes=MIB, first_offset=offset)
    ]


@pytest.fixture
async def reading(cluster: ClusterClient) -> AsyncIterator[Reading]:
    made = Reading(cluster)
    yield made
    await made.fetcher.close()


async def write(served: Served, *values: bytes, tp: TopicPartition = TP) -> None:
    await served.broker.records.produce(
        tp.topic, [NewRecord(value=value) for value in values], partition=tp.partition
    )


def values(got: Stretch) -> list[bytes | None]:
    return [record.value for record in decode_all(got.data, max_bytes=MIB)]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def fetches(broker: Broker) -> int:
    return broker.counters.requests[FETCH_KEY].count


async def test_what_was_brought_is_at_hand(served: Served, reading: Reading) -> None:
    await served.broker.topics.create("t")
    await write(served, b"a", b"b")
    await write(served, b"c")
    fetcher = reading.fetcher
    assert fetcher.at_hand(TP, 0, max_bytes=MIB) is None
    got = await fetcher.bring(TP, 0, max_bytes=MIB)
    assert values(got) == [b"a", b"b", b"c"]
    assert (got.next_offset, got.offsets) == (3, LogOffsets(0, 3, 3, 3))
    again = fetcher.at_hand(TP, 1, max_bytes=MIB)
    assert again is not None and values(again) == [b"a", b"b", b"c"], "batches come whole"
    small = fetcher.at_hand(TP, 0, max_bytes=1)
    assert small is not None and (values(small), small.next_offset) == ([b"a", b"b"], 2)
    assert fetcher.bounds(TP) == LogOffsets(0, 3, 3, 3)


async def test_what_is_appended_arrives_without_a_question(served: Served, reading: Reading) -> None:
    await served.broker.topics.create("t")
    got = await reading.fetcher.bring(TP, 0, max_bytes=MIB)
    assert (bytes(got.data), got.next_offset) == (b"", 0)
    for number in range(5):
        await write(served, b"%d" % number)
        await reading.wait()
        found = reading.fetcher.at_hand(TP, number, max_bytes=MIB)
        assert found is not None and values(found)[-1] == b"%d" % number
        end = reading.fetcher.at_hand(TP, number + 1, max_bytes=MIB)
        assert end is not None and end.next_offset == number + 1 and not end.data


async def test_many_readers_share_one_fetch_and_many_partitions_one_long_poll(
    served: Served, reading: Reading
) -> None:
    await served.broker.topics.create("t", partitions=20)
    tps = [TopicPartition("t", number) for number in range(20)]
    for tp in tps:
        await write(served, b"x", tp=tp)
    before = fetches(served.broker)
    got = await asyncio.gather(
        *(reading.fetcher.bring(tp, 0, max_bytes=MIB) for tp in tps for _ in range(100))
    )
    assert all(values(one) == [b"x"] for one in got)
    assert fetches(served.broker) - before == 1
    await until(lambda: len(served.broker.purgatory) > 0)
    await write(served, b"y", tp=tps[7])
    await reading.wait()
    assert fetches(served.broker) - before <= 3


async def test_a_partition_that_joins_is_followed_at_once(
    served: Served, client_settings: ClientSettings
) -> None:
    """The long poll of the first one takes a minute."""
    cluster = ClusterClient(replace(client_settings, fetch_wait_ms=60_000), Clock())
    await cluster.open()
    reading = Reading(cluster)
    await served.broker.topics.create("t", partitions=3)
    for number in range(3):
        await reading.fetcher.bring(TopicPartition("t", number), 0, max_bytes=MIB)
        await asyncio.sleep(0.02)
    for number in (2, 1, 0, 1):
        tp = TopicPartition("t", number)
        await write(served, b"x", tp=tp)
        await until(lambda tp=tp: (b := reading.fetcher.bounds(tp)) and b.high_watermark > 0)
    await reading.fetcher.close()
    await cluster.close()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("memory", [1, 10**7], ids=["one chunk at hand", "all"])
async def test_readers_see_what_a_model_of_transactions_says(
    served: Served, client_settings: ClientSettings, committed: bool, memory: int
) -> None:
    cluster = ClusterClient(replace(client_settings, fetch_memory=memory), Clock())
    await cluster.open()
    reading = Reading(cluster)
    await served.broker.topics.create("t")
    log = TransactionalLog(served.broker, TP)
    steps = [
        lambda: log.write(0, "plain"),
        lambda: log.write(1, "aborted", "aborted too"),
        lambda: log.write(2, "committed"),
        lambda: log.end(1, commit=False),
        lambda: log.write(1, "of the next one"),
        lambda: log.end(2, commit=True),
        lambda: log.write(0, "plain again"),
        lambda: log.end(1, commit=True),
        lambda: log.write(3, "long, and aborted"),
        lambda: log.write(0, "last"),
        lambda: log.end(3, commit=False),
        lambda: log.write(2, "open"),
    ]
    for step in steps:
        step()
        bounds = served.broker.partitions.offsets(TP)
        end = bounds.end(committed=committed)
        seen = await reading.read_all(end, committed=committed)
        assert seen == [value for _, value in log.seen(committed=committed)], step
    assert (b"aborted" in seen) is not committed and (b"open" in seen) is not committed
    await reading.fetcher.close()
    await cluster.close()


async def test_an_offset_out_of_range_names_the_bounds(served: Served, reading: Reading) -> None:
    await served.broker.topics.create("t")
    await write(served, b"a", b"b", b"c")
    await served.broker.partitions.delete_records([(TP, 2)])
    for offset in (0, 9):
        with pytest.raises(BrokerError) as caught:
            await reading.fetcher.bring(TP, offset, max_bytes=MIB)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert caught.value.details == {"log_start_offset": 2, "high_watermark": 3}


async def test_a_topic_that_does_not_exist(reading: Reading) -> None:
    with pytest.raises(BrokerError) as caught:
        await reading.fetcher.bring(TP, 0, max_bytes=MIB)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_made_again_is_another_one(served: Served, reading: Reading) -> None:
    await served.broker.topics.create("t")
    await write(served, b"old", b"old")
    assert await reading.read_all(2) == [b"old", b"old"]
    await served.broker.topics.delete("t")
    await reading.wait()
    await served.broker.topics.create("t")
    await write(served, b"new")
    got = await reading.fetcher.bring(TP, 0, max_bytes=MIB)
    assert values(got) == [b"new"]


async def test_memory_is_bounded_and_dropped_batches_are_fetched_again(
    served: Served, client_settings: ClientSettings
) -> None:
    cluster = ClusterClient(replace(client_settings, fetch_memory=300_000), Clock())
    await cluster.open()
    reading = Reading(cluster)
    await served.broker.topics.create("t")
    texts = [b"%05d" % number + b"x" * 30_000 for number in range(40)]
    for text in texts:
        await write(served, text)
    offset = 0
    while offset < 40:
        got = await reading.fetcher.bring(TP, offset, max_bytes=50_000)
        assert values(got) == texts[offset : got.next_offset]
        offset = got.next_offset
        assert reading.fetcher.memory <= 300_000
    assert reading.fetcher.at_hand(TP, 0, max_bytes=MIB) is None
    assert values(await reading.fetcher.bring(TP, 0, max_bytes=1)) == texts[:1]
    await reading.fetcher.close()
    await cluster.close()


async def test_a_partition_that_nothing_reads_is_not_followed_any_more(
    served: Served, client_settings: ClientSettings
) -> None:
    cluster = ClusterClient(replace(client_settings, fetch_idle_ms=50, fetch_wait_ms=20), Clock())
    await cluster.open()
    reading = Reading(cluster)
    await served.broker.topics.create("t")
    await reading.fetcher.bring(TP, 0, max_bytes=MIB)
    assert reading.fetcher.bounds(TP) is not None
    await until(lambda: reading.fetcher.bounds(TP) is None)
    before = fetches(served.broker)
    await asyncio.sleep(0.1)
    assert fetches(served.broker) == before
    await reading.fetcher.close()
    await cluster.close()


async def test_following_survives_a_restart_of_the_broker(served: Served, reading: Reading) -> None:
    await served.broker.topics.create("t")
    await write(served, b"a")
    assert await reading.read_all(1) == [b"a"]
    await served.stop()
    await write(served, b"b")
    await served.start()
    assert await reading.read_all(2) == [b"a", b"b"]
