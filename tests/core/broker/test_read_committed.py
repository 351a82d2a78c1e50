"""Reads of decoded records beside transactions: what is hidden, where reads end, what wakes a wait."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from core.broker.broker import Broker
from core.types import TopicPartition
from tests.core.transactional_log import STEPS, Seen, Step, TransactionalLog, a_bit_of_each, follow

NAMES = itertools.count()


async def made(broker: Broker, codec: int = 0) -> TransactionalLog:
    name = f"t{next(NAMES)}"
    await broker.topics.create(name, configs={"segment.bytes": "1000"})
    return TransactionalLog(broker, TopicPartition(name, 0), codec=codec)


async def everything(
    log: TransactionalLog,
    offset: int = 0,
    *,
    committed: bool = True,
    max_bytes: int = 1,
    max_records: int = 3,
) -> tuple[Seen, int]:
    """All that reads give from an offset on, and the offset at which the last one ends."""
    seen: Seen = []
    while True:
        got = await log.broker.records.read(
            log.tp, offset, max_bytes=max_bytes, max_records=max_records, committed=committed
        )
        seen += [(record.offset, record.value or b"") for record in got.records]
        if not got.records:
            return seen, got.next_offset
        assert got.next_offset > offset
        offset = got.next_offset


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("max_bytes", [1, 300, 1_000_000])
async def test_committed_reads_hide_what_is_open_or_aborted(
    broker: Broker, codec: int, max_bytes: int
) -> None:
    log = await made(broker, codec)
    a_bit_of_each(log)
    for offset in range(log.stable + 1):
        assert await everything(log, offset, max_bytes=max_bytes) == (log.seen(offset), log.stable)
    uncommitted = await everything(log, committed=False, max_bytes=max_bytes)
    assert uncommitted == (log.seen(committed=False), log.end_offset)
    assert [value for _, value in log.seen()] == [
        b"plain", b"c1", b"c2", b"between", b"c3", b"second committed",
    ]  # fmt: skip


@given(steps=STEPS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
async def test_any_history_is_read_as_the_model_says(broker: Broker, steps: Sequence[Step]) -> None:
    log = await made(broker)
    follow(log, steps)
    assert await everything(log) == (log.seen(), log.stable)
    assert await everything(log, committed=False) == (log.seen(committed=False), log.end_offset)
    offsets = broker.partitions.offsets(log.tp)
    assert (offsets.last_stable_offset, offsets.high_watermark) == (log.stable, log.end_offset)


async def test_a_read_at_once_moves_past_hidden_batches_and_ends_at_the_last_stable_offset(
    broker: Broker,
) -> None:
    log = await made(broker)
    log.write(1, "x")
    log.end(1, commit=False)
    log.write(2, "open")
    got = broker.records.read_now(log.tp, 0, max_bytes=1, max_records=10)
    assert (got.records, got.next_offset) == ([], 1)
    got = broker.records.read_now(log.tp, 1, max_bytes=1, max_records=10)
    assert (got.records, got.next_offset) == ([], 2)
    got = broker.records.read_now(log.tp, 2, max_bytes=1, max_records=10)
    assert (got.records, got.next_offset) == ([], 2)
    # Beyond the last stable offset there is nothing, and it is no error.
    got = broker.records.read_now(log.tp, 3, max_bytes=1, max_records=10)
    assert (got.records, got.next_offset) == ([], 3)


async def test_a_wait_ends_when_the_last_stable_offset_moves_and_not_for_data_of_open_transactions(
    broker: Broker,
) -> None:
    log = await made(broker)
    log.write(1, "first")
    first = broker.records.read_now(log.tp, 0, max_bytes=1000, max_records=10)
    waiting = asyncio.ensure_future(
        broker.records.read(log.tp, 0, max_bytes=1000, max_records=10, wait_ms=20_000, first=first)
    )
    for i in range(3):
        log.write(1, f"more {i}")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
    log.end(1, commit=True)
    got = await asyncio.wait_for(waiting, 20)
    assert [record.value for record in got.records] == [b"first", b"more 0", b"more 1", b"more 2"]


async def test_a_wait_continues_after_an_abort(broker: Broker) -> None:
    log = await made(broker)
    log.write(1, "gone")
    waiting = asyncio.ensure_future(
        broker.records.read(log.tp, 0, max_bytes=1000, max_records=10, wait_ms=20_000)
    )
    await asyncio.sleep(0)
    log.end(1, commit=False)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    log.write(0, "here")
    got = await asyncio.wait_for(waiting, 20)
    assert [(record.offset, record.value) for record in got.records] == [(2, b"here")]


async def test_bytes_of_open_transactions_do_not_count(broker: Broker) -> None:
    log = await made(broker)
    log.write(1, "x" * 500)
    waiting = asyncio.ensure_future(
        broker.records.read(log.tp, 0, max_bytes=10_000, max_records=10, wait_ms=20_000, min_bytes=300)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    log.end(1, commit=True)
    assert len((await asyncio.wait_for(waiting, 20)).records) == 1
