"""core.broker.freeze: a frozen cluster takes no records and no changes of topics, and serves all the rest."""

from __future__ import annotations

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.records import FetchRead

TP = TopicPartition("t", 0)
RECORDS = [NewRecord(None, b"a")]


@pytest.fixture
async def filled(broker: Broker) -> Broker:
    await broker.topics.create("t")
    await broker.records.produce("t", RECORDS)
    return broker


async def refused(work: object) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        await work  # type: ignore[misc]
    return raised.value


async def test_a_frozen_cluster_refuses_records_with_an_error_that_clients_retry(filled: Broker) -> None:
    assert (await filled.freezing.freeze()).frozen
    with pytest.raises(BrokerError) as raised:
        filled.partitions.append(TP, memoryview(build_batch(RECORDS, now_ms=0)))
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and raised.value.code.retriable
    assert raised.value.details["retry_after"] and "thaw" in raised.value.message
    (result,) = await filled.records.produce("t", RECORDS)
    assert result.error is not None and result.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert filled.partitions.offsets(TP).log_end_offset == 1


async def test_a_frozen_cluster_refuses_changes_of_topics(filled: Broker) -> None:
    await filled.freezing.freeze()
    works = [
        filled.topics.create("new"),
        filled.topics.delete("t"),
        filled.topics.create_partitions("t", 3),
        filled.topics.alter_configs("t", {"retention.ms": "1"}),
    ]
    assert [(await refused(work)).code for work in works] == [ErrorCode.NOT_CONTROLLER] * 4
    (deleted,) = await filled.partitions.delete_records([(TP, 1)])
    assert isinstance(deleted, BrokerError) and deleted.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_frozen_cluster_serves_reads_and_commits(filled: Broker) -> None:
    await filled.freezing.freeze()
    (read,) = filled.partitions.fetch_now([FetchRead(TP, 0, 1_000)], max_bytes=1_000).answers
    assert read.error is None
    assert await filled.groups.commit("g", CommitRequest([Commit("t", 0, 1)])) == [ErrorCode.NONE]


async def test_a_freeze_survives_a_restart_and_ends_with_a_thaw(config: Config, clock: ManualClock) -> None:
    first = Broker(config, clock)
    await first.open()
    await first.topics.create("t")
    since = (await first.freezing.freeze()).since_ms
    assert (await first.freezing.freeze()).since_ms == since
    await first.close()
    second = Broker(config, clock)
    await second.open()
    assert second.freezing.state == (True, since)
    assert not (await second.freezing.thaw()).frozen
    (result,) = await second.records.produce("t", RECORDS)
    await second.close()
    assert result.error is None and result.offset == 0
