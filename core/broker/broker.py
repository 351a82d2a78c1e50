"""Broker: the one facade that every door calls.

Its verbs stand in `topics`, `records` and (with their issue) `groups`; here is its life: open, the background
rhythm, drain, close. All of it runs on the event loop; threads get file descriptors and SQL only.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from core.broker.consumers import Consumers
from core.broker.groups import Groups
from core.broker.idempotency import IdempotencyKeys
from core.broker.merged import MergedVerbs
from core.clock import Clock
from core.config import Config
from core.log.checkpoint import CLEAN_SHUTDOWN
from core.log.log import Log
from core.log.manager import LogManager
from core.metadata.store import Store
from core.metadata.topics import load_settings, load_topics, put_setting
from core.records.partitioner import StickyPartitions
from core.types import TopicPartition

log = logging.getLogger(__name__)

DATABASE = "metadata.db"


class Broker(MergedVerbs):
    """One broker over one data directory. Open it on the event loop that will use it.

    `groups`, `consumers` and `idempotency` are there once the broker is open.
    """

    groups: Groups
    consumers: Consumers
    idempotency: IdempotencyKeys

    def __init__(self, config: Config, clock: Clock) -> None:
        data_dir = Path(config.data_dir)
        super().__init__(
            config, clock, Store(data_dir / DATABASE, clock), LogManager(data_dir, config, clock)
        )
        self._sticky = StickyPartitions()
        self._changing = {}
        self._background: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Read the metadata, recover the logs where the last stop was not clean, start the background work.

        Raises StartupError with one line for the operator.
        """
        clean = (Path(self.config.data_dir) / CLEAN_SHUTDOWN).exists()
        await self.store.open(check=not clean)
        settings = await self.store.read(load_settings)
        self.cluster_id = settings.get("cluster.id") or await self._new_cluster_id()
        self._next_producer_id = int(settings.get("producer.id.next", "0"))
        for row in await self.store.read(load_topics):
            self._put(self._info(row))
        self.logs.load(
            (TopicPartition(topic.name, partition), topic.topic_id, topic.config)
            for topic in self._topics.values()
            for partition in range(topic.partitions)
        )
        self.groups = Groups(self)
        await self.groups.open()
        self.consumers = Consumers(self, self.groups)
        await self.consumers.open()
        self.idempotency = IdempotencyKeys(self)
        await self.idempotency.open()
        self._background = [
            asyncio.create_task(self._every(self.config.background_interval_ms, self._background_step)),
            asyncio.create_task(self._every(self.config.checkpoint_interval_ms, self._checkpoint)),
            asyncio.create_task(
                self._every(self.config.idempotency_check_interval_ms, self.idempotency.expire)
            ),
            asyncio.create_task(
                self._every(self.config.offsets_retention_check_interval_ms, self.groups.expire)
            ),
        ]
        self.ready = True

    def drain(self) -> None:
        """Answer everything that waits; nothing waits afterwards. The first half of a stop."""
        if self.ready:
            self.consumers.drain()
            self.groups.drain()
        self.ready = False
        self.purgatory.drain()

    async def close(self) -> None:
        """Flush and close; the clean-shutdown marker is written if all of it went well."""
        self.drain()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        changes = [*self._changing.values(), *self.unattended]
        if changes:
            await asyncio.wait(changes, timeout=self.config.drain_timeout_ms / 1000)
        if self._background:
            await self.consumers.close()
        await self.store.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.flusher.close)
        self.logs.close()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and its committed offsets. Raises as `TopicVerbs.delete_topic`."""
        await super().delete_topic(name)
        self.consumers.topic_deleted(name)
        await self.groups.topic_deleted(name)

    async def _reserve_producer_ids(self, count: int) -> int:
        first = self._next_producer_id
        self._next_producer_id = first + count
        await self.store.submit([put_setting("producer.id.next", str(first + count))])
        return first

    async def _new_cluster_id(self) -> str:
        cluster_id = base64.urlsafe_b64encode(self.clock.uuid4().bytes).rstrip(b"=").decode()
        await self.store.submit([put_setting("cluster.id", cluster_id)])
        return cluster_id

    async def _every(self, interval_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await step()
            except Exception:
                # A failed background step must not end the rhythm: the next one tries again.
                log.exception("background work failed")

    async def _background_step(self) -> None:
        """Retention, compaction, deletion of files: steps of a few milliseconds, others run in between."""
        deadline = self.clock.monotonic() + self.config.background_interval_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            chore = self.logs.background_step()
            if chore is not None:
                failure: OSError | None = None
                try:
                    await loop.run_in_executor(None, chore.run)
                except OSError as error:
                    failure = error
                self.logs.finish_chore(chore, failure)
            if not self.logs.background_pending or self.clock.monotonic() >= deadline:
                break
            await asyncio.sleep(0)
        now = self.clock.monotonic()
        for one in self.logs.unflushed():
            due = one.flush_deadline
            if due is not None and due <= now:
                self._flush(one)

    async def _checkpoint(self) -> None:
        """fsync what is dirty, then note the recovery points, so that a crash leaves a short tail to scan."""
        waits = [w for one in self.logs.unflushed() if (w := self._flush(one)) is not None]
        await asyncio.gather(*waits, return_exceptions=True)
        task = self.logs.begin_checkpoint()
        await asyncio.get_running_loop().run_in_executor(None, task.run)

    def _flush(self, one: Log) -> asyncio.Future[None] | None:
        if one.failure is not None:
            return None
        waiting = self.flusher.durable(one, one.offsets.log_end_offset)
        if waiting is not None:
            # The log itself remembers that it failed, and says so; here nobody waits for an answer.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return waiting
