"""The machine that the broker runs on: its disk, its clock, its life and deaths."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import core.broker.broker
import core.listeners.acceptor
from app.http.server import HttpServer
from app.main import Application, create_app
from core.broker.broker import DATABASE
from core.broker.flusher import FlushThreads, Work
from core.clock import Clock
from core.config import Config
from core.errors import StartupError
from core.metadata import store as store_module
from core.metadata.store import Store
from tests.core.log.disk import Died, Disk
from tests.simulation.loop import Process, SimLoop
from tests.simulation.network import Network

START_MS = 1_760_000_000_000
HTTP_PORT = 8082


class SimClock(Clock):
    """The loop's time; the wall clock can be moved against it. Each start of the process has its own randomness."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        super().__init__(seed)
        self._loop = loop
        self.wall_shift_ms = 0
        self._secrets = random.Random(f"secrets {seed}")

    def secret_bytes(self, count: int) -> bytes:
        """See `Clock.secret_bytes`; here a seed gives the same secrets again."""
        return self._secrets.randbytes(count)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return 1000.0 + self._loop.now

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return START_MS + self.wall_shift_ms + int(self._loop.now * 1000)


class SimDisk(Disk):
    """`Disk`, which says when the process dies at one of its effects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_death: Callable[[], None] = lambda: None
        super().__init__(monkeypatch)

    def _wrap(self, name: str):  # type: ignore[no-untyped-def]
        inner = super()._wrap(name)

        def effect(*args: Any) -> Any:
            was_dead = self.dead
            try:
                return inner(*args)
            except Died:
                if not was_dead:
                    self.on_death()
                raise

        return effect

    def lose_power(self, root: Path, chance: random.Random) -> None:
        """What no fsync has covered may be there, be lost, be cut, or be zeros; SQLite's files are its own affair."""
        for path in sorted(root.rglob("*")):
            if path.is_dir() or path.name.startswith((DATABASE, ".lock")):
                continue
            size, covered = path.stat().st_size, self.synced.get(path.stat().st_ino, 0)
            fate = chance.random()
            if covered >= size or fate < 0.25:
                continue
            if not covered and fate < 0.4:
                path.unlink()
                continue
            kept = covered if fate < 0.6 else chance.randint(covered, size)
            os.truncate(path, kept)
            if fate > 0.8:
                with path.open("r+b") as file:
                    file.seek(covered)
                    file.write(bytes(kept - covered))

    @property
    def full(self) -> bool:
        """Whether writes fail for want of space at the moment."""
        return self.at is not None and self.how == errno.ENOSPC


class SimStore(Store):
    """The metadata store without its thread: real SQLite, commits in virtual time."""

    machine: Machine

    async def open(self, *, check: bool, before: Callable[[str], None] | None = None) -> None:
        """See `Store.open`."""
        self._loop = asyncio.get_running_loop()
        self._engine = await self._loop.run_in_executor(
            None, store_module._open_engine, self._path, check, False, before
        )
        self._connection = self._engine.connect()
        self._waiting: list[Any] = []
        self._process = self.machine.process
        self._scheduled = False

    def _put(self, effects: Any, read: Any, local: bool = False) -> asyncio.Future[Any]:
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(store_module._Job(future, effects, read, local))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(self.machine.loop.delay(), self._write)
        return future

    def _write(self) -> None:
        self._scheduled = False
        jobs, self._waiting = self._waiting, []
        assert self._loop is not None and self._process is not None
        if not self._process.alive or not jobs:
            return
        if self.machine.disk.full and any(job.effects for job in jobs):
            for job in jobs:
                job.error = OSError(errno.ENOSPC, "the disk is full")
        else:
            self._commit(self._connection, jobs)
        self._loop.call_later(self.machine.loop.delay(), self._answer, jobs, 0.001)

    async def close(self) -> None:
        """See `Store.close`."""
        if self._engine is None:
            return
        while self._scheduled or self._waiting:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        self._connection.close()
        self._engine.dispose()
        self._engine = None

    def abandon(self) -> None:
        """The process died: what was not committed is lost."""
        if self._engine is not None:
            self._connection.close()
            self._engine.dispose()
            self._engine = None


def flush(
    _threads: FlushThreads, steps: Iterable[Callable[[], None]], workers: int, done: Callable[[], None]
) -> Work:
    """What `FlushThreads.run` does, in virtual time: appends and deaths come between its steps too."""
    work = Work(steps, workers, done)

    def proceed(_done: object = None) -> None:
        if (step := work.next_step()) is not None:
            asyncio.get_running_loop().run_in_executor(None, step).add_done_callback(proceed)

    for _ in range(workers):
        proceed()
    return work


class Machine:
    """Starts, stops and kills the broker; only one process runs at a time."""

    def __init__(self, loop: SimLoop, seed: int, config: Config, trace: Callable[[str], None]) -> None:
        self.loop = loop
        self.chance = random.Random(f"machine {seed}")
        self.config = config
        self.trace = trace
        self.network = Network(loop, random.Random(f"network {seed}"))
        self.process: Process | None = None
        self.app: Application | None = None
        self.starts = 0
        # Deaths of brokers that served and were not told to stop, so that the next start is an unclean one; and how
        # many there were when the present one was started.
        self._deaths = 0
        self.deaths_before = 0
        self.slow_until = 0.0
        self.wall_shift_ms = 0
        self.clock = SimClock(loop, seed)
        self.dead = asyncio.Event()
        self._seed = seed
        self._monkeypatch = pytest.MonkeyPatch()
        self.disk = SimDisk(self._monkeypatch)
        self.disk.on_death = self._die
        store = type("SimStoreHere", (SimStore,), {"machine": self})
        self._monkeypatch.setattr(core.broker.broker, "Store", store)
        self._monkeypatch.setattr(FlushThreads, "run", flush)
        self._monkeypatch.setattr(core.listeners.acceptor, "bind_socket", self.network.bind)
        self._monkeypatch.setattr(loop, "create_server", self._create_server)
        loop.delay = self._delay

    def restore(self) -> None:
        """Give the real disk, store and sockets back."""
        self._monkeypatch.undo()

    def _delay(self) -> float:
        slow = 300.0 if self.loop.now < self.slow_until else 1.0
        return self.chance.expovariate(3000.0) * slow

    async def _create_server(self, factory: Callable[[], Any], sock: Any = None, **_: Any) -> Any:
        assert self.process is not None
        return self.network.listen(sock.getsockname()[1], self.process, factory)

    # --- life ----------------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> bool:
        """Whether the disk has refused what the broker had to store at its start; it serves reads alone then."""
        return self.app is not None and self.app.server.broker.unclean_start.unsettled

    async def start(self) -> None:
        """Start the broker. Raises StartupError."""
        self.starts += 1
        self.deaths_before = self._deaths
        self.dead.clear()
        self.clock = SimClock(self.loop, self._seed * 1000 + self.starts)
        self.clock.wall_shift_ms = self.wall_shift_ms
        process = self.process = Process(f"broker {self.starts}")
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._stop = asyncio.Event()
        self._life = self.loop.create_task(self._live(), context=process.context)
        died = self.loop.create_task(self.dead.wait())
        await asyncio.wait([self._ready, died], return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if self.dead.is_set():
            await self.bury()
            raise StartupError("the process died while it started")
        await self._ready
        self.trace(f"broker started ({self.starts})")

    async def _live(self) -> None:
        app = create_app(self.config, self.clock)
        self.app = app
        try:
            async with app.lifespan():
                http = [one for one in self.config.listeners if one.scheme == "http"]
                sockets = [self.network.bind(one) for one in http]
                server = HttpServer(app.http, sockets, self.config, self.clock, app.traffic)
                await server.start()
                self._ready.set_result(None)
                await self._stop.wait()
                app.drain()
                await server.stop()
        except StartupError as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def stop(self) -> None:
        """Stop the broker in order; it may die on the way."""
        self._stop.set()
        died = self.loop.create_task(self.dead.wait())
        await asyncio.wait([self._life, died], return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if self._life.done() and not self.dead.is_set():
            self._life.result()
            assert self.process is not None
            self.network.process_died(self.process)
            self.process.alive = False
            await self.loop.kill(self.process)
            self.trace("broker stopped")
        else:
            await self.bury()

    def _die(self) -> None:
        """The process dies in the middle of what it does: nothing leaves it any more."""
        assert self.process is not None
        if not self.process.alive:
            return
        self.trace("the process dies")
        self._deaths += self._ready.done() and not self._stop.is_set()
        self.process.alive = False
        self.disk.dead = True
        self.network.process_died(self.process)
        self.dead.set()

    async def bury(self) -> None:
        """Unwind a process that has died, so that another can start."""
        assert self.process is not None and not self.process.alive and self.app is not None
        await self.loop.kill(self.process)
        server = self.app.server
        store = server.broker.store
        assert isinstance(store, SimStore)
        if getattr(store, "_connection", None) is not None:
            store.abandon()
        server._directory.release()
        self._ready.cancel()
        self.app = None
        self.disk.heal()

    async def kill(self) -> None:
        """kill -9."""
        self._die()
        await self.bury()

    async def lose_power(self) -> None:
        """What no fsync has covered may be lost; the process is ended, if it was not dead already."""
        self.network.power_cuts += 1
        if self.app is not None:
            await self.kill()
        self.disk.lose_power(Path(self.config.data_dir), self.chance)
        self.trace("power is lost")
