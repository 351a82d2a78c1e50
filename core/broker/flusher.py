"""Shared fsync: many waiters, one system call.

Theory. A log has at most one fsync under way, in a thread. Whoever needs an offset to be durable waits for
it; when the fsync ends, everyone whose offset it covered is answered, and if somebody came meanwhile the next
one starts at once. So under load one fsync serves all appends that happened during the one before.

After an fsync that failed the log itself refuses further appends (see `core.log`): the kernel may have thrown
the dirty pages away, and a second fsync that succeeds proves nothing.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from core.clock import Clock
from core.counters import Counters
from core.errors import BrokerError, ErrorCode
from core.log.flush import FlushTask
from core.log.log import Log


class _Waiting:
    __slots__ = ("running", "waiters")

    def __init__(self) -> None:
        self.running = False
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []


class Flusher:
    """The fsyncs of all logs, over a few threads."""

    def __init__(self, threads: int, counters: Counters | None = None, clock: Clock | None = None) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fsync")
        self._logs: dict[Log, _Waiting] = {}
        self._counters = counters or Counters()
        self._clock = clock or Clock()

    def durable(self, log: Log, offset: int) -> asyncio.Future[None] | None:
        """A future that is done once everything below `offset` is on disk; None if it is already.

        It fails with KAFKA_STORAGE_ERROR if the disk refuses.
        """
        if log.flushed_offset >= offset:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiting = self._logs.get(log)
        if waiting is None:
            waiting = self._logs[log] = _Waiting()
        waiting.waiters.append((offset, future))
        if not waiting.running:
            # One turn later, so that appends of the same turn share the fsync.
            waiting.running = True
            loop.call_soon(self._start, log, waiting)
        return future

    def close(self) -> None:
        """Wait for the fsyncs under way and end the threads."""
        self._executor.shutdown(wait=True)

    def _start(self, log: Log, waiting: _Waiting) -> None:
        try:
            task = log.begin_flush()
        except BrokerError as refusal:
            self._fail(log, waiting, refusal)
            return
        if task is None:
            self._answer(log, waiting)
            return
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._executor, self._run, task).add_done_callback(
            lambda done: self._done(log, waiting, task, done)
        )

    def _run(self, task: FlushTask) -> float:
        """fsync, in a thread; gives how long it took, in seconds."""
        start = self._clock.monotonic()
        task.run()
        return self._clock.monotonic() - start

    def _done(self, log: Log, waiting: _Waiting, task: FlushTask, done: asyncio.Future[float]) -> None:
        error = done.exception()
        if error is None:
            self._counters.fsyncs.note(done.result())
        else:
            self._counters.failed_fsyncs += 1
        if error is not None and not isinstance(error, OSError):
            error = OSError(str(error))
        log.finish_flush(task, error)
        if error is not None:
            message = f"The disk could not make {log.topic_partition} durable ({error})."
            self._fail(log, waiting, BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message))
        else:
            self._answer(log, waiting)

    def _answer(self, log: Log, waiting: _Waiting) -> None:
        left: list[tuple[int, asyncio.Future[None]]] = []
        for offset, future in waiting.waiters:
            if offset > log.flushed_offset:
                left.append((offset, future))
            elif not future.done():
                future.set_result(None)
        waiting.waiters = left
        if left:
            self._start(log, waiting)
        else:
            del self._logs[log]

    def _fail(self, log: Log, waiting: _Waiting, refusal: BrokerError) -> None:
        del self._logs[log]
        for _, future in waiting.waiters:
            if not future.done():
                future.set_exception(refusal)
