"""Transactions in logs of which the coordinator knows nothing: aborted once, when their log is opened."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.types import TopicPartition
from tests.core.transactional_log import TransactionalLog
from tests.core.transactions.test_transactions import Client

A = TopicPartition("a", 0)


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Broker]:
    """A broker over a directory, which stops in order."""
    broker = Broker(Config(data_dir=directory), ManualClock())
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


async def values(broker: Broker) -> list[bytes | None]:
    got = await broker.records.read(A, 0, max_bytes=100_000, max_records=100)
    return [record.value for record in got.records]


async def test_a_transaction_that_is_unknown_is_aborted_when_its_log_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path) as broker:
        await broker.topics.create("a")
        log = TransactionalLog(broker, A)
        log.write(0, "plain")
        log.write(77, "hangs")
        log.write(0, "after")
        assert await values(broker) == [b"plain"]
    async with started(tmp_path) as broker:
        # No log is opened by a start after a clean stop.
        assert broker.logs.open_count == 0
        with caplog.at_level(logging.WARNING):
            assert await values(broker) == [b"plain", b"after"]
        assert "transaction of producer 77 from offset 1 on belongs to no transactional id" in caplog.text
        assert broker.partitions.offsets(A) == (0, 4, 4, 4)
        assert broker.transactions.totals().hanging == 1
    async with started(tmp_path) as broker:
        assert await values(broker) == [b"plain", b"after"]
        assert broker.partitions.offsets(A) == (0, 4, 4, 4)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_of_a_known_producer_continues_after_a_clean_stop(
    tmp_path: Path, commit: bool
) -> None:
    async with started(tmp_path) as broker:
        await broker.topics.create("a")
        client = Client(broker)
        await client.init()
        await client.write(A, "one")
    async with started(tmp_path) as broker:
        assert broker.logs.open_count == 0
        client.broker = broker
        assert await values(broker) == []
        await client.write(A, "two")
        await client.end(commit=commit)
        assert await values(broker) == ([b"one", b"two"] if commit else [])


async def test_the_end_of_a_transaction_opens_its_log_and_decides(tmp_path: Path) -> None:
    async with started(tmp_path) as broker:
        await broker.topics.create("a")
        client = Client(broker)
        await client.init()
        await client.write(A, "one")
    async with started(tmp_path) as broker:
        client.broker = broker
        await client.end(commit=True)
        assert await values(broker) == [b"one"]
