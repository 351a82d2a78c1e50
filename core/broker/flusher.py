"""Shared fsync: flush cycles over all logs that have waiters, and one wake-up of the loop for each cycle.

Theory. A waiter needs the records of a log below an offset on the disk. The first waiter starts a cycle one turn of
the loop later. The cycle takes every log that has waiters, and a few threads make them durable together: the kernel
first begins to write the files of all, then a thread waits for each, so that the file system commits its journal
once for many of them. When the last is done, the loop wakes once, answers all waiters, and starts the next cycle
with the logs that have waiters by then. Under load a cycle serves all appends that happened during the one before.

A log is in one cycle at a time. A log that takes long (a gigabyte before a checkpoint) does not hold up the others:
after `PATIENCE_SECONDS` those that are done are answered, and those that came since get a cycle of their own, as
long as there is a thread.

After an fsync that failed the log itself refuses further appends (see `core.log`): the kernel may have thrown
the dirty pages away, and a second fsync that succeeds proves nothing. The other logs of the cycle are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

from core.clock import Clock
from core.counters import Counters
from core.errors import BrokerError, ErrorCode
from core.log.flush import FlushTask
from core.log.log import Log

# How long a cycle may take before others continue without it: several fsyncs of a good disk.
PATIENCE_SECONDS = 0.05

_Waiter = tuple[int, asyncio.Future[None]]


class _Flushed(NamedTuple):
    """How the flush of one log ended, and how long it took in seconds."""

    log: Log
    task: FlushTask
    error: BaseException | None
    seconds: float


class Work:
    """Steps that a few threads carry out together. Each step blocks; none raises."""

    __slots__ = ("_done", "_lock", "_steps", "workers")

    def __init__(self, steps: Iterable[Callable[[], None]], workers: int, done: Callable[[], object]) -> None:
        self._steps = deque(steps)
        self._done = done
        self._lock = Lock()
        # Threads that have not ended yet.
        self.workers = workers

    def next_step(self) -> Callable[[], None] | None:
        """Take the next step; None at the end. The last worker that gets None has `done` called first."""
        with contextlib.suppress(IndexError):
            return self._steps.popleft()
        with self._lock:
            self.workers -= 1
            last = not self.workers
        if last:
            self._done()
        return None


class FlushThreads:
    """Threads that take work from one queue. They start with the first work.

    A thread pool of the standard library makes a future, a lock and three turns of the loop for each call; here
    it is one queue, and one wake-up of the loop for all steps of a work.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: list[Thread] = []
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    def run(self, steps: Iterable[Callable[[], None]], workers: int, done: Callable[[], None]) -> Work:
        """Run the steps in this many threads, in order, then `done` on the running loop. No step may raise."""
        while len(self._threads) < min(workers, self._count):
            self._start()
        loop = asyncio.get_running_loop()
        work = Work(steps, workers, lambda: loop.call_soon_threadsafe(done))
        for _ in range(workers):
            self._queue.put(work)
        return work

    def close(self) -> None:
        """Wait for the work that was given, and end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start(self) -> None:
        thread = Thread(target=self._work, name=f"fsync_{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            while (step := work.next_step()) is not None:
                step()


class _Cycle:
    """Flushes of several logs, and how each ended. `ended` is filled by threads and emptied on the loop."""

    __slots__ = ("_now", "_tasks", "ended", "work")

    def __init__(self, jobs: Iterable[tuple[Log, FlushTask]], now: Callable[[], float]) -> None:
        self._tasks = list(jobs)
        self._now = now
        self.ended: deque[_Flushed] = deque()
        self.work: Work | None = None

    def steps(self) -> list[Callable[[], None]]:
        """What threads do: let the kernel begin with all files, then wait for each."""
        flushes: list[Callable[[], None]] = [partial(self._flush, log, task) for log, task in self._tasks]
        return [self._begin, *flushes] if len(flushes) > 1 else flushes

    def _begin(self) -> None:
        for _, task in self._tasks:
            task.begin()

    def _flush(self, log: Log, task: FlushTask) -> None:
        start = self._now()
        error: BaseException | None = None
        try:
            task.run()
        except BaseException as raised:
            error = raised
        self.ended.append(_Flushed(log, task, error, self._now() - start))


class Flusher:
    """The fsyncs of all logs, in cycles over a few threads."""

    def __init__(self, threads: int, counters: Counters | None = None, clock: Clock | None = None) -> None:
        self._threads = FlushThreads(threads)
        self._most = threads
        self._counters = counters or Counters()
        self._clock = clock or Clock()
        # The waiting callers, by log; for a log in a cycle, also those that the cycle may serve.
        self._waiting: dict[Log, list[_Waiter]] = {}
        # The logs whose flush is under way, and the cycles that are.
        self._flushing: set[Log] = set()
        self._cycles: list[_Cycle] = []
        # The cycle whose end the next one waits for, and when that ends at the latest.
        self._current: _Cycle | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        # Kept, because asking which loop runs is a system call each time.
        self._loop: asyncio.AbstractEventLoop | None = None

    def durable(self, log: Log, offset: int) -> asyncio.Future[None] | None:
        """A future that is done once everything below `offset` is on disk; None if it is already.

        It fails with KAFKA_STORAGE_ERROR if the disk refuses.
        """
        if log.flushed_offset >= offset:
            return None
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters = self._waiting.get(log)
        if waiters is None:
            waiters = self._waiting[log] = []
            self._arrange()
        waiters.append((offset, future))
        return future

    def close(self) -> None:
        """Wait for the fsyncs under way and end the threads."""
        self._threads.close()

    def _arrange(self) -> None:
        """Have a cycle begin one turn later, so that appends of the same turn share it; unless one is waited for."""
        if self._current is None and not self._scheduled and self._free():
            assert self._loop is not None
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def _free(self) -> int:
        """How many threads have nothing to do."""
        return self._most - sum([cycle.work.workers for cycle in self._cycles if cycle.work is not None])

    def _begin(self) -> None:
        """Start a cycle with all logs that have waiters and are not in a cycle."""
        self._scheduled = False
        jobs: list[tuple[Log, FlushTask]] = []
        for log in [log for log in self._waiting if log not in self._flushing]:
            try:
                task = log.begin_flush()
            except BrokerError as refusal:
                self._fail(log, refusal)
                continue
            if task is None:
                self._answer(log, nothing_left=True)
            else:
                jobs.append((log, task))
        if not jobs:
            return
        self._flushing.update(log for log, _ in jobs)
        cycle = self._current = _Cycle(jobs, self._clock.monotonic)
        assert self._loop is not None
        self._timer = self._loop.call_later(PATIENCE_SECONDS, self._overtake, cycle)
        workers = max(1, min(self._free(), len(jobs)))
        self._cycles.append(cycle)
        # Last, because the threads cannot run Python before this one waits for the network.
        cycle.work = self._threads.run(cycle.steps(), workers, lambda: self._done(cycle))

    def _overtake(self, cycle: _Cycle) -> None:
        """A log of the cycle takes long: answer for the logs that are done, and let the others continue."""
        self._settle(cycle)
        self._current = None
        if self._waiting:
            self._arrange()

    def _done(self, cycle: _Cycle) -> None:
        """End a cycle after its last thread: answer all callers that it served, then start the next cycle."""
        self._cycles.remove(cycle)
        # It refers to the cycle: the two of each fsync, 2 KB, would wait for Python's collector.
        cycle.work = None
        if cycle is self._current:
            self._current = None
            if self._timer is not None:
                self._timer.cancel()
        self._settle(cycle)
        if self._waiting:
            self._arrange()

    def _settle(self, cycle: _Cycle) -> None:
        while cycle.ended:
            log, task, error, seconds = cycle.ended.popleft()
            self._flushing.discard(log)
            if error is None:
                self._counters.fsyncs.note(seconds)
                log.finish_flush(task, None)
                self._answer(log)
                continue
            self._counters.failed_fsyncs += 1
            failure = error if isinstance(error, OSError) else OSError(str(error))
            log.finish_flush(task, failure)
            message = f"The disk could not make {log.tp} durable ({error})."
            self._fail(log, BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message))

    def _answer(self, log: Log, *, nothing_left: bool = False) -> None:
        """Answer the callers whose offset is flushed. With `nothing_left` no fsync can serve the others."""
        flushed = log.flushed_offset
        left: list[_Waiter] = []
        for offset, future in self._waiting.pop(log, ()):
            if offset > flushed:
                left.append((offset, future))
            elif not future.done():
                future.set_result(None)
        if not left:
            return
        self._waiting[log] = left
        if nothing_left:
            message = f"The log of {log.tp} was truncated before these records were durable."
            self._fail(log, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))

    def _fail(self, log: Log, refusal: BrokerError) -> None:
        for _, future in self._waiting.pop(log, ()):
            if not future.done():
                future.set_exception(refusal)
