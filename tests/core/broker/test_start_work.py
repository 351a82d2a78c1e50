"""A start after a kill reads what came after the last checkpoint, and not the history. Counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from core.log import log as log_module
from core.log.checkpoint_task import CheckpointTask
from core.log.segment import Segment
from core.records.batch import build_batch, check_crc
from core.records.header import BatchHeader
from core.records.record import NewRecord
from core.types import TopicPartition as Tp
from core.vocabulary.one_shot import OneShot
from tests.core.consumers.consumer_world import World
from tests.core.transactions.test_one_shots import ONE_SHOTS, render

TOPICS = ("t", "orders", "audit")
LIVES = 12
WRITES = 40
# Headers that a start reads at most to find its places in one log: four searches, in an index with an entry for each
# 4096 bytes.
SEARCH = 4 * 4096 // 70


class Work:
    """The batches that starts read: with their checksums, and headers alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checked = 0
        self.walked = 0
        walk = Segment.walk

        def counted_check(*arguments: Any) -> bool:
            self.checked += 1
            return check_crc(*arguments)

        def counted_walk(segment: Segment, *arguments: Any) -> Iterator[tuple[int, BatchHeader]]:
            for one in walk(segment, *arguments):
                self.walked += 1
                yield one

        monkeypatch.setattr("core.log.scan.check_crc", counted_check)
        monkeypatch.setattr(Segment, "walk", counted_walk)

    async def of_a_kill(self, w: World) -> tuple[int, int]:
        """Kill the broker; return what its next start has read."""
        self.checked = self.walked = 0
        await w.kill()
        return self.checked, self.walked


async def write(w: World) -> None:
    """Single batches, and transactions of one request: their records and markers are in two partitions."""
    for number in range(WRITES):
        await asyncio.sleep(0.001)
        await w.produce(1)
        value = [NewRecord(None, b"%d" % number)]
        await ONE_SHOTS.commit(w.broker, OneShot({"orders": value, "audit": value}, [], []), render, None)


@pytest.mark.parametrize("pause", [0.0, 1.0], ids=["killed at once", "idle for a second"])
async def test_a_start_reads_what_came_after_the_one_before_it(
    w: World, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    for topic in TOPICS:
        await w.topic(topic)
    work = Work(monkeypatch)
    of_a_life = WRITES * 5
    for life in range(LIVES):
        # Far less than the interval of checkpoints.
        await write(w)
        await asyncio.sleep(pause)
        checked, walked = await work.of_a_kill(w)
        assert checked == of_a_life, life
        assert walked <= of_a_life + len(TOPICS) * SEARCH, life
    assert w.broker.partitions.offsets(Tp("orders", 0)).last_stable_offset == LIVES * WRITES * 2


async def test_many_records_without_a_producer_are_walked_over_once(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SNAPSHOT_RECORDS", 30)
    await w.topic("t")
    work = Work(monkeypatch)
    for _ in range(LIVES):
        for _ in range(WRITES):
            await asyncio.sleep(0.001)
            await w.produce(1)
        checked, walked = await work.of_a_kill(w)
        assert checked == WRITES
        assert walked <= WRITES + SEARCH


async def test_records_that_come_during_a_checkpoint_do_not_undo_it(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in TOPICS:
        await w.topic(topic)
    for _ in range(6):
        await write(w)
    logs = w.broker.logs
    begin = logs.begin_checkpoint

    def begin_after_an_append() -> CheckpointTask:
        for topic in TOPICS:
            w.broker.partitions.append(
                Tp(topic, 0), memoryview(build_batch([NewRecord(None, b"late")], now_ms=1))
            )
        return begin()

    monkeypatch.setattr(logs, "begin_checkpoint", begin_after_an_append)
    await w.broker.checkpoint()
    work = Work(monkeypatch)
    checked, walked = await work.of_a_kill(w)
    assert checked == len(TOPICS)
    assert walked <= len(TOPICS) * (SEARCH + 1)
