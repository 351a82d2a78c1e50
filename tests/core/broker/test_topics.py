"""core.broker.topics: durable before visible, one change of a topic at a time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.metadata.topics import deleted_topics, load_settings, load_topics
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.topic import check_topic_name
from tests.core.log.disk import Disk

SETTINGS = {"max_partitions_per_topic": 10, "max_partitions": 20}


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_"])
def test_legal_names_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\x00"])
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(BrokerError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_of_many_that_create_the_same_topic_one_succeeds(broker: Broker) -> None:
    outcomes = await asyncio.gather(*(broker.topics.create("t") for _ in range(5)), return_exceptions=True)
    refusals = [o for o in outcomes if isinstance(o, BrokerError)]
    assert len(refusals) == 4 and {r.code for r in refusals} == {ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_a_caller_that_ends_does_not_stop_a_change(broker: Broker) -> None:
    task = asyncio.create_task(broker.topics.create("t", partitions=3))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for _ in range(100):
        if broker.topics.list() and not broker.topics.changing:
            break
        await asyncio.sleep(0.01)
    assert broker.topics.get("t").partitions == 3 and not broker.topics.changing


async def test_a_change_on_an_old_view_is_refused(broker: Broker) -> None:
    await broker.topics.create("t")
    changes = [broker.topics.alter_configs("t", {"retention.ms": str(n)}) for n in (1, 2)]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    assert sum(isinstance(o, BrokerError) for o in outcomes) == 1
    assert broker.topics.get("t").version == 2


async def test_the_version_rises_with_each_change_and_not_without_one(broker: Broker) -> None:
    await broker.topics.create("t")
    await broker.topics.alter_configs("t", {"retention.ms": "5"})
    await broker.topics.alter_configs("t", {"retention.ms": "5"})
    assert broker.topics.get("t").version == 2
    await broker.topics.create_partitions("t", 3)
    assert broker.topics.get("t").version == 3
    assert (
        await broker.topics.alter_configs("t", {"retention.ms": None}, validate_only=True)
    ).overrides == {}
    assert broker.topics.get("t").overrides == {"retention.ms": "5"}


async def test_limits_on_partitions_hold_per_topic_and_in_all(broker: Broker) -> None:
    for partitions in (0, -2, 11):
        with pytest.raises(BrokerError) as refused:
            await broker.topics.create("t", partitions=partitions)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    await broker.topics.create("a", partitions=10)
    await broker.topics.create("b", partitions=9)
    with pytest.raises(BrokerError, match="at most 20"):
        await broker.topics.create("c", partitions=2)
    await broker.topics.create_partitions("b", 10)


async def test_internal_topics_are_hidden_and_kept(broker: Broker) -> None:
    await broker.topics.create("__consumer_offsets")
    assert broker.topics.list() == [] and len(broker.topics.list(include_internal=True)) == 1
    with pytest.raises(BrokerError):
        await broker.topics.delete("__consumer_offsets")


async def test_a_topic_made_again_is_empty_and_another_one(broker: Broker) -> None:
    first = await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(value=b"old")])
    await broker.topics.delete("t")
    second = await broker.topics.create("t")
    assert second.topic_id != first.topic_id
    assert broker.partitions.info(TopicPartition("t", 0)).offsets.log_end_offset == 0
    with pytest.raises(BrokerError):
        broker.topics.name_of(first.topic_id)


async def test_a_disk_that_refuses_leaves_no_topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "full"))
        return future

    monkeypatch.setattr(broker.store, "submit", refuse)
    with pytest.raises(BrokerError):
        await broker.topics.create("t")
    assert broker.topics.list() == []
    monkeypatch.undo()
    await broker.topics.create("t")


@pytest.mark.parametrize("grown", [False, True], ids=["created", "grown"])
async def test_what_a_full_disk_refused_is_not_there_after_a_restart(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, grown: bool
) -> None:
    """The row was stored, and then there was no space for the third directory."""
    if grown:
        await broker.topics.create("t", partitions=1)
    disk = Disk(monkeypatch)
    with disk.failing(errno.ENOSPC, "make_directory", at=2), pytest.raises(BrokerError) as refused:
        await (broker.topics.create_partitions("t", 4) if grown else broker.topics.create("t", partitions=4))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    stored = {row.name: row.partitions for row in await broker.store.read(load_topics)}
    assert (
        stored
        == {topic.name: topic.partitions for topic in broker.topics.list()}
        == ({"t": 1} if grown else {})
    )
    await (broker.topics.create_partitions("t", 4) if grown else broker.topics.create("t", partitions=4))
    for partition in range(4):
        await broker.records.produce("t", [NewRecord(value=b"x")], partition=partition)


async def test_deletions_are_remembered_one_at_a_time(broker: Broker) -> None:
    """Until the next one: so a death before the files are removed leaves no unknown file."""
    ids = []
    for name in "abc":
        ids.append((await broker.topics.create(name)).topic_id)
        await broker.topics.delete(name)
        assert deleted_topics(await broker.store.read(load_settings)) == {ids[-1]}
