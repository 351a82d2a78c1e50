"""Writes under idempotency keys through a gateway: each record is in the cluster once, whatever is lost or killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from core.vocabulary.records import ProduceResult
from tests.core.idempotency.keyed_writes import stored
from tests.core.upstream.gateways import open_gateway, with_gateway
from tests.upstream.cluster import Cluster
from tests.upstream.faults import PRODUCE

RECORDS = [NewRecord(key=b"k%d" % i, value=b"%03d" % i) for i in range(12)]


def render(results: Sequence[ProduceResult]) -> bytes:
    return msgspec.json.encode([(r.partition, r.offset) for r in results])


def request(key: str = "k", body: bytes = b"body") -> KeyedRequest:
    return KeyedRequest("topics/t/records", key, body.ljust(32))


async def send(gateway: RemoteBroker, records: Sequence[NewRecord] = RECORDS, **named: Any) -> KeyedAnswer:
    # acks=1 of the client counts for nothing here.
    return await gateway.idempotency.produce(request(**named), "t", records, acks=1, render=render)


async def assert_once(
    cluster: Cluster, answer: KeyedAnswer, records: Sequence[NewRecord] = RECORDS, more: int = 0
) -> None:
    """Each record is in the cluster once, at the place that the answer names; with `more` records of others."""
    found = {(p, o): v for p, o, v in await stored(cluster.broker)}
    assert len(found) == len(records) + more
    assert answer.answer is not None
    assert [found[p, o] for p, o in msgspec.json.decode(answer.answer)] == [r.value for r in records]


def test_a_repeated_write_gets_the_stored_answer_and_appends_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        first = await send(gateway)
        again = await send(gateway)
        assert not first.replayed and again.replayed and again.answer == first.answer
        await assert_once(cluster, first)
        with pytest.raises(BrokerError) as refused:
            await send(gateway, body=b"other")
        assert refused.value.details["reason"] == "key-reused"
        assert not (await send(gateway, key="k2")).replayed
        await assert_once(cluster, first, more=12)

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_gateway_that_dies_before_the_answer_is_stored_appends_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        hold = asyncio.Event()
        held = cluster.faults.add(PRODUCE, hold=hold, node=2)
        sending = asyncio.create_task(send(gateway))
        while not held.used:
            await asyncio.sleep(0.01)
        # One leader has its batch, another one holds its request back: the gateway dies now.
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await gateway.close()
        hold.set()
        after = await open_gateway(cluster, tmp_path / "gateway")
        again = await send(after)
        assert again.answer is not None
        await assert_once(cluster, again)
        third = await send(after)
        assert third.replayed and third.answer == again.answer
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_retry_after_all_was_appended_is_a_replay_also_if_the_answer_was_not_stored(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        store, lost = gateway.store.submit, []
        gateway.store.submit = lambda effects, **how: lost.append(effects) or asyncio.Future()  # type: ignore
        first = await send(gateway)
        gateway.store.submit = store  # type: ignore[method-assign]
        assert lost and first.answer is not None
        await gateway.close()
        after = await open_gateway(cluster, tmp_path / "gateway")
        again = await send(after)
        assert again.replayed and again.answer == first.answer
        await assert_once(cluster, again)
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_lost_answers_and_moved_leaders_append_nothing_twice(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        lost = cluster.faults.add(PRODUCE, times=3, close_after=True)
        moved = cluster.faults.add(PRODUCE, times=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        answer = await send(gateway)
        assert lost.used == 3 and moved.used == 2
        await assert_once(cluster, answer)

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_write_that_the_cluster_does_not_answer_stays_bound_until_it_does(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        cluster.faults.add(PRODUCE, times=-1, close_after=True, node=1)
        first = await send(gateway)
        assert first.answer is None
        assert {r.error.code.retriable for r in first.results if r.error is not None} == {True}
        cluster.faults.clear()
        second = await send(gateway)
        assert second.answer is not None
        await assert_once(cluster, second)

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_key_whose_records_are_all_refused_is_free_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", configs={"cleanup.policy": "compact"})
        refused = await send(gateway, [NewRecord(key=None, value=b"v")])
        assert refused.answer is None
        assert [r.error.code for r in refused.results if r.error is not None] == [ErrorCode.INVALID_RECORD]
        answer = await send(gateway, body=b"other")
        await assert_once(cluster, answer)

    with_gateway(tmp_path, scenario)


def test_a_retry_after_the_topic_was_created_again_is_a_new_write(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        cluster.faults.add(PRODUCE, times=-1, close_after=True)
        assert (await send(gateway)).answer is None
        cluster.faults.clear()
        await cluster.broker.topics.delete("t")
        await cluster.broker.topics.create("t", partitions=3)
        await asyncio.sleep(2.0)
        await assert_once(cluster, await send(gateway))

    with_gateway(tmp_path, scenario)


def test_a_retry_after_the_brokers_forgot_the_producer_finds_its_records_in_the_log(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        await send(gateway, key="earlier")
        before = len(await stored(cluster.broker))
        # Partition 0 has the records, and the answer is lost; partition 1 does not.
        cluster.faults.add(PRODUCE, times=-1, close_after=True, node=1)
        cluster.faults.add(PRODUCE, times=-1, close_before=True, node=2)
        assert (await send(gateway)).answer is None
        cluster.faults.clear()
        assert before < len(await stored(cluster.broker)) < before + len(RECORDS)
        await cluster.broker.records.produce("t", [NewRecord(key=None, value=b"other")], partition=0)
        await asyncio.sleep(60.0)
        again = await send(gateway)
        await assert_once(cluster, again, more=before + 1)
        assert (await send(gateway)).replayed

    with_gateway(
        tmp_path, scenario, nodes=2, settings={"producer_id_expiration_ms": 20_000}
    )  # fmt: skip


def test_a_late_retry_whose_log_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=1)
        cluster.faults.add(PRODUCE, times=-1, close_after=True)
        assert (await send(gateway)).answer is None
        cluster.faults.clear()
        await cluster.broker.partitions.delete_records([(TopicPartition("t", 0), 12)])
        await asyncio.sleep(60.0)
        with pytest.raises(BrokerError) as refused:
            await send(gateway)
        assert refused.value.details["reason"] == "key-unsettled"
        assert cluster.broker.partitions.offsets(TopicPartition("t", 0)).log_end_offset == 12

    with_gateway(tmp_path, scenario, settings={"producer_id_expiration_ms": 20_000})


def test_two_requests_at_once_append_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        both = await asyncio.gather(send(gateway), send(gateway), return_exceptions=True)
        errors = [one for one in both if isinstance(one, BrokerError)]
        assert [one.code for one in errors] == [ErrorCode.CONCURRENT_TRANSACTIONS]
        (answer,) = [one for one in both if isinstance(one, KeyedAnswer)]
        await assert_once(cluster, answer)

    with_gateway(tmp_path, scenario, nodes=3)


def test_batches_that_are_too_large_for_the_topic_are_split_and_a_large_record_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", configs={"max.message.bytes": "400"})
        large = [NewRecord(key=None, value=b"%03d" % i + b"." * 100) for i in range(12)]
        answer = await send(gateway, large)
        await assert_once(cluster, answer, large)
        assert (await send(gateway, large)).replayed
        refused = await send(gateway, [NewRecord(key=None, value=b"x" * 500)], key="k2")
        assert [r.error.code for r in refused.results if r.error is not None] == [ErrorCode.MESSAGE_TOO_LARGE]
        await assert_once(cluster, answer, large)

    with_gateway(tmp_path, scenario)
