"""An event loop in which everything is decided by one seed: time, threads and the network are virtual.

- Time jumps to the next timer when nothing is ready.
- What the broker hands to a thread (fsync, a file, a commit) is done on the loop after a while of virtual time, and
  answered after another: a process may die before, between or after the two.
- Every task and timer belongs to a `Process` or to the world outside. A process that is killed gets nothing more
  done: its tasks are unwound with a dead disk and a dead network, its timers dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
# A task that is cancelled may catch it a few times; more often is a task that cannot be killed.
_UNWINDING_TURNS = 200


class Process:
    """What dies together. Work started in its context belongs to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class StuckError(AssertionError):
    """Nothing is ready, and no timer is set: a task waits without an end."""


class _NoSockets(selectors.SelectSelector):
    loop: SimLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise StuckError("all tasks wait, and nothing will happen")
        if timeout > 0:
            self.loop.now += timeout
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """See the module's text. `delay` says how long a step in a thread takes, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.delay: Callable[[], float] = lambda: 0.0005
        self.crashes: list[dict[str, Any]] = []
        selector = _NoSockets()
        selector.loop = self
        super().__init__(selector)
        self.set_task_factory(_own_task)
        self.set_exception_handler(lambda _loop, context: self.crashes.append(context))

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do it on the loop, a while later, and answer it another while later."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except BaseException as raised:
                error = raised
            self.call_later(self.delay(), settle, result, error)

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(self.delay(), work)
        return future

    async def kill(self, process: Process) -> None:
        """Unwind what belongs to a dead process. Its disk and its connections must be dead already."""
        for _ in range(_UNWINDING_TURNS):
            left = [task for task in process.tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        assert not [task for task in process.tasks if not task.done()], "a task cannot be killed"
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            if handle._context.get(_PROCESS) is process:
                handle.cancel()
        for task in process.tasks:
            if not task.cancelled():
                task.exception()  # seen: asyncio would log it
        process.tasks.clear()


def _own_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: contextvars.Context | None = None
) -> asyncio.Task[T]:
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    task = asyncio.Task(work, loop=loop, context=context)
    if process is not None:
        process.tasks.append(task)
        if len(process.tasks) > 500:
            process.tasks[:] = [one for one in process.tasks if not one.done()]
    return task
