"""Share groups on the Kafka listener (KIP-932): members, sessions, acquisitions, acknowledgements, offsets."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from core.errors import ErrorCode
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    RequestPartition,
)
from core.protocol.messages.alter_share_group_offsets import RequestTopic as AlteredTopic
from core.protocol.messages.delete_groups import DeleteGroupsRequest
from core.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
)
from core.protocol.messages.delete_share_group_offsets import RequestTopic as DeletedTopic
from core.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
)
from core.protocol.messages.describe_share_group_offsets import RequestTopic as DescribedTopic
from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.list_groups import ListGroupsRequest
from core.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from core.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from core.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from core.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from core.records.batch import batches
from core.vocabulary.queues import Receive, Settle, Verb
from tests.core.listeners.kafka.conftest import Client

GROUP = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Batch = tuple[int, int, list[int]]


class Sharer:
    """A share consumer over one connection, which counts the epochs of its session."""

    def __init__(self, listener: KafkaListener, member: str = "a", group: str = "workers") -> None:
        self.client = Client(listener)
        self.member, self.group = member, group
        self.epoch = 0
        self.topic_id = UUID(int=0)

    async def beat(self, epoch: int, *topics: str, **more: Any) -> Any:
        request = ShareGroupHeartbeatRequest(self.group, self.member, epoch, None, list(topics) or None)
        for name, value in more.items():
            setattr(request, name, value)
        return await self.client.newest(76, request)

    async def join(self, topic: str = "jobs") -> Sharer:
        answer = await self.beat(0, topic)
        assert answer.error_code == 0, answer
        self.topic_id = self.client.listener.broker.topics.get(topic).topic_id
        return self

    def fetch_request(self, *acks: Batch, epoch: int | None = None, **more: Any) -> ShareFetchRequest:
        partition = FetchPartition(more.pop("partition", 0), [AcknowledgementBatch(*one) for one in acks])
        request = ShareFetchRequest(
            self.group,
            self.member,
            self.epoch if epoch is None else epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_records=100,
            batch_size=100,
            topics=[FetchTopic(self.topic_id, [partition])],
        )
        for name, value in more.items():
            setattr(request, name, value)
        return request

    async def fetch(self, *acks: Batch, version: int = 2, **more: Any) -> Any:
        """The whole answer; the next request has the next epoch."""
        request = self.fetch_request(*acks, **more)
        answer = await self.client.ask(78, version, request)
        if answer.error_code == 0 and "epoch" not in more:
            self.epoch += 1
        return answer

    async def acquired(self, *acks: Batch, **more: Any) -> list[tuple[int, int, int]]:
        """(first, last, delivery count) of what a fetch brings of the one partition."""
        answer = await self.fetch(*acks, **more)
        assert answer.error_code == 0, answer
        found = []
        for topic in answer.responses:
            for partition in topic.partitions:
                assert (partition.error_code, partition.acknowledge_error_code) == (0, 0), partition
                ranges = [
                    (one.first_offset, one.last_offset, one.delivery_count)
                    for one in partition.acquired_records
                ]
                if ranges:
                    headers = [header for _, header in batches(bytes(partition.records))]
                    assert headers[0].base_offset <= ranges[0][0]
                    assert headers[-1].next_offset > ranges[-1][1]
                found += ranges
        return found

    async def acknowledge(self, *acks: Batch, **more: Any) -> tuple[int, int]:
        """(error, error of the partition); the next request has the next epoch."""
        epoch = more.pop("epoch", None)
        partition = AcknowledgePartition(
            more.pop("partition", 0), [AcknowledgementBatch(*one) for one in acks]
        )
        request = ShareAcknowledgeRequest(
            self.group,
            self.member,
            self.epoch if epoch is None else epoch,
            more.pop("is_renew_ack", False),
            [AcknowledgeTopic(more.pop("topic_id", self.topic_id), [partition])],
        )
        answer = await self.client.newest(79, request)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        partitions = [one for topic in answer.responses for one in topic.partitions]
        return answer.error_code, partitions[0].error_code if partitions else 0


async def configure(client: Client, group: str, **configs: str) -> None:
    entries = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in configs.items()]
    answer = await client.newest(
        44, IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP, group, entries)])
    )
    assert answer.responses[0].error_code == 0, answer


@pytest.fixture
async def jobs(client: Client) -> Client:
    """A topic with two batches, of four and two records, and a group that begins at the start."""
    await client.create("jobs", 2)
    await configure(client, "workers", share_auto_offset_reset="earliest")
    await client.produce("jobs", [b"j0", b"j1", b"j2", b"j3"])
    await client.produce("jobs", [b"j4", b"j5"])
    return client


# --- members -----------------------------------------------------------------------------------------------


async def test_a_member_joins_is_described_and_leaves(jobs: Client) -> None:
    a = Sharer(jobs.listener)
    joined = await a.beat(0, "jobs")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "a", 1)
    topic_id = jobs.listener.broker.topics.get("jobs").topic_id
    assert [(one.topic_id, one.partitions) for one in joined.assignment.topic_partitions] == [
        (topic_id, [0, 1])
    ]
    asked = ShareGroupDescribeRequest(["", "workers", "no-group"], include_authorized_operations=True)
    nameless, group, missing = (await jobs.newest(77, asked)).groups
    assert (nameless.error_code, missing.error_code) == (24, 69)
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "simple")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("a", "test", ["jobs"])
    assert member.assignment.topic_partitions[0].topic_name == "jobs"
    listed = await jobs.newest(16, ListGroupsRequest(types_filter=["share"]))
    assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed.groups] == [
        ("workers", "share", "Stable", "share")
    ]
    assert (await a.beat(-1)).member_epoch == -1
    (group,) = (await jobs.newest(77, ShareGroupDescribeRequest(["workers"]))).groups
    assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize(
    ("epoch", "topics", "more", "code"),
    [
        (0, ["jobs"], {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, ["jobs"], {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, ["jobs"], {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, [], {}, ErrorCode.INVALID_REQUEST),
        (-2, [], {}, ErrorCode.INVALID_REQUEST),
        (1, [], {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, [], {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, [], {"group_id": "no-group"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (0, [f"{number:>30000}" for number in range(40)], {}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_heartbeat_is_refused_as_kafka_does(
    jobs: Client, epoch: int, topics: list[str], more: dict[str, Any], code: ErrorCode
) -> None:
    await Sharer(jobs.listener, "other").join()
    answer = await Sharer(jobs.listener).beat(epoch, *topics, **more)
    assert (answer.error_code, bool(answer.error_message)) == (code, True)


async def test_an_id_belongs_to_one_type_of_groups(jobs: Client) -> None:
    await Sharer(jobs.listener).join()
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest("workers", 10_000, 10_000, "", None, "consumer", protocols)
    assert (await jobs.ask(11, 3, join)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic = asyncio.ensure_future(
        jobs.ask(11, 3, JoinGroupRequest("old", 10_000, 10_000, "", None, "consumer", protocols))
    )
    while jobs.listener.broker.groups.describe("old") is None:
        await asyncio.sleep(0)
    refused = await Sharer(jobs.listener, group="old").beat(0, "jobs")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic.cancel()


async def test_a_group_with_members_is_not_deleted(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    assert (await jobs.newest(42, DeleteGroupsRequest(["workers"]))).results[0].error_code == 68
    await a.beat(-1)
    assert (await jobs.newest(42, DeleteGroupsRequest(["workers"]))).results[0].error_code == 0
    assert (await a.beat(1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_settings_of_the_group_reach_its_queue_with_the_next_heartbeat(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    settings = jobs.listener.broker.queues.get("workers").settings
    assert (settings.start.at, settings.delivery_limit, settings.drop, settings.read_committed) == (
        "earliest", 5, True, False,
    )  # fmt: skip
    await configure(
        jobs,
        "workers",
        share_delivery_count_limit="3",
        share_isolation_level="read_committed",
        share_record_lock_duration_ms="20000",
        share_auto_offset_reset="by_duration:PT1H",
    )
    assert (await a.beat(1)).error_code == 0
    settings = jobs.listener.broker.queues.get("workers").settings
    assert (settings.delivery_limit, settings.lock_ms, settings.read_committed) == (3, 20_000, True)
    assert settings.start.time_ms == jobs.listener.broker.clock.wall_ms() - 3_600_000
    assert (await a.fetch()).acquisition_lock_timeout_ms == 20_000


# --- fetch and acknowledge ---------------------------------------------------------------------------------


async def test_records_are_acquired_acknowledged_and_delivered_again(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    assert await a.acquired() == [(0, 5, 1)]
    assert await a.acquired() == []
    assert await a.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT])) == (0, 0)
    assert await a.acquired() == [(1, 1, 2)]
    answer = await a.fetch((1, 1, [RELEASE]), (3, 5, [ACCEPT, GAP, ACCEPT]))
    (data,) = answer.responses[0].partitions
    assert (data.error_code, data.acknowledge_error_code) == (0, 0)
    assert [(one.first_offset, one.delivery_count) for one in data.acquired_records] == [(1, 3)]


async def test_the_first_answer_names_all_partitions_and_later_ones_those_with_news(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    topics = [FetchTopic(a.topic_id, [FetchPartition(0), FetchPartition(1)])]
    first = await a.fetch(topics=topics, max_records=0)
    assert [one.partition_index for one in first.responses[0].partitions] == [0, 1]
    assert first.acquisition_lock_timeout_ms == 30_000
    second = await a.fetch(topics=[])
    assert [one.partition_index for one in second.responses[0].partitions] == [0]
    assert (await a.fetch(topics=[])).responses == []
    forgotten = [ForgottenTopic(a.topic_id, [0])]
    await jobs.produce("jobs", [b"more"])
    assert (await a.fetch(topics=[], forgotten_topics_data=forgotten)).responses == []
    assert await a.acquired() == [(6, 6, 1)]


async def test_two_members_never_hold_one_record(jobs: Client) -> None:
    a, b = await Sharer(jobs.listener).join(), await Sharer(jobs.listener, "b").join()
    assert await a.acquired(max_records=1) == [(0, 3, 1)]
    assert await b.acquired(max_records=1) == [(4, 5, 1)]
    assert await a.acquired() == []
    assert await a.acknowledge((4, 4, [ACCEPT])) == (0, ErrorCode.INVALID_RECORD_STATE)
    # All of a partition, or nothing.
    assert await a.acknowledge((0, 0, [ACCEPT]), (4, 4, [ACCEPT])) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert await a.acknowledge((0, 3, [RELEASE])) == (0, 0)
    assert await b.acquired() == [(0, 3, 2)]


async def test_a_limit_of_records_cuts_a_batch_and_batches_exceed_it(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    assert await a.acquired(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert await a.acquired(max_records=1) == [(2, 3, 1)]
    assert await a.acquired(batch_size=1) == [(4, 4, 1), (5, 5, 1)]


async def test_bytes_are_limited_but_for_the_first_batch(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    assert await a.acquired(max_bytes=1) == [(0, 3, 1)]
    assert await a.acquired(max_bytes=1) == [(4, 5, 1)]


@pytest.mark.parametrize(
    "acks",
    [
        [(3, 3, [9])],
        [(4, 3, [ACCEPT])],
        [(3, 5, [ACCEPT, RELEASE])],
        [(3, 3, [])],
        [(-1, 0, [ACCEPT])],
        [(2, 3, [ACCEPT]), (3, 4, [ACCEPT])],
        [(4, 4, [ACCEPT]), (3, 3, [ACCEPT])],
        [(3, 3, [RENEW])],
    ],
)
async def test_a_wrong_acknowledgement_is_refused_and_changes_nothing(
    jobs: Client, acks: list[Batch]
) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    assert await a.acknowledge(*acks) == (0, ErrorCode.INVALID_REQUEST)
    assert await a.acknowledge((0, 5, [ACCEPT])) == (0, 0)


async def test_what_is_settled_below_the_start_is_acknowledged_again_without_an_error(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    assert await a.acknowledge((0, 1, [ACCEPT])) == (0, 0)
    assert await a.acknowledge((0, 1, [ACCEPT])) == (0, 0)
    assert await a.acknowledge((3, 3, [ACCEPT])) == (0, 0)
    assert await a.acknowledge((3, 3, [ACCEPT])) == (0, ErrorCode.INVALID_RECORD_STATE)


async def test_a_record_is_given_up_after_its_deliveries(jobs: Client) -> None:
    await configure(jobs, "workers", share_delivery_count_limit="2")
    a = await Sharer(jobs.listener).join()
    assert await a.acquired(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert await a.acquired((0, 0, [RELEASE]), max_records=1, share_acquire_mode=1) == [(0, 0, 2)]
    assert await a.acquired((0, 0, [RELEASE]), max_records=1, share_acquire_mode=1) == [(1, 1, 1)]


async def test_a_lock_is_renewed_and_renewals_can_be_switched_off(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    assert await a.acknowledge((0, 0, [RENEW]), (1, 1, [ACCEPT]), is_renew_ack=True) == (0, 0)
    quiet = {"max_records": 0, "min_bytes": 0, "max_bytes": 0, "is_renew_ack": True}
    assert await a.acquired((0, 0, [RENEW]), **quiet) == []
    assert (await a.fetch((0, 0, [RENEW]), is_renew_ack=True)).error_code == ErrorCode.INVALID_REQUEST
    await configure(jobs, "workers", share_renew_acknowledge_enable="false")
    assert await a.acknowledge((0, 0, [RENEW]), is_renew_ack=True) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert await a.acknowledge((0, 0, [ACCEPT])) == (0, 0)


async def test_a_fetch_waits_for_an_append(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    waiting = asyncio.ensure_future(a.acquired(max_wait_ms=60_000))
    await _until_waiting(jobs)
    await jobs.produce("jobs", [b"j6"])
    assert await waiting == [(6, 6, 1)]


async def test_a_fetch_waits_for_a_record_that_is_released(jobs: Client) -> None:
    a, b = await Sharer(jobs.listener).join(), await Sharer(jobs.listener, "b").join()
    await a.acquired()
    waiting = asyncio.ensure_future(b.acquired(max_wait_ms=60_000))
    await _until_waiting(jobs)
    await a.acknowledge((3, 3, [RELEASE]))
    assert await waiting == [(3, 3, 2)]


async def _until_waiting(client: Client) -> None:
    while not len(client.listener.broker.purgatory):
        await asyncio.sleep(0)


async def test_a_fetch_beyond_its_limits_of_waits_answers_at_once(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    jobs.listener.broker.purgatory._limit = 0
    assert await a.acquired(max_wait_ms=60_000) == []


async def test_errors_are_those_of_their_partition(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    topics = [
        FetchTopic(a.topic_id, [FetchPartition(0), FetchPartition(9)]),
        FetchTopic(UUID(int=77), [FetchPartition(0)]),
    ]
    answer = await a.fetch(topics=topics, max_wait_ms=60_000)
    known, missing, unknown = (one for topic in answer.responses for one in topic.partitions)
    assert (known.error_code, len(known.acquired_records)) == (0, 1)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert await a.acknowledge((0, 0, [ACCEPT]), topic_id=UUID(int=77)) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_fetch_of_a_group_that_does_not_exist_is_refused(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    a.group = "no-group"
    assert (await a.fetch()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for name, value in (("group_id", ""), ("group_id", None), ("member_id", ""), ("member_id", "x" * 256)):
        assert (await a.fetch(**{name: value})).error_code == ErrorCode.INVALID_REQUEST
    assert (await a.fetch(share_acquire_mode=2)).error_code == ErrorCode.INVALID_REQUEST


# --- sessions ----------------------------------------------------------------------------------------------


async def test_the_epochs_of_a_session(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    assert (await a.fetch(epoch=5)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await a.acknowledge((0, 0, [ACCEPT]), epoch=0) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0)
    assert await a.acknowledge((0, 0, [ACCEPT]), epoch=3) == (ErrorCode.SHARE_SESSION_NOT_FOUND, 0)
    assert (await a.fetch((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_REQUEST
    await a.acquired()
    assert (await a.fetch(epoch=3)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await a.acquired() == []


async def test_a_closed_session_gives_its_records_back_after_its_last_acknowledgements(jobs: Client) -> None:
    a, b = await Sharer(jobs.listener).join(), await Sharer(jobs.listener, "b").join()
    await a.acquired()
    assert (await a.fetch((0, 1, [ACCEPT]), epoch=-1)).error_code == 0
    assert await b.acquired(max_records=1) == [(2, 3, 2)]
    assert await b.acknowledge((2, 2, [ACCEPT]), epoch=-1) == (0, 0)
    a.epoch = 0
    assert await a.acquired() == [(3, 3, 3), (4, 5, 2)]
    assert (await b.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_connection_that_ends_gives_records_back(jobs: Client) -> None:
    a, b = await Sharer(jobs.listener).join(), await Sharer(jobs.listener, "b").join()
    await a.acquired()
    a.client.session.close()
    await asyncio.gather(*jobs.listener.tasks)
    assert await b.acquired() == [(0, 5, 2)]
    assert len(jobs.listener.broker.share_sessions) == 1


async def test_a_member_on_a_new_connection_keeps_what_it_has_acquired(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    again = await Sharer(jobs.listener).join()
    assert await again.acquired() == []
    a.client.session.close()
    await asyncio.gather(*jobs.listener.tasks)
    assert await again.acknowledge((0, 5, [ACCEPT])) == (0, 0)


async def test_too_many_sessions_are_held_back_and_refused(jobs: Client) -> None:
    a, b = await Sharer(jobs.listener).join(), await Sharer(jobs.listener, "b").join()
    jobs.listener.broker.share_sessions._limit = 1
    await a.acquired()
    assert (await b.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


# --- offsets -----------------------------------------------------------------------------------------------


async def offsets(client: Client, topics: list[DescribedTopic] | None = None, group: str = "workers") -> Any:
    answer = await client.newest(90, DescribeShareGroupOffsetsRequest([RequestGroup(group, topics)]))
    return answer.groups[0]


async def test_offsets_and_lag_are_described(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    await a.acknowledge((0, 1, [ACCEPT]), (4, 4, [ACCEPT]))
    found = await offsets(jobs)
    (topic,) = found.topics
    assert [(one.partition_index, one.start_offset, one.lag) for one in topic.partitions] == [
        (0, 2, 3),
        (1, 0, 0),
    ]
    named = await offsets(jobs, [DescribedTopic("jobs", [1, 9]), DescribedTopic("nothing", [0])])
    one, nine = named.topics[0].partitions
    assert (one.start_offset, nine.start_offset) == (0, -1)
    assert named.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await offsets(jobs, group="no-group")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def alter(client: Client, topic: str, *starts: tuple[int, int], group: str = "workers") -> Any:
    partitions = [RequestPartition(*one) for one in starts]
    return await client.newest(91, AlterShareGroupOffsetsRequest(group, [AlteredTopic(topic, partitions)]))


async def test_offsets_are_altered_and_deleted_while_the_group_is_empty(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    await a.acquired()
    await a.fetch((0, 5, [ACCEPT]), epoch=-1)
    assert (await alter(jobs, "jobs", (0, 3))).error_code == ErrorCode.NON_EMPTY_GROUP
    deleting = DeleteShareGroupOffsetsRequest("workers", [DeletedTopic("jobs"), DeletedTopic("nothing")])
    assert (await jobs.newest(92, deleting)).error_code == ErrorCode.NON_EMPTY_GROUP
    await a.beat(-1)
    altered = await alter(jobs, "jobs", (0, 3), (1, -5))
    assert [one.error_code for one in altered.responses[0].partitions] == [0, ErrorCode.INVALID_REQUEST]
    assert (await alter(jobs, "nothing", (0, 3))).responses[0].partitions[0].error_code == 3
    assert (await offsets(jobs)).topics[0].partitions[0].start_offset == 3
    a.epoch = 0
    await a.join()
    assert await a.acquired() == [(3, 5, 1)]
    await a.fetch(epoch=-1)
    await a.beat(-1)
    deleted = await jobs.newest(92, deleting)
    assert [one.error_code for one in deleted.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await offsets(jobs)).topics == []
    assert (await alter(jobs, "jobs", (0, 3), group="no-group")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- with receivers over HTTP ------------------------------------------------------------------------------


async def test_share_consumers_and_receivers_draw_from_one_queue(jobs: Client) -> None:
    a = await Sharer(jobs.listener).join()
    queues = jobs.listener.broker.queues
    assert await a.acquired(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    received = await queues.receive("workers", Receive(max_records=2))
    assert [(one.record.offset, one.delivery_count) for one in received.records] == [(2, 1), (3, 1)]
    assert await a.acknowledge((2, 2, [ACCEPT])) == (0, ErrorCode.INVALID_RECORD_STATE)
    await a.acknowledge((0, 1, [RELEASE]))
    await queues.settle("workers", [Settle(Verb.RELEASE, one.receipt) for one in received.records])
    assert await a.acquired(max_records=3, share_acquire_mode=1) == [(0, 2, 2)]
    received = await queues.receive("workers", Receive(max_records=1))
    assert [(one.record.offset, one.delivery_count) for one in received.records] == [(3, 2)]
    assert sum(one.in_flight for one in queues.stats("workers").partitions) == 4
