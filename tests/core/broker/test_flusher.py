"""core.broker.flusher: one fsync for all who wait, another for those who came meanwhile, failure for all."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from core.broker.flusher import Flusher
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition


class FakeLog:
    topic_partition = TopicPartition("t", 0)

    def __init__(self) -> None:
        self.end = 0
        self.flushed_offset = 0
        self.tasks: list[FakeTask] = []
        self.failure: OSError | None = None
        self.error: OSError | None = None
        self.gate = threading.Event()

    def begin_flush(self) -> Any:
        if self.failure is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "failed before")
        if self.flushed_offset == self.end:
            return None
        self.tasks.append(FakeTask(self))
        return self.tasks[-1]

    def finish_flush(self, task: FakeTask, error: OSError | None) -> None:
        if error is not None:
            self.failure = error
        else:
            self.flushed_offset = task.end


class FakeTask:
    def __init__(self, log: FakeLog) -> None:
        self.log, self.end = log, log.end

    def run(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert self.log.gate.wait(10)
        if self.log.error is not None:
            raise self.log.error


@pytest.fixture
def flusher():
    made = Flusher(2)
    yield made
    made.close()


async def settle() -> None:
    await asyncio.sleep(0.02)


async def test_waiters_of_one_turn_share_one_fsync_and_later_ones_the_next(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.end = 10
    first = [flusher.durable(log, offset) for offset in (3, 7, 10)]
    await settle()
    log.end = 20
    second = [flusher.durable(log, offset) for offset in (15, 20)]
    assert len(log.tasks) == 1 and not any(f.done() for f in [*first, *second])
    log.gate.set()
    await asyncio.gather(*first, *second)
    assert [t.end for t in log.tasks] == [10, 20]
    assert flusher.durable(log, 20) is None
    assert not flusher._logs


async def test_logs_do_not_wait_for_each_other(flusher: Flusher) -> None:
    slow: Any = FakeLog()
    fast: Any = FakeLog()
    slow.end = fast.end = 1
    fast.gate.set()
    waiting = flusher.durable(slow, 1)
    await asyncio.wait_for(flusher.durable(fast, 1), 5)
    assert not waiting.done()
    slow.gate.set()
    await waiting


async def test_a_failed_fsync_is_told_to_all_and_never_tried_again(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.end, log.error = 5, OSError(5, "Input/output error")
    waits = [flusher.durable(log, 5), flusher.durable(log, 4)]
    log.gate.set()
    for waiting in waits:
        with pytest.raises(BrokerError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(BrokerError):
        await flusher.durable(log, 5)
    assert len(log.tasks) == 1
