"""core.broker.flusher: one fsync for all waiting requests, another for later ones, failure for all."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from core.broker.flusher import PATIENCE_SECONDS, Flusher, Work, _Cycle
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition


class FakeLog:
    tp = TopicPartition("t", 0)

    def __init__(self) -> None:
        self.end = 0
        self.flushed_offset = 0
        self.tasks: list[FakeTask] = []
        self.begun = 0
        self.threads: list[int] = []
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

    def begin(self) -> None:
        self.log.begun += 1

    def run(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.log.threads.append(threading.get_ident())
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
    assert not flusher._waiting


async def test_a_cycle_leaves_nothing_to_the_collector(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.gate.set()
    gc.collect()
    # Brokers of other tests of this process keep their last ones.
    before = _cycles()
    gc.disable()
    try:
        for end in range(1, 20):
            log.end = end
            await flusher.durable(log, end)
        left = [one for one in _cycles() if not any(one is other for other in before)]
    finally:
        gc.enable()
    # The threads and the timer hold the last ones.
    assert len(left) <= 4


def _cycles() -> list[Work | _Cycle]:
    return [one for one in gc.get_objects() if isinstance(one, Work | _Cycle)]


async def test_logs_do_not_wait_for_each_other(flusher: Flusher) -> None:
    slow: Any = FakeLog()
    fast: Any = FakeLog()
    slow.end = fast.end = 1
    fast.gate.set()
    waiting = flusher.durable(slow, 1)
    await asyncio.wait_for(flusher.durable(fast, 1), 60)
    assert not waiting.done()
    slow.gate.set()
    await waiting


async def test_logs_with_waiters_share_a_cycle(flusher: Flusher) -> None:
    logs: list[Any] = [FakeLog() for _ in range(5)]
    for log in logs:
        log.end = 1
        log.gate.set()
    await asyncio.gather(*[flusher.durable(log, 1) for log in logs])
    assert [len(log.tasks) for log in logs] == [log.begun for log in logs] == [1] * 5


async def test_the_logs_of_a_cycle_are_flushed_side_by_side(flusher: Flusher) -> None:
    logs: list[Any] = [FakeLog() for _ in range(2)]
    for log in logs:
        log.end = 1
    waits = [flusher.durable(log, 1) for log in logs]
    while not all(log.threads for log in logs):  # neither has ended
        await asyncio.sleep(0.001)
    for log in logs:
        log.gate.set()
    await asyncio.gather(*waits)


async def test_the_waiters_of_a_cycle_are_answered_in_one_turn_of_the_loop(flusher: Flusher) -> None:
    logs: list[Any] = [FakeLog() for _ in range(5)]
    turns: list[int] = []
    turn = 0
    for log in logs:
        log.end = 1
        log.gate.set()
        flusher.durable(log, 1).add_done_callback(lambda _: turns.append(turn))
    while len(turns) < 5:
        turn += 1
        await asyncio.sleep(0)
    assert len(set(turns)) == 1


async def test_a_failed_fsync_harms_no_other_log_of_its_cycle(flusher: Flusher) -> None:
    before: Any = FakeLog()
    bad: Any = FakeLog()
    after: Any = FakeLog()
    bad.error = OSError(5, "Input/output error")
    for log in (before, bad, after):
        log.end = 1
        log.gate.set()
    waits = [flusher.durable(log, 1) for log in (before, bad, after)]
    with pytest.raises(BrokerError) as refused:
        await waits[1]
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.gather(waits[0], waits[2])
    assert bad.failure is not None and len(bad.tasks) == 1


async def test_while_one_log_is_slow_the_others_have_cycle_after_cycle(flusher: Flusher) -> None:
    slow: Any = FakeLog()
    fast: Any = FakeLog()
    slow.end = 1
    waiting = flusher.durable(slow, 1)
    fast.gate.set()
    for number in range(1, 20):
        fast.end = number
        await asyncio.wait_for(flusher.durable(fast, number), 60)
    assert not waiting.done() and flusher._free() == 1
    # Later requests for the slow log are served by its next flush.
    slow.end = 2
    late = flusher.durable(slow, 2)
    slow.gate.set()
    await asyncio.gather(waiting, late)
    assert [task.end for task in slow.tasks] == [1, 2]


async def test_no_more_cycles_run_at_once_than_there_are_threads(flusher: Flusher) -> None:
    logs: list[Any] = [FakeLog() for _ in range(3)]
    waits = []
    for log in logs:
        log.end = 1
        waits.append(flusher.durable(log, 1))
        await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert [len(log.tasks) for log in logs] == [1, 1, 0]
    for log in logs:
        log.gate.set()
    await asyncio.gather(*waits)


async def test_records_that_were_truncated_during_a_wait_are_refused(flusher: Flusher) -> None:
    log: Any = FakeLog()
    log.end = 5
    waiting = flusher.durable(log, 5)
    log.end = log.flushed_offset = 3
    with pytest.raises(BrokerError) as refused:
        await asyncio.wait_for(waiting, 60)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


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
