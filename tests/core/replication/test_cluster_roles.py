"""Two and three brokers in one process: following, committing, promotion, and followers that lag."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.config import Endpoint
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA
from tests.core.listeners.kafka.conftest import Client
from tests.core.replication.brokers import Brokers, until

TP = TopicPartition("t", 0)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as brokers:
        await brokers.create("t")
        yield brokers


async def write(
    broker: Broker, *values: bytes, acks: int = -1, timeout_ms: int | None = None, topic: str = "t"
) -> list[int]:
    """Write to the topic, in one batch; the offsets, or the first error."""
    done = await broker.records.produce(
        topic, [NewRecord(value=v) for v in values], acks=acks, timeout_ms=timeout_ms
    )
    for one in done:
        if one.error is not None:
            raise one.error
    return [one.offset for one in done]


def content(broker: Broker, tp: TopicPartition = TP) -> bytes:
    """All of a log, byte for byte."""
    copy = broker.replicas.get(tp)
    assert copy is not None
    return b"".join(Path(segment.log.path).read_bytes() for segment in copy.log.segments.all if segment.size)


def ends(broker: Broker, tp: TopicPartition = TP) -> tuple[int, int]:
    """(high watermark, log end) of a partition."""
    return broker.partitions.info(tp).offsets[1:3]


async def refused(code: ErrorCode, waiting: object) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await waiting  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    return caught.value


async def test_a_copy_is_the_leaders_log_byte_for_byte(two: Brokers) -> None:
    for number in range(20):
        await write(two[1], *(b"%d" % (number + i) for i in range(number % 3 + 1)))
    await until(lambda: ends(two[2]) == ends(two[1]), "the follower to learn what is committed")
    assert content(two[1]) == content(two[2])
    assert ends(two[1])[0] == ends(two[1])[1] > 20


async def test_all_brokers_of_a_cluster_announce_transactions(two: Brokers) -> None:
    for number in (1, 2):
        listener = KafkaListener(two[number], HANDLERS)
        listener.bound(Endpoint("kafka", "127.0.0.1", 9092))
        answer = await Client(listener).ask(18, 4, ApiVersionsRequest("test", "1"))
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert (answer.finalized_features_epoch, levels["transaction.version"]) == (0, 2)


async def test_no_client_is_shown_what_the_follower_lacks_and_acks_all_waits_for_it(two: Brokers) -> None:
    await write(two[1], b"a")
    await two.stop(2)
    assert await write(two[1], b"b", acks=1) == [1]
    await refused(ErrorCode.REQUEST_TIMED_OUT, write(two[1], b"c", timeout_ms=100))
    assert ends(two[1]) == (1, 3)
    read = two[1].records.read_now(TP, 0, max_bytes=1000, max_records=10)
    assert [r.value for r in read.records] == [b"a"]
    assert two[1].partitions.offset_for_time(TP, -1).offset == 1
    assert two[1].partitions.offset_for_time(TP, 0).offset == 0
    assert two[1].partitions.offset_for_time(TP, -3).offset == -1, "the youngest record is not committed"
    poll = asyncio.ensure_future(
        two[1].records.read(TP, 1, max_bytes=1000, max_records=10, wait_ms=20_000, min_bytes=1)
    )
    await two.start(2)
    assert [r.value for r in (await poll).records] == [b"b", b"c"], "the long poll gets it"
    assert await write(two[1], b"d") == [3]


async def test_acks_all_is_refused_with_too_few_in_sync_before_and_after_the_append(tmp_path: Path) -> None:
    async with Brokers(tmp_path, replica_lag_time_max_ms=300) as two:
        await two.create("t")
        await two.stop(2)
        started = asyncio.ensure_future(write(two[1], b"a"))
        await refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, started)
        assert two[1].partitions.info(TP).isr == (1,)
        assert two[1].partitions.info(TP).under_replicated
        await refused(ErrorCode.NOT_ENOUGH_REPLICAS, write(two[1], b"b"))
        assert await write(two[1], b"c", acks=1) == [1]
        assert ends(two[1]) == (0, 2), "too few have it for anything to be committed"
        await two.start(2)
        await two.in_sync(TP)
        assert await write(two[1], b"d") == [2]
        assert ends(two[1]) == (3, 3)


async def only_waiting(broker: Broker) -> asyncio.Task[bool]:
    """Take the only place of a broker on which one request may wait, between two fetches of its follower."""
    while True:
        task = asyncio.create_task(broker.purgatory.wait(["nothing"], 60, lambda: False))
        await asyncio.sleep(0.001)
        if not task.done():
            return task
        assert isinstance(task.exception(), BrokerError)


async def test_a_follower_is_served_though_too_many_requests_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Brokers(tmp_path, max_waiting=1) as two:
        await two.create("t")
        waiting = await only_waiting(two[1])
        await write(two[1], b"a")
        await until(lambda: ends(two[2]) == (1, 1))
        waiting.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_with_one_replica_nothing_waits(tmp_path: Path) -> None:
    async with Brokers(tmp_path) as two:
        await two.create("t", replication_factor=1)
        await two.stop(2)
        assert await write(two[1], b"a") == [0]
        assert two[1].replicas.get(TP) is None


async def test_a_promotion_takes_over_and_the_old_leader_follows(two: Brokers) -> None:
    await write(two[1], b"a", b"b")
    info = await two[2].roles.set(TP, "leader")
    assert (info.leader, info.role, info.leader_epoch % 32, info.order) == (2, "leader", 2, (2, 1))
    error = await refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, write(two[1], b"x", acks=1))
    assert error.details["leader"] in (2, -1)
    await two.in_sync(TP)
    assert await write(two[2], b"c") == [2]
    await until(lambda: ends(two[1]) == (3, 3), "the old leader to follow")
    assert content(two[1]) == content(two[2])
    assert two[1].partitions.info(TP).leader == 2
    back = await two[1].roles.set(TP, "leader")
    assert back.leader_epoch > info.leader_epoch
    assert (await two[1].roles.set(TP, "leader")).leader_epoch == back.leader_epoch, "no news"


async def test_a_leader_killed_with_unreplicated_records_cuts_them_off_when_it_comes_back(
    two: Brokers,
) -> None:
    await write(two[1], b"a")
    await until(lambda: ends(two[2]) == (1, 1))
    await two.stop(2)
    await write(two[1], b"lost", acks=1)
    await two.stop(1)
    await two.start(2)
    await two[2].roles.set(TP, "leader")
    await write(two[2], b"kept", acks=1)
    await two.start(1)
    await until(lambda: ends(two[1]) == (2, 2), "the old leader to join the new history")
    assert content(two[1]) == content(two[2])
    assert b"lost" not in content(two[1])
    assert b"kept" in content(two[1])


async def test_a_restarted_leader_leads_again_in_a_new_epoch(two: Brokers) -> None:
    await write(two[1], b"a")
    before = two[1].partitions.info(TP).leader_epoch
    await two.stop(1)
    await two.start(1)
    await until(lambda: two[1].partitions.info(TP).leads, "the leader to lead again")
    assert two[1].partitions.info(TP).leader_epoch > before
    await two.in_sync(TP)
    assert await write(two[1], b"b") == [1]


async def test_a_restarted_leader_does_not_depose_the_one_that_was_promoted_meanwhile(two: Brokers) -> None:
    await write(two[1], b"a")
    await two.stop(1)
    await two[2].roles.set(TP, "leader")
    await two.start(1)
    await two.in_sync(TP)
    assert (two[1].partitions.info(TP).leader, two[2].partitions.info(TP).leads) == (2, True)


async def test_a_follower_that_lags_may_not_lead_where_it_could_lose_something(tmp_path: Path) -> None:
    async with Brokers(tmp_path, replica_lag_time_max_ms=300) as two:
        await two.create("t", configs={"min.insync.replicas": "1"})
        await two.stop(2)
        await refused(ErrorCode.REQUEST_TIMED_OUT, write(two[1], b"a", timeout_ms=50))
        await until(lambda: two[1].partitions.info(TP).isr == (1,))
        assert await write(two[1], b"b") == [1], "the leader alone is enough"
        await two.stop(1)
        await two.start(2)
        await refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, two[2].roles.set(TP, "leader"))
        assert (await two[2].roles.set(TP, "leader", unclean=True)).leads
        await write(two[2], b"other", acks=1)
        await two.start(1)
        await until(lambda: content(two[1]) == content(two[2]), "the histories to be one again")
        assert b"other" in content(two[1])


async def test_a_follower_told_so_serves_no_client_and_is_promoted_again(two: Brokers) -> None:
    info = await two[1].roles.set(TP, "follower")
    assert (info.role, info.leader) == ("follower", -1)
    await refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, write(two[1], b"x", acks=1))
    with pytest.raises(BrokerError):
        two[1].records.read_now(TP, 0, max_bytes=100, max_records=1)
    assert (await two[1].roles.set(TP, "leader")).leads


async def test_progress_can_be_reported_by_hand(two: Brokers) -> None:
    await two.stop(2)
    await write(two[1], b"a", acks=1)
    info = two[1].roles.report_progress(TP, 2, 1)
    assert (info.offsets.high_watermark, info.isr, info.under_replicated) == (1, (1, 2), False)
    for replica, offset, code in (
        (1, 0, ErrorCode.INVALID_REQUEST),
        (9, 0, ErrorCode.INVALID_REQUEST),
        (2, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        with pytest.raises(BrokerError) as caught:
            two[1].roles.report_progress(TP, replica, offset)
        assert caught.value.code is code


async def test_deleted_records_are_deleted_at_the_follower_too(two: Brokers) -> None:
    await write(two[1], b"a", b"b", b"c")
    await two[1].partitions.delete_records([(TP, 2)])
    await write(two[1], b"d")
    await until(
        lambda: two[2].partitions.info(TP).offsets == (2, 4, 4, 4), "the follower's log to start there"
    )


async def test_three_brokers_commit_with_two_and_promote_the_one_that_has_it(tmp_path: Path) -> None:
    async with Brokers(tmp_path, 3, replica_lag_time_max_ms=500) as three:
        await three.create("t")
        await three.stop(3)
        await until(lambda: three[1].partitions.info(TP).isr == (1, 2))
        await write(three[1], b"a", b"b")
        await three.stop(1)
        await three.start(3)
        await refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, three[3].roles.set(TP, "leader"))
        assert (await three[2].roles.set(TP, "leader")).leads
        await three.in_sync(TP)
        assert await write(three[2], b"c") == [2]
        assert content(three[2]) == content(three[3])


async def test_the_metadata_move_with_a_promotion(two: Brokers) -> None:
    await refused(ErrorCode.NOT_CONTROLLER, two[2].topics.create("u"))
    await two[2].roles.set(METADATA, "leader")
    await two.serving(2)
    await refused(ErrorCode.NOT_CONTROLLER, two[1].topics.create("u"))
    await two.create("u", partitions=3)
    assert two[1].topics.get("u").partitions == 3
    await two[2].topics.alter_configs("u", {"retention.ms": "77"})
    await until(lambda: two[1].topics.get("u").config.retention_ms == 77)
    await two[2].topics.delete("u")
    await until(lambda: not two._knows(1, "u"))
    assert two[1].cluster_id == two[2].cluster_id != ""
