"""An event loop in which waiting takes no time: hours of sessions and timeouts run in milliseconds.

When nothing is ready and no thread is at work, the loop's time jumps to the next timer. While a thread works (a
commit of the metadata store, an fsync, anything in an executor) time stands still, so that nothing times out
because the machine is slow.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from core.broker.flusher import FlushThreads, Work
from core.clock import Clock
from core.metadata.store import Store

T = TypeVar("T")
START_MS = 1_700_000_000_000
# A loop that has nothing to wait for but a lost wake-up would hang; so long it is given.
_STUCK_SECONDS = 20.0


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        if self.loop.busy or timeout is None:
            found = super().select(_STUCK_SECONDS)
            assert found, "the loop waits for nothing that could come"
            return found
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's text. `busy` counts what threads work on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy = 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """As always, while time stands still."""
        return self.standing_still(super().run_in_executor(executor, func, *args))

    def standing_still(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """Let no time pass until a future is done."""
        self.busy += 1
        future.add_done_callback(self._less_busy)
        return future

    def _less_busy(self, _future: object) -> None:
        self.busy -= 1


class LoopClock(Clock):
    """A clock that follows the virtual loop it is made in; the wall clock can be moved against it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        # Threads ask for the time too.
        self._time = asyncio.get_running_loop().time
        self.wall_shift_ms = 0

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return 1000.0 + self._time()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return START_MS + self.wall_shift_ms + int(self._time() * 1000)


@contextmanager
def threads_stop_time() -> Iterator[None]:
    """Let the virtual time stand still while the threads of a metadata store or a flusher work."""
    original_put, original_flush = Store._put, FlushThreads.run

    def put(store: Store, effects: Any, read: Any, local: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.standing_still(original_put(store, effects, read, local))

    def flush(threads: FlushThreads, steps: Any, workers: int, done: Callable[[], None]) -> Work:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        future: asyncio.Future[None] = loop.create_future()
        loop.standing_still(future).add_done_callback(lambda _: done())
        return original_flush(threads, steps, workers, lambda: future.set_result(None))

    Store._put, FlushThreads.run = put, flush  # type: ignore[method-assign]
    try:
        yield
    finally:
        Store._put, FlushThreads.run = original_put, original_flush  # type: ignore[method-assign]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with threads_stop_time(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
