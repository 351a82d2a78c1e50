"""Topics, groups and offsets over several brokers: the changes of SQLite as a replicated partition.

    the leader    writes a transaction to the partition, and commits it to SQLite once the partition has committed
                  it; then no promotion can lose it, and the leader answers
    a follower    repeats committed transactions in order, and stores the number of the next one in each, so that
                  after a crash no transaction is repeated a second time

A new leader of the partition first repeats the rest, then loads groups, consumers and keys, as after a start, and
only then serves them. A broker that stops leading forgets them: the new leader has them.

After an unclean promotion a broker may have repeated transactions that the new history does not have. It then clears
its database and repeats the history from its beginning, or from the last whole database in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.changelog import (
    APPLIED,
    RefusedChangeError,
    apply_changes,
    clear,
    decode_changes,
    is_whole,
    note_whole_database,
    touch_topics,
)
from core.metadata.store import Store, not_controller
from core.metadata.topics import load_settings, own_topics, put_setting
from core.purgatory import Purgatory
from core.records.batch import batches, build_batch, read_header, read_records
from core.records.record import NewRecord
from core.replication.copies import Copy, Flushing
from core.replication.replicas import Replicas
from core.vocabulary.replicas import METADATA

logger = logging.getLogger(__name__)

# Bytes of changes that are repeated in one transaction, about.
_APPLY_BYTES = 1024 * 1024
# A change waits for its followers for as long as its broker leads: its fate must be known before the next one.
_FOREVER = 86_400.0 * 365
_RETRY_SECONDS = 0.2
# Instead of the number of the next change: everything is to be repeated.
_ANEW = -1


class MetadataLog:
    """The metadata partition of one broker, and which broker keeps the store. Call `open` before `run`.

    `begin` loads groups, consumers and keys when this broker comes to keep them, `end` forgets them; `topics_changed`
    takes over the topics that another broker has stored.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: Store,
        replicas: Replicas,
        flusher: Flushing,
        purgatory: Purgatory,
        changes: TopicChanges,
        *,
        begin: Callable[[], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
        topics_changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._replicas = replicas
        self._flusher = flusher
        self._purgatory = purgatory
        self._changes = changes
        self._begin, self._end, self._topics_changed = begin, end, topics_changed
        self._partition: Copy | None = None
        # The epoch in which this broker serves; −1 while it does not. And that in which it may write: it does so
        # before it serves.
        self.serving = -1
        self._epoch = -1
        # The next change to be repeated.
        self._applied = 0
        self._news = asyncio.Event()
        # One at a time repeats, or says that what was repeated does not count.
        self._repeating = asyncio.Lock()
        self._closed = False
        # The offset of the newest whole database that this broker has written.
        self._last_whole = 0
        # Why the next change is not executed, as it was logged.
        self._refused = ""
        self._store.ship_timeout = config.metadata_timeout_ms / 1000

    def open(self, copy: Copy) -> None:
        """Take the metadata partition as the last run left it."""
        self._partition = copy

    @property
    def _copy(self) -> Copy:
        assert self._partition is not None, "the metadata partition is not open"
        return self._partition

    @property
    def epoch(self) -> int:
        """The epoch of the metadata partition that this broker knows."""
        return self._copy.replica.epoch

    @property
    def leader(self) -> int:
        """The broker that keeps topics, groups and offsets, as far as known here; −1 if none is known."""
        return -1 if self._partition is None else self._partition.replica.leader

    def poke(self) -> None:
        """The role of the partition, or its high watermark, may have changed."""
        self._news.set()
        if self._epoch >= 0 and not self._leads:
            # At once: the writer must not begin another transaction.
            self._store.ship = None

    @property
    def _leads(self) -> bool:
        replica = self._copy.replica
        return replica.leads and (self._epoch < 0 or self._epoch == replica.epoch)

    async def load(self) -> None:
        """Find out what was repeated by the last run. Call it before the partition can be cut: `forget` compares."""
        self._applied = await self._read_applied()

    async def run(self) -> None:
        """Follow the partition, or lead it, until cancelled."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._step()
            except RefusedChangeError as error:
                # Nothing of it was executed, and nothing after it is. The next news may have another history.
                if str(error) != self._refused:
                    self._refused = str(error)
                    logger.error("metadata: %s", error)
            except Exception as error:
                logger.error("metadata: %s", error, exc_info=not isinstance(error, BrokerError))
                await asyncio.sleep(_RETRY_SECONDS)
                self._news.set()

    async def close(self) -> None:
        """Serve nothing any more; what is on its way is refused."""
        self._closed = True
        self._store.ship = None
        if self._partition is not None:
            self._replicas.deposed(self._partition)

    async def _step(self) -> None:
        replica = self._copy.replica
        if self._epoch >= 0 and not self._leads:
            logger.warning("this broker no longer keeps topics, groups and offsets")
            self._store.ship = None
            self._epoch = self.serving = -1
            await self._end()
            # Everything that was on its way is decided once the writer answers this.
            self._applied = await self._read_applied()
            self._changes.answers_changed()
        if self._epoch >= 0:
            return
        await self._repeat()
        if replica.leads and replica.start <= replica.high_watermark <= self._applied and not self._closed:
            await self._serve(replica.epoch)

    async def _serve(self, epoch: int) -> None:
        self._epoch = epoch
        self._store.ship = self._ship
        try:
            await self._complete()
            await self._begin()
        except BaseException:
            self._epoch = -1
            self._store.ship = None
            raise
        self.serving = epoch
        self._changes.answers_changed()
        logger.info("this broker keeps topics, groups and offsets now, in epoch %d", epoch)

    async def _complete(self) -> None:
        """The first leader of a cluster gives what it had alone to the others."""
        if self._copy.log.offsets.log_end_offset == 0:
            await self._store.submit([own_topics(self._config.broker_id)], local=True)
            await self._topics_changed()
            await self._store.submit([note_whole_database])

    async def shorten(self) -> None:
        """Begin the history with the whole database where it has become long. To be called once in a while."""
        log = self._copy.log
        if self._epoch < 0 or log.size < self._config.metadata_log_bytes:
            return
        await self._store.submit([note_whole_database])
        if self._epoch >= 0:
            log.roll()
            log.truncate_prefix(max(self._last_whole, log.offsets.log_start_offset))
            logger.info("metadata: the history begins at %d now", self._last_whole)

    async def _ship(self, data: bytes) -> int:
        """Write a transaction to the partition; once it is committed there, return the number of the next one."""
        copy = self._copy
        if not self._leads or self._closed or self._epoch < 0:
            raise not_controller()
        epoch = self._replicas.leading(copy, 1)
        batch = build_batch([NewRecord(value=data)], now_ms=self._clock.wall_ms())
        log = copy.log
        result = log.append(batch, [read_header(batch)], leader_epoch=epoch)
        end = result.last_offset + 1
        whole = is_whole(data)
        waiting = self._replicas.committed(copy, end, self._flusher.durable(log, end), _FOREVER)
        self._replicas.appended(copy)
        self._purgatory.notify(METADATA)
        try:
            await waiting
        except BrokerError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            raise not_controller() from None
        if whole:
            self._last_whole = result.base_offset
        return end

    async def forget(self, end: int) -> None:
        """The partition is about to be cut at `end`: what was repeated beyond it must not stay."""
        async with self._repeating:
            if self._applied > end:
                logger.warning(
                    "metadata: %d changes were repeated, %d stay: all are repeated again", self._applied, end
                )
                await self._store.submit([_applied_up_to(_ANEW)], local=True)
                self._applied = _ANEW

    # --- repeating -----------------------------------------------------------------------------------------

    async def _repeat(self) -> None:
        """Repeat what is committed and not in SQLite yet."""
        async with self._repeating:
            bounds = self._copy.log.offsets
            if not bounds.log_start_offset <= self._applied <= bounds.log_end_offset:
                await self._repeat_all()
                return
            while self._applied < self._copy.replica.high_watermark:
                effects, next_offset, topics = self._read(self._applied)
                if next_offset == self._applied:
                    return
                await self._store.submit([*effects, _applied_up_to(next_offset)], local=True)
                self._applied = next_offset
                if topics:
                    await self._topics_changed()

    async def _repeat_all(self) -> None:
        """Forget everything and repeat the whole history, in one transaction.

        Not before all is here that its leader began with: half a history would lack topics, and their logs would
        be removed.
        """
        replica, log = self._copy.replica, self._copy.log
        if replica.complete != replica.epoch or replica.high_watermark < replica.start:
            return
        effects: list[Any] = [clear]
        offset = log.offsets.log_start_offset
        while offset < replica.high_watermark:
            some, next_offset, _ = self._read(offset)
            if next_offset == offset:
                break
            effects += some
            offset = next_offset
        await self._store.submit([*effects, _applied_up_to(offset)], local=True)
        self._applied = offset
        await self._topics_changed()

    def _read(self, offset: int) -> tuple[list[Any], int, bool]:
        """Some changes from `offset` on as effects, the offset after them, and whether they are about topics."""
        read = self._copy.log.read(offset, _APPLY_BYTES, min_one=True)
        if read.slice is None:
            return [], offset, False
        data = read.slice.read()
        effects: list[Any] = []
        topics = False
        for position, header in batches(data):
            if header.last_offset < offset:
                continue
            limit = self._config.max_frame_bytes
            try:
                records = read_records(data, position, header, max_bytes=limit)
                found = [decode_changes(record.value or b"") for record in records]
            except RefusedChangeError as error:
                if effects:  # those before it count
                    break
                raise RefusedChangeError(
                    f"The change at offset {header.base_offset} of {METADATA} is not executed, and none after "
                    f"it: {error}"
                ) from None
            effects += map(apply_changes, found)
            topics = topics or any(map(touch_topics, found))
            offset = header.next_offset
        return effects, offset, topics

    async def _read_applied(self) -> int:
        return int((await self._store.read(load_settings)).get(APPLIED, "0"))


def _applied_up_to(offset: int) -> Any:
    return put_setting(APPLIED, str(offset))
