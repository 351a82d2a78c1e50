"""core.transactions.long_transactions: a broker without listeners, over deaths of the process and of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.transactions.long_transactions import CallersTransactions
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from tests.core.transactions.test_transactions import A, B, Client, aborted, die, refused, stable, start

UNKNOWN, ENDED = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_TXN_STATE


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await start(config, clock)
    yield opened
    await opened.close()


def caller(broker: Broker, principal: str = "User:alice") -> CallersTransactions:
    return broker.long_transactions.of(broker, principal)


async def begun(
    broker: Broker, transactional_id: str | None = None, timeout_ms: int = 30_000
) -> tuple[CallersTransactions, str]:
    """Begin, and write a record to each of two topics."""
    client = caller(broker)
    token = (await client.begin(transactional_id, timeout_ms)).id
    for tp in (A, B):
        await client.produce(token, tp.topic, [NewRecord(None, b"v")], acks=-1)
    return client, token


async def reborn(broker: Broker, config: Config, clock: ManualClock) -> Broker:
    await die(broker)
    return await start(config, clock)


@pytest.mark.parametrize("transactional_id", [None, "job"])
async def test_a_crash_after_the_decision_leaves_the_outcome_for_the_retry(
    config: Config, clock: ManualClock, transactional_id: str | None
) -> None:
    broker = await start(config, clock)
    client, token = await begun(broker, transactional_id)
    await client.commit(token)
    broker = await reborn(broker, config, clock)
    await caller(broker).commit(token)
    assert (stable(broker, A), stable(broker, B)) == (2, 2)
    assert await refused(caller(broker).abort(token)) is ENDED
    assert await refused(caller(broker, "User:bob").commit(token)) is UNKNOWN
    await broker.close()


async def test_a_crash_before_the_decision_leaves_no_commit_to_be_guessed(
    config: Config, clock: ManualClock
) -> None:
    broker = await start(config, clock)
    _, token = await begun(broker)
    broker = await reborn(broker, config, clock)
    assert (stable(broker, A), stable(broker, B)) == (2, 2)
    assert (aborted(broker, A), aborted(broker, B)) == ([0], [0])
    for call in (caller(broker).commit(token), caller(broker).abort(token)):
        assert await refused(call) is UNKNOWN
    assert not list(broker.transactions.all())
    await broker.close()


async def test_a_named_one_ends_by_its_time_after_a_crash_or_by_the_next_begin(
    config: Config, clock: ManualClock
) -> None:
    broker = await start(config, clock)
    _, token = await begun(broker, "job")
    broker = await reborn(broker, config, clock)
    assert await refused(caller(broker).commit(token)) is UNKNOWN
    assert (stable(broker, A), stable(broker, B)) == (0, 0)
    await caller(broker).begin("job", 30_000)
    assert (aborted(broker, A), aborted(broker, B)) == ([0], [0])
    await broker.close()


async def test_the_answer_of_a_key_survives_a_crash_with_the_commit(
    config: Config, clock: ManualClock
) -> None:
    broker = await start(config, clock)
    client, token = await begun(broker)
    request = KeyedRequest("topics/a/records", "k", bytes(32))

    async def once(broker: Broker, token: str) -> KeyedAnswer:
        records = [NewRecord(None, b"keyed")]
        return await caller(broker).produce_once(
            token, request, A.topic, records, acks=-1, render=lambda results: b"%d" % results[0].offset
        )

    writing = asyncio.create_task(once(broker, token))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    while True:
        try:
            answer = await once(broker, token)
            break
        except BrokerError as error:
            assert error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(0)
    assert answer.answer == b"1"
    await client.commit(token)
    broker = await reborn(broker, config, clock)
    assert await once(broker, token) == KeyedAnswer(b"1", [], True)
    assert stable(broker, A) == 3
    await broker.close()


async def test_an_outcome_is_kept_as_long_as_an_idempotency_key(config: Config, clock: ManualClock) -> None:
    broker = await start(config, clock)
    client, token = await begun(broker)
    await client.commit(token)
    broker = await reborn(broker, config, clock)
    clock.advance(config.idempotency_ttl_ms / 1000 + 1)
    await broker.idempotency.expire()
    assert await refused(caller(broker).commit(token)) is UNKNOWN
    await broker.close()


async def test_a_transaction_is_that_of_its_principal(broker: Broker) -> None:
    client, token = await begun(broker)
    other = caller(broker, "User:bob")
    records = [NewRecord(None, b"x")]
    for call in (
        other.commit(token),
        other.abort(token),
        other.produce(token, A.topic, records, acks=-1),
    ):
        assert await refused(call) is UNKNOWN
    await client.commit(token)
    assert await refused(other.abort(token)) is UNKNOWN
    assert (stable(broker, A), stable(broker, B)) == (2, 2)


async def test_a_client_that_is_silent_for_too_long_is_aborted(broker: Broker, clock: ManualClock) -> None:
    client, token = await begun(broker, timeout_ms=10_000)
    for _ in range(3):
        clock.advance(9)
        await broker.long_transactions.step()
        client.get(token)
    clock.advance(10)
    await broker.long_transactions.step()
    assert (aborted(broker, A), stable(broker, B)) == ([0], 2)
    with pytest.raises(BrokerError, match="its time was over"):
        await client.commit(token)
    assert not list(broker.transactions.all())


@pytest.mark.parametrize("transactional_id", [None, "job"])
async def test_the_longest_time_ends_a_busy_one_too(
    broker: Broker, clock: ManualClock, transactional_id: str | None
) -> None:
    client, token = await begun(broker, transactional_id)
    longest = broker.config.long_transaction_max_ms / 1000
    for _ in range(int(longest // 20)):
        clock.advance(20)
        await broker.transactions.step()
        await broker.long_transactions.step()
        if len(broker.long_transactions):
            client.get(token)
    assert not len(broker.long_transactions)
    assert (aborted(broker, A), stable(broker, B)) == ([0], 2)
    with pytest.raises(BrokerError, match="its time was over"):
        await client.commit(token)


async def test_of_many_begins_at_once_with_one_id_the_last_is_open(broker: Broker) -> None:
    client = caller(broker)
    results = await asyncio.gather(*(client.begin("job", 1_000) for _ in range(10)), return_exceptions=True)
    tokens = [one.id for one in results if not isinstance(one, BaseException)]
    assert tokens
    open_ones = []
    for token in tokens:
        try:
            await client.produce(token, A.topic, [NewRecord(None, b"v")], acks=-1)
            open_ones.append(token)
        except BrokerError as error:
            assert error.code is ErrorCode.PRODUCER_FENCED
    assert len(open_ones) == 1
    await client.commit(open_ones[0])
    assert stable(broker, A) == 2


async def test_a_producer_of_kafka_and_a_client_of_http_fence_each_other(broker: Broker) -> None:
    kafka = Client(broker, "job")
    await kafka.init()
    await kafka.write(A, "1")
    client, token = await begun(broker, "job")
    assert await refused(kafka.end(commit=True)) is ErrorCode.PRODUCER_FENCED
    await client.commit(token)
    assert (aborted(broker, A), stable(broker, A)) == ([0], 4)


async def test_a_commit_that_the_store_keeps_waiting_is_found_by_the_retry(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    client, token = await begun(broker)
    submit, goes_on = broker.store.submit, asyncio.Event()

    async def slowly(effects: list[object]) -> None:
        await goes_on.wait()
        await submit(effects)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.store, "submit", slowly)
    monkeypatch.setattr(broker.transactions, "_config", replace(broker.config, transaction_hold_ms=1))
    assert await refused(client.commit(token)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert stable(broker, A) == 0
    goes_on.set()
    while not stable(broker, A):
        await asyncio.sleep(0)
    await client.commit(token)
    assert (stable(broker, A), stable(broker, B)) == (2, 2)
