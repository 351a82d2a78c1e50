"""core.changes: waits for any partition of a topic, and the number that each event gives a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import LogOffsets, TopicPartition

SETTINGS = {"max_waiting": 3}


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    await broker.topics.create("t", partitions=3)
    return broker


async def append(broker: Broker, partition: int, topic: str = "t") -> None:
    await broker.records.produce(topic, [NewRecord(value=b"v")], acks=1, partition=partition)


async def outcome(wait: Awaitable[bool], event: Awaitable[object]) -> bool | None:
    """What a wait answers to an event; None while it continues to wait."""
    task = asyncio.ensure_future(wait)
    await asyncio.sleep(0)
    await event
    for _ in range(4):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


async def test_bounds_come_in_the_order_asked_for(broker: Broker) -> None:
    await append(broker, 2)
    assert broker.partitions.bounds("t", (2, 0)) == [LogOffsets(0, 1, 1, 1), LogOffsets(0, 0, 0, 0)]
    with pytest.raises(BrokerError) as missing:
        broker.partitions.bounds("t", (3,))
    assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_record_in_any_partition_ends_the_wait_for_all(broker: Broker) -> None:
    for partition in range(3):
        assert await outcome(broker.changes.wait_for("t", None, 60, "me"), append(broker, partition)) is True
    assert len(broker.purgatory) == 0


async def test_only_chosen_partitions_end_a_wait_for_them(broker: Broker) -> None:
    assert await outcome(broker.changes.wait_for("t", (0, 2), 60, "me"), append(broker, 2)) is True
    assert await outcome(broker.changes.wait_for("t", (0, 2), 60, "me"), append(broker, 1)) is None


async def test_another_topic_ends_no_wait(broker: Broker) -> None:
    await broker.topics.create("u", partitions=1)
    assert await outcome(broker.changes.wait_for("t", None, 60, "me"), append(broker, 0, "u")) is None


async def test_growth_and_deletion_end_the_wait(broker: Broker) -> None:
    assert (
        await outcome(broker.changes.wait_for("t", None, 60, "me"), broker.topics.create_partitions("t", 60))
        is True
    )
    assert await outcome(broker.changes.wait_for("t", None, 60, "me"), append(broker, 4)) is True
    assert await outcome(broker.changes.wait_for("t", (4,), 60, "me"), append(broker, 4)) is True
    assert await outcome(broker.changes.wait_for("t", None, 60, "me"), broker.topics.delete("t")) is True


async def test_the_deletion_of_a_topic_ends_a_wait_for_chosen_partitions(broker: Broker) -> None:
    assert await outcome(broker.changes.wait_for("t", (1,), 60, "me"), broker.topics.delete("t")) is True


async def test_a_token_ends_its_own_wait_alone(broker: Broker) -> None:
    async def wake(token: str) -> None:
        broker.changes.wake(token)

    assert await outcome(broker.changes.wait_for("t", (), 60, "me"), wake("me")) is True
    assert await outcome(broker.changes.wait_for("t", None, 60, "me"), wake("you")) is None


async def test_a_wait_ends_at_its_deadline_and_at_the_drain(broker: Broker) -> None:
    assert await broker.changes.wait_for("t", None, 0.001, "me") is False

    async def drain() -> None:
        broker.drain()

    assert await outcome(broker.changes.wait_for("t", None, 60, "me"), drain()) is False
    assert await broker.changes.wait_for("t", None, 60, "me") is False


async def test_too_many_waits_are_refused(broker: Broker) -> None:
    waits = [asyncio.ensure_future(broker.changes.wait_for("t", None, 60, n)) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(BrokerError) as refused:
        await broker.changes.wait_for("t", None, 60, "me")
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for wait in waits:
        wait.cancel()


async def test_each_event_gives_a_topic_another_number(broker: Broker) -> None:
    seen = [broker.changes.touched["t"]]
    for event in (append(broker, 0), append(broker, 1), broker.topics.create_partitions("t", 4)):
        await event
        seen.append(broker.changes.touched["t"])
    assert len(set(seen)) == 4
    await broker.topics.delete("t")
    assert "t" not in broker.changes.touched
    await broker.topics.create("t", partitions=1)
    assert broker.changes.touched["t"] not in seen


async def test_reading_now_gives_what_is_there_and_waits_for_nothing(broker: Broker) -> None:
    await append(broker, 0)
    tp = TopicPartition("t", 0)
    assert [r.value for r in broker.records.read_now(tp, 0, max_bytes=1, max_records=5).records] == [b"v"]
    assert broker.records.read_now(tp, 1, max_bytes=1, max_records=5).records == []
    with pytest.raises(BrokerError) as outside:
        broker.records.read_now(tp, 2, max_bytes=1, max_records=5)
    assert outside.value.details["high_watermark"] == 1
