"""Broker: one broker over one data directory, the embedded implementation of the facade.

Its parts are nouns (`topics`, `partitions`, `records`, `roles`, `groups`, …) and get what they need when they are
built. Here is its life: open, the background rhythm, drain, close. All of it runs on the event loop; threads get file
descriptors and SQL only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core.batches.open_batches import OpenBatches
from core.broker.broker_configs import BrokerConfigs
from core.broker.flusher import Flusher
from core.broker.freeze import Freeze
from core.broker.led_transaction_logs import LedTransactionLogs
from core.broker.partitions import Partitions
from core.broker.producer_ids import ProducerIds, ReservedIds
from core.broker.records import Records
from core.broker.roles import Roles
from core.broker.statistics import holdings
from core.broker.topic_table import TopicTable
from core.broker.topics import Topics
from core.broker.transaction_logs import TransactionLogs
from core.broker.unclean_start import LeaderEpochs, UncleanStart
from core.broker.upgrades import before_migration
from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config, Endpoint
from core.consumers.consumers import Consumers
from core.directory import BROKER_DATABASE
from core.errors import BrokerError, StartupError
from core.groups.group_configs import GroupConfigs
from core.groups.groups import Groups
from core.groups.store import MetadataGroupStore
from core.idempotency.keys import IdempotencyKeys
from core.idempotency.plan_writer import PlanWriter
from core.log import files
from core.log.checkpoint import CLEAN_SHUTDOWN, encode_offsets, read_offsets
from core.log.log import Log
from core.log.manager import LogManager
from core.metadata.broker_configs import load_broker_configs
from core.metadata.group_configs import load_group_configs
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import deleted_topics, load_settings, load_topics, put_setting
from core.purgatory import Purgatory
from core.queues.queues import Queues
from core.queues.share_sessions import ShareSessions
from core.queues.webhooks.store import WebhookStore
from core.queues.webhooks.webhooks import Webhooks
from core.records.partitioner import StickyPartitions
from core.replication.controller import Controller
from core.replication.promises import HIGH_WATERMARKS, ROLES, Promises
from core.replication.replicas import Replicas
from core.security.local import LocalSecurity
from core.topic_config import parse_topic_config
from core.transactions.clustered import ClusterTransactions
from core.transactions.long_transactions import LongTransactions
from core.transactions.transactions import Transactions
from core.types import TopicPartition
from core.vocabulary.capabilities import EMBEDDED
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.holdings import Holdings
from core.vocabulary.records import FetchRead
from core.vocabulary.replicas import METADATA, METADATA_ID

if TYPE_CHECKING:
    # Loaded by a broker with peers alone.
    from core.replication.cluster import Cluster
    from core.replication.metadata_log import MetadataLog

log = logging.getLogger(__name__)

DATABASE = BROKER_DATABASE
# The history of metadata is kept until it begins again with the whole database (`MetadataLog.shorten`).
_METADATA_CONFIG = {"retention.ms": "-1", "segment.bytes": "67108864"}


class Broker:
    """One broker over one data directory. Open it on the event loop that will use it.

    `groups`, `consumers`, `queues`, `webhooks` and `idempotency` exist once the broker is open. In a cluster they are
    replaced when this broker begins or ceases to keep the metadata: look them up for each call.
    """

    groups: Groups
    consumers: Consumers
    queues: Queues
    webhooks: Webhooks
    idempotency: IdempotencyKeys
    transactions: Transactions | ClusterTransactions

    def __init__(self, config: Config, clock: Clock) -> None:
        data_dir = Path(config.data_dir)
        self.config = config
        self.clock = clock
        self.cluster_id = ""
        self.ready = False
        # The addresses that TCP listeners are really bound to.
        self.endpoints: list[Endpoint] = []
        self.foreign_groups = ForeignGroups()
        self.store = Store(data_dir / DATABASE, clock)
        self.logs = LogManager(data_dir, config, clock)
        self.share_sessions = ShareSessions(config.group_share_max_share_sessions)
        self.counters = self.store.counters
        self.purgatory = Purgatory(config.max_waiting)
        self.changes = TopicChanges(self.purgatory)
        self._flusher = Flusher(config.flush_threads, self.counters, clock)
        self._reserved_ids = ReservedIds(config, clock, self.store)
        self.producer_ids = ProducerIds(self._reserved_ids.reserve)
        self.leader_epochs = LeaderEpochs(self.store, self.changes)
        self._build_replication()
        self._build_security()
        self._build_parts()
        self.long_transactions = LongTransactions(
            config, clock, self.store, lambda: self.transactions, lambda: self.idempotency
        )
        self._background: list[asyncio.Task[None]] = []
        # Jobs of the store when its write-ahead log was last carried over.
        self._carried_over = 0

    def _build_replication(self) -> None:
        """Build what the brokers of a cluster need; without peers that is an empty table of replicas."""
        config, clock, changes = self.config, self.clock, self.changes
        self._promises = Promises(f"{config.data_dir}/{ROLES}") if config.peers else None
        self.replicas = Replicas(
            config,
            clock,
            self.logs,
            self.purgatory,
            changes,
            self._promises,
            metadata_moved=self._metadata_moved,
        )
        self.metadata: MetadataLog | None = None
        self.cluster: Cluster | None = None
        if config.peers:
            # Imported here: a broker without peers does not pay for it.
            from core.replication.cluster import Cluster
            from core.replication.metadata_log import MetadataLog

            self.metadata = MetadataLog(
                config, clock, self.store, self.replicas, self._flusher, self.purgatory, changes,
                begin=self._serve_metadata, end=self._leave_metadata, topics_changed=self._topics_changed,
            )  # fmt: skip
            self.cluster = Cluster(
                config, clock, self.store, self.logs, self.replicas, self._flusher, changes,
                before_cut=self.metadata.forget, before_lead=self._shortened, role_changed=self.metadata.poke,
            )  # fmt: skip
        self.controller = Controller(config.broker_id, self.metadata)
        self.unclean_start = UncleanStart(
            config, self.counters, self.logs, self.leader_epochs, self.replicas, self.metadata
        )

    def _build_security(self) -> None:
        """Build users, tokens, access rules and quotas; each is a noun of the broker."""
        self.security = security = LocalSecurity(self.config, self.clock, self.store, self.controller)
        self.users, self.tokens, self.logins = security.users, security.tokens, security.logins
        self.passwords, self.jwts, self.audit = security.passwords, security.jwts, security.audit
        self.authorizer, self.acls = security.authorizer, security.acls
        self.quotas, self.quota_table = security.quotas, security.quota_table
        self.guards = security.guards(self)

    def _build_parts(self) -> None:
        config, clock, logs, purgatory = self.config, self.clock, self.logs, self.purgatory
        table = self._table = TopicTable(self.changes)
        sticky = StickyPartitions()
        self.freezing = Freeze(clock, self.store, self.controller)
        self.broker_configs = BrokerConfigs(config, self.store, logs, table, self.controller)
        self.group_configs = GroupConfigs(config, self.store, self.controller.require)
        self.topics = Topics(
            config, clock, self.store, logs, table, self.broker_configs, self.controller, self.freezing,
            self.replicas, self.cluster, purgatory, sticky, deleted=self._topic_deleted,
        )  # fmt: skip
        self.partitions = Partitions(
            config, clock, logs, table, self.replicas, self._flusher, self.leader_epochs, self.unclean_start,
            self.freezing, purgatory, self.changes,
        )  # fmt: skip
        open_batches = OpenBatches(config.max_decompressed_bytes, config.max_opened_bytes)
        self.records = Records(clock, self.topics, table, self.partitions, open_batches, sticky)
        self.roles = Roles(
            config, clock, table, self.partitions, self.replicas, self.cluster, self.controller, self.leader_epochs,
            purgatory, self.changes,
        )  # fmt: skip
        if config.peers:
            self.transactions = ClusterTransactions(config, clock, self.roles)

    async def open(self) -> None:
        """Read the metadata, recover the logs if the last stop was not clean, start the background work.

        Raises StartupError with one line for the operator.
        """
        data_dir = Path(self.config.data_dir)
        clean = (data_dir / CLEAN_SHUTDOWN).exists()
        self.store.replicated = bool(self.config.peers)
        await self.store.open(check=not clean, before=partial(before_migration, data_dir))
        settings = await self.store.read(load_settings)
        self.cluster_id = settings.get("cluster.id", "")
        self.freezing.load(settings)
        self.leader_epochs.load(settings)
        self._reserved_ids.load(settings)
        self.broker_configs.load(await self.store.read(load_broker_configs))
        self.group_configs.load(await self.store.read(load_group_configs))
        await self.security.load(settings)
        deleted = deleted_topics(settings)
        self.topics.load(await self.store.read(load_topics), deleted)
        topics = self.topics.all()
        held = [
            (TopicPartition(topic.name, partition), topic.topic_id, topic.config)
            for topic in topics
            if self.topics.holds(topic)
            for partition in range(topic.partitions)
        ]
        if self.config.peers:
            held.append((METADATA, METADATA_ID, parse_topic_config(_METADATA_CONFIG)))
        if not settings and not topics and not self.config.peers:
            self._refuse_lost_metadata()
        self.logs.load(held, deleted)
        if topics and not clean:
            await self.unclean_start.begin()
        if self.metadata is not None and self.cluster is not None:
            self._open_cluster(self.metadata, self.cluster, settings)
            await self.metadata.load()
        else:
            await self._serve_metadata()
        self._start_background()
        self.ready = True

    def _start_background(self) -> None:
        config = self.config
        self._background = [
            asyncio.create_task(self._every(config.background_interval_ms, self._background_step)),
            asyncio.create_task(self._checkpoints()),
            asyncio.create_task(self._every(config.idempotency_check_interval_ms, self._expire_keys)),
            asyncio.create_task(
                self._every(config.offsets_retention_check_interval_ms, self._expire_offsets)
            ),
            asyncio.create_task(self._every(config.transaction_check_interval_ms, self._step_transactions)),
            asyncio.create_task(self._every(config.offsets_retention_check_interval_ms, self._expire_ids)),
        ]
        if self.unclean_start.unsettled:
            log.error(
                "the disk refuses what has to be stored before records are taken; only reads are served"
            )
            self._background.append(
                asyncio.create_task(self._every(config.checkpoint_interval_ms, self._settle))
            )
        if self.cluster is not None and self.metadata is not None:
            self.cluster.start()
            self._background.append(asyncio.create_task(self.metadata.run()))

    def _refuse_lost_metadata(self) -> None:
        """Refuse to start with an empty database next to logs with records: it is not their database."""
        found = self.logs.with_records()
        if found:
            raise StartupError(
                f"{self.config.data_dir}/{DATABASE} is empty, but there are records of {', '.join(found[:3])}"
                f"{' and others' if len(found) > 3 else ''} here: the database was lost. Restore it from a copy, or "
                "choose another directory with --data-dir; the logs are intact."
            )

    async def _settle(self) -> None:
        """Try again what the disk has refused at the start. Raises KAFKA_STORAGE_ERROR."""
        await self.unclean_start.settle(self.groups, self.consumers, self.queues, self.idempotency)

    # --- peers -----------------------------------------------------------------------------------------------

    def _open_cluster(self, metadata: MetadataLog, cluster: Cluster, settings: Mapping[str, str]) -> None:
        """Take the replicas of the last run. Their leaders are found out once the listeners are open."""
        data_dir = self.config.data_dir
        assert self._promises is not None
        try:
            self._promises.load()
        except ValueError as error:
            raise StartupError(
                f"{data_dir}/{ROLES} is damaged ({error}). It holds what this broker has promised: restore it from a "
                "copy, or empty the data directory and let the broker copy everything from its peers."
            ) from None
        metadata.open(self.roles.open_replicas(read_offsets(f"{data_dir}/{HIGH_WATERMARKS}") or {}))
        self.unclean_start.served_before(metadata.epoch)
        cluster.open(settings)
        self._without_metadata()

    def _metadata_moved(self) -> None:
        """The high watermark of the metadata partition has moved."""
        if self.metadata is not None:
            self.metadata.poke()

    async def _shortened(self, tp: TopicPartition, end: int) -> None:
        """This broker is about to lead a partition whose log ends at `end`: cut back the positions beyond it."""
        if self.metadata is None or self.metadata.serving < 0 or tp == METADATA:
            return
        try:
            await self.unclean_start.cut_back_groups(self.groups, {tp: end})
            await self.unclean_start.cut_back_consumers(self.consumers, {tp: end})
            await self.unclean_start.cut_back_queues(self.queues, {tp: end})
        except BrokerError as error:
            log.error("%s: positions beyond its end %d may stay: %s", tp, end, error.message)

    async def _serve_metadata(self) -> None:
        """Take over groups, consumers and keys from the store, as the last broker that kept them has left them."""
        if not self.cluster_id:
            self.cluster_id = await self._new_cluster_id()
        start = self.unclean_start
        ends = start.ends_to_cut()
        self.groups = Groups(self.config, self.clock, MetadataGroupStore(self.store), self)
        self.groups.follow(self.group_configs)
        await self.groups.open()
        if ends:
            await start.attempt(start.cut_back_groups(self.groups, ends))
        self.consumers = Consumers(self, self.store, self.groups)
        await self.consumers.open()
        if ends:
            await start.attempt(start.cut_back_consumers(self.consumers, ends))
        self.queues = self._new_queues()
        await self.queues.open()
        if ends:
            await start.attempt(start.cut_back_queues(self.queues, ends))
        self.idempotency = self._idempotency_keys()
        await start.attempt(self.idempotency.open())
        await self._serve_transactions()
        self.queues.start()
        self.webhooks = self._webhooks()
        await self.webhooks.open()
        start.settled()

    def _webhooks(self) -> Webhooks:
        return Webhooks(self.config, self.clock, WebhookStore(self.store), self.queues, self._own_addresses)

    def _own_addresses(self) -> list[tuple[str, int]]:
        """Return host and port of every listener of this process, as far as they are known."""
        return [(one.host, one.port) for one in (*self.endpoints, *self.config.listeners) if one.port]

    def _new_queues(self) -> Queues:
        """Return the queues of the present groups; the members of share groups use them."""
        self.groups.shares.serve(lambda: self.queues, self.group_configs)
        return Queues(self, self.store, self.groups, lambda: self.idempotency)

    def _idempotency_keys(self) -> IdempotencyKeys:
        return IdempotencyKeys(self, self.store, self.producer_ids, PlanWriter(self, self.partitions.log))

    async def _serve_transactions(self) -> None:
        """Take over the transactional ids, as the last broker that kept them has left them."""
        logs = TransactionLogs(self.logs, self._flusher, self.leader_epochs, self.purgatory, self.changes)
        if self.metadata is None:
            self.transactions = Transactions(
                self.config, self.clock, self.store, logs, self.groups, self.producer_ids.next
            )
            await self.transactions.open()
            await self.long_transactions.open()
            return
        led = LedTransactionLogs(
            self.config, self.logs, logs, self._table, self.replicas, self._flusher, self.purgatory, self.changes,
            self.metadata,
        )  # fmt: skip
        coordinator = Transactions(
            self.config, self.clock, self.store, led, self.groups, self.producer_ids.next, coordinator_epoch=led.epoch
        )  # fmt: skip
        await coordinator.open()
        assert isinstance(self.transactions, ClusterTransactions)
        self.transactions.serve(coordinator, led)

    async def _leave_metadata(self) -> None:
        """Forget groups, consumers and keys: another broker keeps them now."""
        assert isinstance(self.transactions, ClusterTransactions)
        self.transactions.leave()
        consumers, queues, webhooks = self.consumers, self.queues, self.webhooks
        consumers.drain()
        webhooks.drain()
        queues.drain()
        self.groups.drain()
        self._without_metadata()
        await consumers.close()
        await webhooks.close()
        await queues.close()

    def _without_metadata(self) -> None:
        self.groups = Groups(self.config, self.clock, MetadataGroupStore(self.store), self)
        self.groups.elsewhere()
        self.consumers = Consumers(self, self.store, self.groups)
        self.queues = self._new_queues()
        self.queues.elsewhere()
        self.webhooks = self._webhooks()
        self.webhooks.elsewhere()
        self.idempotency = self._idempotency_keys()

    async def _topics_changed(self) -> None:
        """Take over settings, users, access rules, quotas and topics that the store has got from another broker."""
        settings = await self.store.read(load_settings)
        self.cluster_id = settings.get("cluster.id", "")
        self.freezing.load(settings)
        self.broker_configs.load(await self.store.read(load_broker_configs))
        self.group_configs.load(await self.store.read(load_group_configs))
        await self.security.load(settings)
        await self.topics.adopt(await self.store.read(load_topics))
        self.changes.answers_changed()

    async def _topic_deleted(self, name: str) -> None:
        self.consumers.topic_deleted(name)
        self.queues.topic_deleted(name)
        await self.groups.topic_deleted(name)

    async def _step_transactions(self) -> None:
        await self.transactions.step()
        await self.long_transactions.step()

    async def _expire_ids(self) -> None:
        await self.transactions.expire()

    async def _expire_keys(self) -> None:
        if self.controller.serving:
            await self.idempotency.expire()

    async def _expire_offsets(self) -> None:
        if self.controller.serving:
            await self.groups.expire()

    # --- stopping --------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> frozenset[str]:
        """See `Facade.capabilities`."""
        return EMBEDDED

    async def look(
        self,
        topics: Collection[str] | None = (),
        *,
        bounds: bool = False,
        configs: bool = False,
        partitions: Collection[TopicPartition] = (),
        moment: int | None = None,
        committed: bool = False,
        fresh: bool = True,
    ) -> None:
        """See `Facade.look`: everything is at hand."""

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool = True) -> None:
        """See `Facade.bring`: everything is at hand."""

    async def look_at_group(self, group_id: str) -> None:
        """See `Facade.look_at_group`: all but a queue that was not used since the start is at hand."""
        await self.queues.look(group_id)

    async def look_at_groups(self) -> None:
        """See `Facade.look_at_groups`: everything is at hand."""

    async def holdings(self, max_topics: int, max_lags: int) -> Holdings:
        """Count topics, partitions and groups, with sizes and lags, up to these limits; the oldest topics first."""
        topics = self.topics.list(include_internal=True)
        return await holdings(self.clock, self.logs, topics, self.groups, max_topics, max_lags)

    def drain(self) -> None:
        """Answer every request that waits; none waits afterwards. The first half of a stop."""
        if self.ready:
            self.consumers.drain()
            self.webhooks.drain()
            self.queues.drain()
            self.groups.drain()
        self.ready = False
        self.purgatory.drain()

    async def close(self) -> None:
        """Flush and close; the clean-shutdown marker is written if all of it went well."""
        self.drain()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        changes = [*self.topics.changing.values(), *self.partitions.unattended]
        if changes:
            await asyncio.wait(changes, timeout=self.config.drain_timeout_ms / 1000)
        settled = not self.unclean_start.unsettled
        if self._background:
            await self.consumers.close()
            await self.webhooks.close()
            await self.queues.close()
            settled = await self.transactions.close() and settled
        if self.metadata is not None:
            await self.metadata.close()
        if self.cluster is not None:
            await self.cluster.close()
        await self.security.close()
        await self.store.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._flusher.close)
        if self.metadata is not None:
            with contextlib.suppress(OSError):
                self._high_watermarks_task()()
        self.logs.close(settled=settled)

    async def _new_cluster_id(self) -> str:
        cluster_id = base64.urlsafe_b64encode(self.clock.uuid4().bytes).rstrip(b"=").decode()
        await self.store.submit([put_setting("cluster.id", cluster_id)])
        return cluster_id

    async def _checkpoints(self) -> None:
        """Write a checkpoint at intervals, the first one at once if the start has recovered logs.

        Without that a broker that is killed soon after each start would read the records of all its lives each time.
        """
        recovered = bool(self.logs.unflushed())
        await self._every(self.config.checkpoint_interval_ms, self.checkpoint, at_once=recovered)

    async def _every(
        self, interval_ms: int, step: Callable[[], Awaitable[None]], *, at_once: bool = False
    ) -> None:
        while True:
            await asyncio.sleep(0 if at_once else interval_ms / 1000)
            at_once = False
            try:
                await step()
            except (OSError, BrokerError) as error:
                # Most likely the disk is full or broken; a request that needed it has got the error.
                log.error("background work failed: %s", error)
            except Exception:
                # A failed background step must not end the rhythm: the next one tries again.
                log.exception("background work failed")

    async def _background_step(self) -> None:
        """Retention, compaction, deletion of files: steps of a few milliseconds, others run in between."""
        self.security.expire()
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

    async def checkpoint(self) -> None:
        """fsync what is dirty, then note the recovery points, so that a crash leaves a short tail to scan.

        What was committed is carried over into the database file: nothing older hangs on SQLite's `-wal`.
        """
        self.logs.write_states()
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
        path, data = f"{self.config.data_dir}/{HIGH_WATERMARKS}", encode_offsets(self.roles.high_watermarks())
        return lambda: files.write_whole(path, data, durable=False)

    def _flush(self, one: Log) -> asyncio.Future[None] | None:
        if one.failure is not None:
            return None
        waiting = self._flusher.durable(one, one.offsets.log_end_offset)
        if waiting is not None:
            # The log itself remembers that it failed, and refuses appends; no request waits for this flush.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return waiting
