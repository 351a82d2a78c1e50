"""What a broker holds, counted without opening a log and without holding others up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.holdings import GroupLag, TopicTotals
from tests.core.transactional_log import TransactionalLog


async def opened(path: Path) -> Broker:
    broker = Broker(Config(data_dir=path), Clock())
    await broker.open()
    return broker


async def test_totals_of_open_and_closed_logs_are_the_same_and_nothing_is_opened(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.topics.create("a", partitions=3)
    await broker.topics.create("b")
    await broker.records.produce("a", [NewRecord(value=b"x" * 100, partition=p) for p in (0, 0, 1)])
    await broker.groups.commit("g", CommitRequest([Commit("a", 0, 1), Commit("a", 1, 0), Commit("b", 0, 0)]))
    before = await broker.holdings(10, 10)
    assert before.open_logs == 2
    size = before.topics[0].size
    assert size > 300
    assert before.topics == [TopicTotals("a", 3, size, 3, 3), TopicTotals("b", 1, 0, 0, 0)]
    assert set(before.lags) == {GroupLag("g", "a", 2), GroupLag("g", "b", 0)}
    await broker.close()

    broker = await opened(tmp_path)
    after = await broker.holdings(10, 10)
    assert after == before._replace(open_logs=0)
    await broker.close()


async def test_what_is_beyond_the_limits_is_counted_and_the_oldest_topics_stay(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    for name in ("z", "y", "x"):
        await broker.topics.create(name)
        await asyncio.sleep(0.002)
        await broker.groups.commit("g", CommitRequest([Commit(name, 0, 0)]))
    held = await broker.holdings(2, 1)
    assert ([t.name for t in held.topics], held.topics_left_out, held.partitions) == (["z", "y"], 1, 3)
    assert (len(held.lags), held.lags_left_out, held.groups) == (1, 2, 1)
    await broker.close()


async def test_lag_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.topics.create("a")
    log = TransactionalLog(broker, TopicPartition("a", 0))
    log.write(0, "plain")
    log.write(1, "open")
    log.write(0, "after")
    await broker.groups.commit("g", CommitRequest([Commit("a", 0, 0)]))
    assert (await broker.holdings(2, 1)).lags == [GroupLag("g", "a", 1)]
    log.end(1, commit=True)
    assert (await broker.holdings(2, 1)).lags == [GroupLag("g", "a", 4)]
    await broker.close()


async def test_a_topic_that_is_deleted_leaves_no_lag(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.topics.create("a")
    await broker.groups.commit("g", CommitRequest([Commit("a", 0, 0)]))
    await broker.topics.delete("a")
    held = await broker.holdings(2, 1)
    assert (held.topics, held.lags) == ([], [])
    await broker.close()
