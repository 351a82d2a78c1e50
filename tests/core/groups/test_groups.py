"""What `broker.groups` adds to the coordinator: topics that exist, the register of v0, words for people."""

from __future__ import annotations

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.errors import BrokerError, ErrorCode
from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.member_metadata import assignment_of, owned_partitions, wanted_topics

OK, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    await broker.topics.create("t", partitions=2)
    return broker


def offset(broker: Broker, partition: int = 0, *, register: bool = False) -> int | None:
    found = broker.groups.committed("g", "t", partition, register=register)
    return None if found is None else found.offset


async def test_each_commit_has_its_own_error_in_its_own_place(broker: Broker) -> None:
    commits = [
        Commit("t", 5, 1),
        Commit("t", 0, 1),
        Commit("nope", 0, 1),
        Commit("t", 1, 2),
        Commit("t", -1, 2),
    ]
    assert await broker.groups.commit("g", CommitRequest(commits)) == [UNKNOWN, OK, UNKNOWN, OK, UNKNOWN]
    assert await broker.groups.commit("g", CommitRequest(commits, any_partition=True)) == [
        OK,
        OK,
        UNKNOWN,
        OK,
        OK,
    ]
    assert (offset(broker), offset(broker, 1)) == (1, 2)


async def test_a_register_is_written_beside_the_offsets_and_read_before_them(broker: Broker) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 1, -1, "note")]))
    assert offset(broker, register=True) == 1
    assert await broker.groups.commit("g", CommitRequest([Commit("t", 0, 2, -1, "note")], register=True)) == [
        OK
    ]
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 3)]))
    assert (offset(broker), offset(broker, register=True)) == (3, 2)
    assert [(t, p, c.offset) for t, p, c in broker.groups.all_committed("g")] == [("t", 0, 3)]
    with pytest.raises(BrokerError) as error:
        broker.groups.committed("g", "t", 9, register=True)
    assert error.value.code is UNKNOWN


async def test_deleting_offsets_takes_the_register_along(broker: Broker) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 2)], register=True))
    assert await broker.groups.delete_offsets("g", [("nope", 0), ("t", 0)]) == [UNKNOWN, OK]
    assert offset(broker, register=True) is None


async def test_a_deleted_topic_leaves_neither_offset_nor_register(broker: Broker) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 2)], register=True))
    await broker.topics.delete("t")
    await broker.topics.create("t")
    assert (offset(broker), offset(broker, register=True)) == (None, None)


async def test_refusals_are_sentences_that_name_group_and_member(broker: Broker) -> None:
    refused = broker.groups.refusal(ErrorCode.UNKNOWN_MEMBER_ID, "g", "m")
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert "'g'" in refused.message and "'m'" in refused.message
    assert broker.groups.refusal(ErrorCode.NOT_COORDINATOR, "g").message.endswith("try again.")


async def test_nothing_is_served_after_a_drain(broker: Broker) -> None:
    assert broker.groups.closed is OK
    broker.drain()
    assert broker.groups.closed is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for ask in (lambda: broker.groups.committed("g", "t", 0), lambda: broker.groups.all_committed("g")):
        with pytest.raises(BrokerError) as error:
            ask()
        assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_expired_offsets_go_when_the_broker_looks(broker: Broker) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 2)], retention_ms=10))
    await broker.groups.commit("g", CommitRequest([Commit("t", 1, 3)]))
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(1)
    await broker.groups.expire()
    assert (offset(broker), offset(broker, 1)) == (None, 3)


def test_blobs_are_shown_where_they_can_be_read() -> None:
    assert wanted_topics(encode_subscription(Subscription(["b", "a"]), 1)) == ["a", "b"]
    assert wanted_topics(b"\0") is None
    assert owned_partitions(assignment_of([TopicPartition("t", 1), TopicPartition("t", 0)])) == [
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    ]
    assert owned_partitions(b"?") == []
