"""Broker: the one facade that every door calls.

Its verbs stand in `topics`, `records` and (with their issue) `groups`; here is its life: open, the background
rhythm, drain, close. All of it runs on the event loop; threads get file descriptors and SQL only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from core.broker.roles import RoleVerbs
from core.broker.state import LEADER_EPOCH
from core.broker.unclean_start import cut_back_consumers, cut_back_groups
from core.clock import Clock
from core.config import Config
from core.consumers.consumers import Consumers
from core.errors import BrokerError, StartupError
from core.groups.groups import Groups
from core.idempotency.keys import IdempotencyKeys
from core.log import files
from core.log.checkpoint import CLEAN_SHUTDOWN, encode_offsets, read_offsets
from core.log.log import Log
from core.log.manager import LogManager
from core.metadata.broker_configs import load_broker_configs
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import deleted_topics, load_settings, load_topics, put_setting
from core.records.partitioner import StickyPartitions
from core.replication.epochs import leader_of, next_epoch
from core.replication.promises import HIGH_WATERMARKS, ROLES, Memory
from core.replication.replicas import METADATA, METADATA_ID
from core.topic_config import parse_topic_config
from core.types import TopicPartition

log = logging.getLogger(__name__)

DATABASE = "metadata.db"
# The history of metadata is kept until it begins anew with the whole database (`MetadataLog.shorten`).
_METADATA_CONFIG = {"retention.ms": "-1", "segment.bytes": "67108864"}
_PRODUCER_ID = "producer.id.next"
_OWN_PRODUCER_ID = "local.producer.id.next"
_PRODUCER_ID_BITS = 48


class Broker(RoleVerbs):
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
        # Jobs of the store when its write-ahead log was last carried over.
        self._carried_over = 0
        # After an unclean stop: where each log ended, until positions beyond that are cut back.
        self._recovered: dict[TopicPartition, int] = {}
        self._epoch_to_come = 0
        # In a cluster: the epoch of the metadata at the start, until this broker keeps it first.
        self._last_served = -1

    async def open(self) -> None:
        """Read the metadata, recover the logs where the last stop was not clean, start the background work.

        Raises StartupError with one line for the operator.
        """
        clean = (Path(self.config.data_dir) / CLEAN_SHUTDOWN).exists()
        self.store.replicated = bool(self.config.peers)
        await self.store.open(check=not clean)
        settings = await self.store.read(load_settings)
        self.cluster_id = settings.get("cluster.id", "")
        self.leader_epoch = int(settings.get(LEADER_EPOCH, "0"))
        self._next_producer_id = self._first_producer_id(settings)
        self.broker_configs.load(await self.store.read(load_broker_configs))
        for row in await self.store.read(load_topics):
            self._put(self._info(row))
        held = [
            (TopicPartition(topic.name, partition), topic.topic_id, topic.config)
            for topic in self._topics.values()
            if self.holds(topic)
            for partition in range(topic.partitions)
        ]
        if self.config.peers:
            held.append((METADATA, METADATA_ID, parse_topic_config(_METADATA_CONFIG)))
        self._deleted = deleted_topics(settings)
        if not settings and not self._topics and not self.config.peers:
            self._refuse_lost_metadata()
        self.logs.load(held, self._deleted)
        if self._topics and not clean:
            await self._begin_unclean()
        if self.config.peers:
            self._open_cluster(settings)
        else:
            await self._serve_metadata()
        self._background = [
            asyncio.create_task(self._every(self.config.background_interval_ms, self._background_step)),
            asyncio.create_task(self._every(self.config.checkpoint_interval_ms, self._checkpoint)),
            asyncio.create_task(self._every(self.config.idempotency_check_interval_ms, self._expire_keys)),
            asyncio.create_task(
                self._every(self.config.offsets_retention_check_interval_ms, self._expire_offsets)
            ),
        ]
        if self.unsettled:
            log.error(
                "the disk refuses what has to be stored before records are taken; only reads are served"
            )
            self._background.append(
                asyncio.create_task(self._every(self.config.checkpoint_interval_ms, self._settle))
            )
        if self.cluster is not None and self.metadata is not None:
            self.cluster.start()
            self._background.append(asyncio.create_task(self.metadata.run()))
        self.ready = True

    def _refuse_lost_metadata(self) -> None:
        """A database in which nothing was ever stored, beside logs: it is not the one that belongs to them."""
        found = self.logs.with_records()
        if found:
            raise StartupError(
                f"{self.config.data_dir}/{DATABASE} is empty, but there are records of {', '.join(found[:3])}"
                f"{' and others' if len(found) > 3 else ''} here: the database was lost. Restore it from a copy, or "
                "choose another directory with --data-dir; the logs are intact."
            )

    # --- an unclean start (see core.broker.unclean_start) -----------------------------------------------------

    async def _begin_unclean(self) -> None:
        """Note where the logs end, and raise the leader epoch, before anything can be appended."""
        self._recovered = self.logs.recovered_ends()
        self._epoch_to_come = max(self.leader_epoch, self.logs.newest_epoch) + 1
        await self._try_to_settle(self.raise_leader_epoch(self._epoch_to_come))

    async def _try_to_settle(self, step: Awaitable[None]) -> None:
        """Carry out a step without which nothing may be appended; `_settle` tries again if the disk refuses it."""
        try:
            await step
        except BrokerError as error:
            log.error("after the unclean stop: %s", error.message)
            if self.cluster is None:
                # In a cluster a step may fail because of the others, and positions are no reason to refuse records.
                self.unsettled = True

    async def _settle(self) -> None:
        """Try again what the disk has refused at the start. Raises KAFKA_STORAGE_ERROR."""
        if self.unsettled:
            await self.raise_leader_epoch(self._epoch_to_come)
            if self.cluster is None:
                await cut_back_groups(self.groups, self._recovered, self.counters)
                await cut_back_consumers(self.consumers, self._recovered, self.counters)
                await self.idempotency.open()
            self.unsettled, self._recovered = False, {}
            log.info("the disk has taken what had to be stored; records are taken again")

    def _ends_to_cut(self) -> dict[TopicPartition, int]:
        """The ends of logs beyond which no position may lie, for the moment before groups are served.

        In a cluster: of the partitions that this broker leads. Where it has kept the groups until it was restarted,
        so that nothing was committed since, the ends are those at which it began to lead.
        """
        if self.metadata is None:
            return self._recovered
        epoch, before, own_id = self.metadata.epoch, self._last_served, self.config.broker_id
        at_once = leader_of(before) == own_id and epoch == next_epoch(before, own_id)
        self._last_served = -1
        ends: dict[TopicPartition, int] = {}
        if at_once and not self._recovered:
            return ends
        if at_once:
            ends = {tp: end for tp, end in self._recovered.items() if self.replicas.get(tp) is None}
        for copy in self.replicas:
            if copy.replica.leads and copy.topic_partition != METADATA:
                end = copy.log.offsets.log_end_offset
                ends[copy.topic_partition] = copy.replica.start if at_once else end
        self._recovered = {}
        return ends

    async def _shortened(self, topic_partition: TopicPartition, end: int) -> None:
        """This broker is about to lead a partition whose log ends at `end`: no position of a group lies beyond."""
        if self.metadata is None or self.metadata.serving < 0 or topic_partition == METADATA:
            return
        try:
            await cut_back_groups(self.groups, {topic_partition: end}, self.counters)
            await cut_back_consumers(self.consumers, {topic_partition: end}, self.counters)
        except BrokerError as error:
            log.error("%s: positions beyond its end %d may stay: %s", topic_partition, end, error.message)

    # --- peers ---------------------------------------------------------------------------------------------------

    def _open_cluster(self, settings: dict[str, str]) -> None:
        """Take the replicas as the last run left them; who leads what is found out once the doors are open."""
        from core.replication.cluster import Cluster
        from core.replication.metadata_log import MetadataLog

        data_dir = self.config.data_dir
        self.replicas.memory = Memory(f"{data_dir}/{ROLES}")
        try:
            self.replicas.memory.load()
        except ValueError as error:
            raise StartupError(
                f"{data_dir}/{ROLES} is damaged ({error}). It holds what this broker has promised: restore it from a "
                "copy, or empty the data directory and let the broker follow anew."
            ) from None
        metadata = self.open_replicas(read_offsets(f"{data_dir}/{HIGH_WATERMARKS}") or {})
        self._last_served = metadata.replica.epoch
        self.metadata = MetadataLog(
            self,
            metadata,
            begin=self._serve_metadata,
            end=self._leave_metadata,
            topics_changed=self._topics_changed,
        )
        self.cluster = Cluster(
            self,
            before_cut=self.metadata.forget,
            before_lead=self._shortened,
            role_changed=self.metadata.poke,
            settings=settings,
        )
        self._without_metadata()

    async def _serve_metadata(self) -> None:
        """Take over groups, consumers and keys from the store, as the last who kept them has left them."""
        if not self.cluster_id:
            self.cluster_id = await self._new_cluster_id()
        ends = self._ends_to_cut()
        self.groups = Groups(self)
        await self.groups.open()
        if ends:
            await self._try_to_settle(cut_back_groups(self.groups, ends, self.counters))
        self.consumers = Consumers(self, self.groups)
        await self.consumers.open()
        if ends:
            await self._try_to_settle(cut_back_consumers(self.consumers, ends, self.counters))
        self.idempotency = IdempotencyKeys(self)
        await self._try_to_settle(self.idempotency.open())
        if not self.unsettled:
            self._recovered = {}

    async def _leave_metadata(self) -> None:
        """Another broker keeps them now."""
        consumers = self.consumers
        consumers.drain()
        self.groups.drain()
        self._without_metadata()
        await consumers.close()

    def _without_metadata(self) -> None:
        self.groups = Groups(self)
        self.groups.coordinator.elsewhere()
        self.consumers = Consumers(self, self.groups)
        self.idempotency = IdempotencyKeys(self)

    async def _topics_changed(self) -> None:
        """The store has got topics from another broker: make them so here."""
        settings = await self.store.read(load_settings)
        self.cluster_id = settings.get("cluster.id", "")
        self.broker_configs.load(await self.store.read(load_broker_configs))
        stored = {row.name: self._info(row) for row in await self.store.read(load_topics)}
        for before in list(self._topics.values()):
            after = stored.get(before.name)
            if after is None or after.topic_id != before.topic_id:
                self._drop(before)
        for name, after in stored.items():
            known = self._topics.get(name)
            if known != after:
                await self._adopt(known, after)
        self.metadata_version += 1

    async def _expire_keys(self) -> None:
        if self.metadata is None or self.metadata.serving >= 0:
            await self.idempotency.expire()

    async def _expire_offsets(self) -> None:
        if self.metadata is None or self.metadata.serving >= 0:
            await self.groups.expire()

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
        if self.metadata is not None:
            await self.metadata.close()
        if self.cluster is not None:
            await self.cluster.close()
        await self.store.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.flusher.close)
        if self.metadata is not None:
            with contextlib.suppress(OSError):
                self._high_watermarks_task()()
        self.logs.close(settled=not self.unsettled)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and its committed offsets. Raises as `TopicVerbs.delete_topic`."""
        await super().delete_topic(name)
        self.consumers.topic_deleted(name)
        await self.groups.topic_deleted(name)

    async def _reserve_producer_ids(self, count: int) -> int:
        first = self._next_producer_id
        self._next_producer_id = first + count
        name = _OWN_PRODUCER_ID if self.config.peers else _PRODUCER_ID
        await self.store.submit([put_setting(name, str(first + count))], local=bool(self.config.peers))
        return first

    def _first_producer_id(self, settings: dict[str, str]) -> int:
        """Where to go on. In a cluster each broker has ids of its own, and one that has lost its memory begins at a
        number that it cannot have reached before: the time."""
        if not self.config.peers:
            return int(settings.get(_PRODUCER_ID, "0"))
        first = (self.config.broker_id << _PRODUCER_ID_BITS) + self.clock.wall_ms()
        return int(settings.get(_OWN_PRODUCER_ID, str(first)))

    async def _new_cluster_id(self) -> str:
        cluster_id = base64.urlsafe_b64encode(self.clock.uuid4().bytes).rstrip(b"=").decode()
        await self.store.submit([put_setting("cluster.id", cluster_id)])
        return cluster_id

    async def _every(self, interval_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await step()
            except (OSError, BrokerError) as error:
                # A disk that is full or broken, most likely; where it was needed, somebody was told.
                log.error("background work failed: %s", error)
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
        """fsync what is dirty, then note the recovery points, so that a crash leaves a short tail to scan.

        What was committed is carried over into the database file: nothing older hangs on SQLite's `-wal`.
        """
        waits = [w for one in self.logs.unflushed() if (w := self._flush(one)) is not None]
        await asyncio.gather(*waits, return_exceptions=True)
        task = self.logs.begin_checkpoint()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, task.run)
        if self.counters.committed_jobs != self._carried_over:
            await self.store.submit([CARRY_OVER], local=True)
            self._carried_over = self.counters.committed_jobs
        if self.metadata is not None:
            await loop.run_in_executor(None, self._high_watermarks_task())
            await self.metadata.shorten()

    def _high_watermarks_task(self) -> Callable[[], None]:
        """Note what is committed of each replica, for the next start. Run it in a thread."""
        path, data = f"{self.config.data_dir}/{HIGH_WATERMARKS}", encode_offsets(self.high_watermarks())
        return lambda: files.write_whole(path, data, durable=False)

    def _flush(self, one: Log) -> asyncio.Future[None] | None:
        if one.failure is not None:
            return None
        waiting = self.flusher.durable(one, one.offsets.log_end_offset)
        if waiting is not None:
            # The log itself remembers that it failed, and says so; here nobody waits for an answer.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return waiting
