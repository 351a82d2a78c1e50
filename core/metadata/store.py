"""SQLite with one writer thread: many effects, one commit.

Theory. `Store.submit` writes everything durable of the broker except the logs. The writer thread
takes all jobs that wait, runs them in one transaction and commits once (WAL, synchronous=FULL: the commit is
an fsync), then wakes all callers in one hop to the event loop. Under load the fsync is thus shared by
hundreds of commits; without load it costs one.

If a transaction of several jobs fails, each job is tried by itself, so that one bad job harms no other. A
job that fails alone answers KAFKA_STORAGE_ERROR (the disk is full or broken) and nothing of it is stored.

A commit is durable in the write-ahead log, `-wal`. What a transaction with `CARRY_OVER` holds, and all before it,
stands in the database file as well before it is answered: should the `-wal` be lost or damaged, the topics are
still known, and with them their logs.

In a cluster the other brokers get the statements of a transaction *before* it is committed here (`replicated`). So
SQLite always has a prefix of what the cluster has agreed on, and never has to undo a commit. Until the answer is
known the transaction stays open, and nothing else is written. Callers that wait for it get an error after
`ship_timeout` seconds, although it may still take effect later.

Source: Kafka guide, "Offset commit"; SQLite documentation on WAL and `PRAGMA synchronous`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.base import Executable

from core.clock import Clock
from core.counters import Counters
from core.errors import BrokerError, ErrorCode, StartupError
from core.metadata.changelog import APPLIED, Change, RecordingConnection, encode_changes
from core.metadata.schema import prepare

log = logging.getLogger(__name__)

T = TypeVar("T")

# Jobs that may wait for the writer; one more is refused as retriable. At 2,000 commits a second and
# hundreds of jobs a commit this is a fraction of a second of work.
MAX_WAITING_JOBS = 100_000
# Jobs in one transaction: bounds how long a commit can take and how many callers share a failure.
MAX_JOBS_PER_COMMIT = 2_000


_SET_APPLIED = text("INSERT OR REPLACE INTO settings (name, value) VALUES (:name, :value)")


@dataclass(frozen=True, slots=True)
class Rows:
    """One statement with its parameter rows. Neighbours with the same statement run as one executemany."""

    statement: Executable
    rows: list[dict[str, Any]]


Effect = Rows | Callable[[Connection], None]

# The last effect of a transaction that must be in the database file as well, not in the `-wal` alone.
CARRY_OVER = Rows(text("SELECT 1"), [])

# The least number of seconds between two lines about failed commits. Otherwise a full disk would fill the log.
_COMPLAIN_SECONDS = 5.0
# SQLite's errors of a disk that is full or refuses: SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN.
_DISK_ERRORS = {10, 13, 14}


# Sends a transaction to the other brokers. Returns the number after the one it got. Raises BrokerError.
Ship = Callable[[bytes], Awaitable[int]]


class _Job:
    __slots__ = ("effects", "error", "future", "local", "read", "result")

    def __init__(
        self,
        future: asyncio.Future[Any],
        effects: Sequence[Effect],
        read: Callable[[Connection], Any] | None = None,
        local: bool = False,
    ) -> None:
        self.future = future
        self.effects = effects
        self.read = read
        # Not for the other brokers.
        self.local = local
        self.result: Any = None
        self.error: Exception | None = None


class Store:
    """The database of one data directory. All methods are called on the event loop."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or Clock()
        self.counters = Counters()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        # When a failed commit was last logged, and how many jobs have failed since.
        self._complained = -_COMPLAIN_SECONDS
        self._silent = 0
        # Whether changes go to other brokers; then `ship` is how, and without it there is no change.
        self.replicated = False
        self.ship: Ship | None = None
        self.ship_timeout = 5.0

    async def open(self, *, check: bool, before: Callable[[str], None] | None = None) -> None:
        """Open or create the database, bring its schema up to date, start the writer.

        `check` runs SQLite's integrity check, as after an unclean stop. `before` is called in a thread with the
        revision of an older database, before that is changed. Raises StartupError.
        """
        self._loop = asyncio.get_running_loop()
        self._engine = await self._loop.run_in_executor(
            None, _open_engine, self._path, check, self.replicated, before
        )
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, effects: Sequence[Effect], *, local: bool = False) -> asyncio.Future[None]:
        """Store `effects` in one transaction; the future is done once they are durable.

        The future fails with KAFKA_STORAGE_ERROR when the disk refuses, and the call raises
        COORDINATOR_LOAD_IN_PROGRESS when too many jobs wait already. In a cluster it fails with NOT_CONTROLLER
        where another broker writes, and with REQUEST_TIMED_OUT; `local` effects are of this broker alone.
        """
        return self._put(effects, None, local)

    def read(self, query: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Run `query` on the writer's connection, after everything submitted before it."""
        return self._put((), query)

    async def close(self) -> None:
        """Finish what waits, then close. Nothing may be submitted afterwards."""
        if self._thread is None:
            return
        self._jobs.put(None)
        assert self._loop is not None and self._engine is not None
        await self._loop.run_in_executor(None, self._thread.join)
        await self._loop.run_in_executor(None, self._engine.dispose)
        self._thread = None

    def _put(
        self, effects: Sequence[Effect], read: Callable[[Connection], Any] | None, local: bool = False
    ) -> asyncio.Future[Any]:
        assert self._loop is not None, "the store is not open"
        if self._jobs.qsize() >= MAX_WAITING_JOBS:
            raise BrokerError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "Too many writes wait for the metadata store; try again.",
            )
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.ship is not None and not local:
            # The writer may wait for other brokers, and all later transactions wait with it.
            late = self._loop.call_later(self.ship_timeout, _too_late, future)
            future.add_done_callback(lambda _: late.cancel())
        self._jobs.put(_Job(future, effects, read, local))
        return future

    # --- the writer thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._engine is not None and self._loop is not None
        with self._engine.connect() as connection:
            stopping = False
            while not stopping:
                jobs: list[_Job] = []
                job = self._jobs.get()
                while job is not None:
                    jobs.append(job)
                    if len(jobs) >= MAX_JOBS_PER_COMMIT:
                        break
                    try:
                        job = self._jobs.get_nowait()
                    except queue.Empty:
                        break
                else:
                    stopping = True
                if jobs:
                    start = self._clock.monotonic()
                    self._commit(connection, jobs)
                    seconds = self._clock.monotonic() - start
                    self._loop.call_soon_threadsafe(self._answer, jobs, seconds)

    def _answer(self, jobs: list[_Job], seconds: float) -> None:
        self.counters.commits.note(seconds)
        self.counters.committed_jobs += len(jobs)
        failed = [job.error for job in jobs if job.error is not None and not job.future.done()]
        if failed:
            self._complain(failed)
        _answer(jobs)

    def _complain(self, errors: list[Exception]) -> None:
        now = self._clock.monotonic()
        if now - self._complained < _COMPLAIN_SECONDS:
            self._silent += len(errors)
            return
        more = len(errors) - 1 + self._silent
        log.error("metadata store: %s%s", _reason(errors[0]), f" ({more} more since)" if more else "")
        self._complained, self._silent = now, 0

    def _commit(self, connection: Connection, jobs: list[_Job]) -> None:
        try:
            self._transaction(connection, jobs)
            _carry_over(connection, jobs)
            return
        except _NotShippedError as error:
            # Not the fault of one of them.
            for job in jobs:
                job.error = error.reason
            return
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].error = error
                return
        for job in jobs:
            try:
                self._transaction(connection, [job])
                _carry_over(connection, [job])
            except _NotShippedError as error:
                job.error = error.reason
            except Exception as error:
                job.error = error

    def _transaction(self, connection: Connection, jobs: list[_Job]) -> None:
        recording = connection.connection.dbapi_connection if self.replicated else None
        assert recording is None or isinstance(recording, RecordingConnection)
        if recording is not None:
            recording.take()
        with connection.begin():
            _execute(connection, jobs, recording)
            if recording is not None and (changes := recording.take()):
                applied = self._replicate(changes)
                recording.silent = True
                connection.execute(_SET_APPLIED, {"name": APPLIED, "value": str(applied)})
                recording.silent = False

    def _replicate(self, changes: list[Change]) -> int:
        """Give a transaction to the other brokers and wait until they have it, or never will."""
        ship, loop = self.ship, self._loop
        if ship is None or loop is None:
            raise _NotShippedError(not_controller())
        shipping = asyncio.run_coroutine_threadsafe(_awaited(ship, encode_changes(changes)), loop)
        try:
            return shipping.result()
        except BrokerError as error:
            raise _NotShippedError(error) from None
        except CancelledError:
            raise _NotShippedError(not_controller()) from None


class _NotShippedError(Exception):
    """The other brokers do not take a transaction."""

    def __init__(self, reason: BrokerError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def not_controller() -> BrokerError:
    """The refusal of a change by a broker that does not keep the metadata."""
    return BrokerError(
        ErrorCode.NOT_CONTROLLER, "Another broker keeps topics, groups and offsets; ask it instead."
    )


async def _awaited(ship: Ship, data: bytes) -> int:
    return await ship(data)


def _too_late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(
            BrokerError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Too few brokers are in sync to take the change; it may come later.",
            )
        )


def _execute(connection: Connection, jobs: list[_Job], recording: RecordingConnection | None) -> None:
    pending: Rows | None = None
    for job in jobs:
        if recording is not None and recording.silent != job.local:
            _flush(connection, pending)
            pending = None
            recording.silent = job.local
        for effect in job.effects:
            if isinstance(effect, Rows):
                if pending is not None and pending.statement is effect.statement:
                    pending.rows.extend(effect.rows)
                    continue
                _flush(connection, pending)
                pending = Rows(effect.statement, list(effect.rows))
            else:
                _flush(connection, pending)
                pending = None
                effect(connection)
        if job.read is not None:
            _flush(connection, pending)
            pending = None
            job.result = job.read(connection)
    _flush(connection, pending)
    if recording is not None:
        recording.silent = False


def _flush(connection: Connection, pending: Rows | None) -> None:
    if pending is not None and pending.rows:
        connection.execute(pending.statement, pending.rows)


def _carry_over(connection: Connection, jobs: list[_Job]) -> None:
    """Copy the write-ahead log into the database file, if one of the jobs asks for it."""
    if not any(job.effects and job.effects[-1] is CARRY_OVER for job in jobs):
        return
    try:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
    except Exception as error:
        # The commit is durable without it.
        log.warning("the write-ahead log cannot be carried over: %s", _reason(error))
    finally:
        connection.rollback()


def _answer(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # the caller was cancelled; the effect is stored
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(_refusal(job.error))


def _refusal(error: Exception) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    return BrokerError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"The metadata store could not write ({_reason(error)}); nothing was changed.",
    )


def _reason(error: Exception) -> object:
    """What SQLite said, without the statement and its parameters."""
    return error.orig if isinstance(error, DBAPIError) else error


def _open_engine(path: Path, check: bool, recording: bool, before: Callable[[str], None] | None) -> Engine:
    path.touch(mode=0o600)  # SQLite gives its -wal and -shm files the mode of the database
    try:
        return _checked_engine(path, check, recording, before, sparing=False)
    except DBAPIError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in _DISK_ERRORS:
            raise StartupError(f"Cannot open the metadata store {path}: {error.orig}.") from error
        reason = error.orig
    try:
        engine = _checked_engine(path, check, recording, before, sparing=True)
    except DBAPIError as error:
        raise StartupError(f"Cannot open the metadata store {path}: {error.orig}.") from error
    log.warning("%s was opened without its -shm file, for which there may be no space (%s)", path, reason)
    return engine


def _checked_engine(
    path: Path, check: bool, recording: bool, before: Callable[[str], None] | None, *, sparing: bool
) -> Engine:
    """The database, looked through and brought up to date. Raises DBAPIError, StartupError.

    `sparing` keeps what is else in the -shm file in memory, so that the database opens on a full disk; until it is
    closed no other process can read it.
    """
    arguments: dict[str, Any] = {"factory": RecordingConnection} if recording else {}
    engine = create_engine(f"sqlite:///{path}", connect_args=arguments)
    event.listen(engine, "connect", _set_sparing_pragmas if sparing else _set_pragmas)
    try:
        if check:
            with engine.connect() as connection:
                verdict = connection.exec_driver_sql("PRAGMA quick_check").scalar()
            if verdict != "ok":
                raise StartupError(
                    f"{path} is damaged ({verdict}). Restore it from a copy; the logs are intact."
                )
        prepare(engine, before)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _set_sparing_pragmas(connection: Any, record: object) -> None:
    # Before the first look at the database, which would else map the -shm file.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    _set_pragmas(connection, record)


def _set_pragmas(connection: Any, _record: object) -> None:
    # WAL with FULL: the only pair of settings that kept every acknowledged commit when un-fsynced pages were
    # really dropped at a kill.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}")
