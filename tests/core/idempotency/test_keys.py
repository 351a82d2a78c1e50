"""core.idempotency.keys: once for each key, whatever is repeated and wherever the process dies."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.idempotency import totals
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.idempotency import KEY_REUSED
from tests.core.idempotency.keyed_writes import RECORDS, SMALL, assert_once, request, send, stored

SETTINGS = {"idempotency_max_producers": 20}


async def keys(broker: Broker) -> int:
    return (await broker.store.read(totals)).keys


# --- the rules of a key -------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_the_same_request_is_written_once_and_gets_the_same_answer(broker: Broker, acks: int) -> None:
    await broker.topics.create("t", partitions=3, configs=SMALL)
    first = await send(broker, acks=acks)
    again = [await send(broker, acks=acks) for _ in range(3)]
    assert not first.replayed and all(a.replayed for a in again)
    assert {a.answer for a in again} == {first.answer}
    await assert_once(broker, first)


async def test_another_key_or_path_is_another_request(broker: Broker) -> None:
    await broker.topics.create("t")
    others: list[dict[str, Any]] = [{"key": "a"}, {"key": "b"}, {"key": "a", "path": "topics/other/records"}]
    for named in others:
        assert not (await send(broker, RECORDS[:1], **named)).replayed
    assert len(await stored(broker)) == 3


async def test_the_key_of_another_principal_is_another_key(broker: Broker) -> None:
    assert request().digest != request()._replace(principal="somebody").digest


async def test_a_key_with_another_body_is_refused(broker: Broker) -> None:
    await broker.topics.create("t")
    await send(broker)
    with pytest.raises(BrokerError) as caught:
        await send(broker, body=b"other")
    assert (caught.value.code, caught.value.details["reason"]) == (ErrorCode.INVALID_REQUEST, KEY_REUSED)
    assert len(await stored(broker)) == len(RECORDS)


async def test_a_request_that_is_under_way_is_not_begun_again(broker: Broker) -> None:
    await broker.topics.create("t")
    first = asyncio.ensure_future(send(broker))
    await asyncio.sleep(0)
    with pytest.raises(BrokerError) as caught:
        await send(broker)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(BrokerError) as caught:
        await send(broker, body=b"other")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    await first
    assert (await send(broker)).replayed


async def test_a_request_of_which_nothing_is_taken_leaves_its_key_free(broker: Broker) -> None:
    await broker.topics.create("t", configs={"cleanup.policy": "compact"})
    refused = await send(broker, [NewRecord(value=b"without key")])
    assert refused.answer is None and refused.results[0].error is not None
    assert await keys(broker) == 0
    taken = await send(broker, RECORDS[:1], body=b"other")
    assert taken.answer is not None and not taken.replayed


async def test_what_is_taken_in_part_is_answered_the_same_again(broker: Broker) -> None:
    await broker.topics.create("t", partitions=2)
    records = [NewRecord(value=b"a", partition=0), NewRecord(value=b"b", partition=7)]
    first = await send(broker, records)
    assert [r.error is None for r in first.results] == [True, False]
    again = await send(broker, records)
    assert again.replayed and again.answer == first.answer
    assert await stored(broker) == [(0, 0, b"a")]


async def test_a_batch_that_is_refused_leaves_no_gap_before_the_next(broker: Broker) -> None:
    await broker.topics.create("t", configs=SMALL)
    records = [*RECORDS[:3], NewRecord(value=b"x" * 1000), *RECORDS[3:]]
    for key in ("a", "b", "c"):
        first = await send(broker, records, key=key)
        assert [i for i, r in enumerate(first.results) if r.error is not None] == [3]
        assert (await send(broker, records, key=key)).answer == first.answer
    assert len(await stored(broker)) == 3 * len(RECORDS)


async def test_a_stored_answer_outlives_its_topic_and_does_not_bring_it_back(broker: Broker) -> None:
    first = await send(broker)
    await broker.topics.delete("t")
    assert (await send(broker)).answer == first.answer
    with pytest.raises(BrokerError):
        broker.topics.get("t")


async def test_a_large_answer_comes_back_whole(broker: Broker) -> None:
    await broker.topics.create("t")
    records = [NewRecord(value=b"v")] * 5000
    first = await send(broker, records)
    assert first.answer is not None and len(first.answer) > 50_000
    assert (await send(broker, records)).answer == first.answer
    assert (await broker.store.read(totals)).size < len(first.answer)


async def test_a_request_of_too_many_batches_is_refused_before_anything(broker: Broker) -> None:
    await broker.topics.create("t", configs={"max.message.bytes": "100"})
    with pytest.raises(BrokerError) as caught:
        await send(broker, [NewRecord(value=b"v" * 10)] * 1000)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert await keys(broker) == 0 and not await stored(broker)


async def test_too_many_at_once_are_told_to_wait(broker: Broker) -> None:
    await broker.topics.create("t")
    outcomes = await asyncio.gather(
        *(send(broker, RECORDS[:1], key=f"{n}") for n in range(30)), return_exceptions=True
    )
    refused = [o.code for o in outcomes if isinstance(o, BrokerError)]
    assert refused == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 10
    assert len(await stored(broker)) == 20
    await keys(broker)  # the answers are stored, and their producers free
    assert not isinstance(await send(broker, RECORDS[:1], key="later"), Exception)


async def test_a_thousand_keys_need_few_producers(broker: Broker) -> None:
    await broker.topics.create("t", partitions=2)
    for n in range(200):
        await send(broker, RECORDS[:4], key=f"{n}", acks=-1)
    producers = [len(list(broker.partitions.active_producers(TopicPartition("t", p)))) for p in (0, 1)]
    assert max(producers) <= 2
    await keys(broker)  # the last answer is stored, and its producer free
    await asyncio.gather(*(send(broker, RECORDS[:4], key=f"w{n}") for n in range(20)))
    producers = [len(list(broker.partitions.active_producers(TopicPartition("t", p)))) for p in (0, 1)]
    assert max(producers) <= 20


# --- age and number -----------------------------------------------------------------------------------------


async def test_a_key_is_kept_for_a_day(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("t")
    await send(broker, RECORDS[:1])
    clock.advance(86_400)
    assert (await send(broker, RECORDS[:1])).replayed
    clock.advance(1)
    assert not (await send(broker, RECORDS[:1], body=b"other")).replayed


async def test_old_keys_are_removed_in_the_background(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("t")
    for key in ("a", "b"):
        await send(broker, RECORDS[:1], key=key)
    clock.advance(80_000)
    await send(broker, RECORDS[:1], key="c")
    await broker.idempotency.expire()
    assert await keys(broker) == 3
    clock.advance(7_000)
    await broker.idempotency.expire()
    assert await keys(broker) == 1
    assert (await send(broker, RECORDS[:1], key="c")).replayed


async def test_a_clock_that_jumps_a_day_forgets_no_key(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("t")
    await send(broker, RECORDS[:1])
    for days in (2, -4, 2):
        clock.jump_wall(days * 86_400)
        clock.advance(60)
        await broker.idempotency.expire()
        assert (await send(broker, RECORDS[:1])).replayed


@pytest.mark.parametrize("limit", [{"idempotency_max_keys": 5}, {"idempotency_max_bytes": 3_000}])
async def test_beyond_their_number_the_oldest_keys_are_forgotten(
    tmp_path: Path, clock: ManualClock, limit: dict[str, int]
) -> None:
    broker = Broker(Config(data_dir=tmp_path, **limit), clock)  # type: ignore[arg-type]
    await broker.open()
    await broker.topics.create("t")
    for n in range(40):
        clock.advance(1)
        await send(broker, RECORDS[:1], key=f"{n:02}")
    # Long before the next check, for there are far too many.
    assert await keys(broker) < 20
    async with asyncio.timeout(10):
        # An expiration that a write has begun may still run; this one then leaves the keys to it.
        while True:
            await broker.idempotency.expire()
            left = await broker.store.read(totals)
            if left.keys <= 5 or left.size <= 3_000 == limit.get("idempotency_max_bytes"):
                break
            await asyncio.sleep(0.001)
    assert left.keys == 5 or 2_500 < left.size <= 3_000
    assert (await send(broker, RECORDS[:1], key="39")).replayed
    assert not (await send(broker, RECORDS[:1], key="00")).replayed
    await broker.close()


# --- disks that refuse --------------------------------------------------------------------------------------


def refusing(*_: Any, **__: Any) -> Any:
    raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")


async def test_a_key_that_cannot_be_stored_refuses_before_any_append(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t")
    await send(broker, RECORDS[:1], key="warm")

    def broken(_: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(_raise())

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "read", broken)
        with pytest.raises(BrokerError) as caught:
            await send(broker)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(await stored(broker)) == 1
    assert not (await send(broker)).replayed
    assert len(await stored(broker)) == 1 + len(RECORDS)


async def _raise() -> None:
    refusing()


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_an_answer_that_cannot_be_stored_is_found_in_the_log(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await broker.topics.create("t", partitions=3, configs=SMALL | {"message.timestamp.type": kind})
    await broker.producer_ids.next()
    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "submit", refusing)
        first = await send(broker)
    clock.advance(60)
    again = await send(broker)
    assert again.replayed and again.answer == first.answer
    await assert_once(broker, again)


async def test_a_write_that_a_disk_stopped_half_way_is_completed_by_its_repetition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t", partitions=3, configs=SMALL)
    append, done = broker.partitions.append, count()

    def full(*args: Any, **named: Any) -> Any:
        return refusing() if next(done) >= 2 else append(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(broker.partitions, "append", full)
        first = await send(broker)
    assert first.answer is None and {r.error is None for r in first.results} == {True, False}
    second = await send(broker)
    assert not second.replayed
    await assert_once(broker, second)
    taken = [(r.partition, r.offset, r.timestamp) for r in first.results if r.error is None]
    assert set(taken) <= {(r.partition, r.offset, r.timestamp) for r in second.results}


async def test_an_fsync_that_fails_does_not_use_the_key_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t")

    def failed(*_: Any) -> asyncio.Future[None]:
        return asyncio.ensure_future(_raise())

    with monkeypatch.context() as patched:
        patched.setattr(broker.partitions, "durable", failed)
        first = await send(broker)
    assert first.answer is None and all(r.error is not None for r in first.results)
    again = await send(broker)
    assert again.replayed
    await assert_once(broker, again)


async def test_a_plan_for_a_topic_that_is_deleted_is_void(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t")
    with monkeypatch.context() as patched:
        patched.setattr(broker.partitions, "append", refusing)
        await send(broker)
    await broker.topics.delete("t")
    await broker.topics.create("t", partitions=2)
    await assert_once(broker, await send(broker))


async def test_a_topic_that_has_grown_meanwhile_gets_the_records_where_they_were_planned(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t", partitions=2)
    append, done = broker.partitions.append, count()

    def full(*args: Any, **named: Any) -> Any:
        return refusing() if next(done) else append(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(broker.partitions, "append", full)
        await send(broker)
    await broker.topics.create_partitions("t", 7)
    answer = await send(broker)
    await assert_once(broker, answer)
    assert {r.partition for r in answer.results} == {0, 1}
