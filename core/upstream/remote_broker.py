"""RemoteBroker: a gateway over an existing Kafka cluster, the second implementation of the facade.

Topics, records and groups are those of the cluster; `core.client` talks to its brokers. What belongs to this process
alone is in the store of its data directory: users, access rules, quotas, managed consumers, keyed writes. That store
belongs to one cluster: consumers and keys of another one would mean nothing here.

A synchronous call answers from what is at hand; `look`, `bring` and `look_at_group` bring it to hand (`core.facade`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from core.batches.open_batches import OpenBatches
from core.changes import TopicChanges
from core.client.cluster import ClusterClient
from core.client.fetcher import Fetcher
from core.client.network import Network
from core.client.producer import Producer
from core.client.settings import ClientSettings
from core.clock import Clock
from core.config import Config, Endpoint
from core.consumers.consumers import Consumers
from core.directory import GATEWAY_DATABASE
from core.errors import BrokerError, StartupError
from core.idempotency.keys import IdempotencyKeys
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import load_settings, put_setting
from core.records.partitioner import StickyPartitions
from core.security.keeper import Alone
from core.security.local import LocalSecurity
from core.transactions.long_transactions import LongTransactions
from core.types import TopicPartition
from core.upstream.bounds import Bounds
from core.upstream.freezing import NoFreezing
from core.upstream.groups import RemoteGroups
from core.upstream.holdings import holdings
from core.upstream.keyed_writes import RemotePlanWriter, RemoteProducerIds
from core.upstream.no_queues import NoQueues, NoWebhooks
from core.upstream.no_transactions import NoTransactions, refuse_transactions
from core.upstream.partitions import Partitions
from core.upstream.records import Records
from core.upstream.roles import Roles
from core.upstream.startup import startup_error
from core.upstream.topics import Topics
from core.upstream.waiting import FollowingPurgatory
from core.vocabulary.capabilities import OVER_A_CLUSTER
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.holdings import Holdings
from core.vocabulary.records import FetchRead
from core.vocabulary.topic import TopicInfo

log = logging.getLogger(__name__)

_CLUSTER_ID = "upstream.cluster.id"


class RemoteBroker:
    """A gateway over one cluster. Open it on the event loop that will use it.

    `groups`, `consumers` and `idempotency` exist once it is open.
    """

    groups: RemoteGroups
    consumers: Consumers
    idempotency: IdempotencyKeys

    def __init__(
        self, config: Config, clock: Clock, settings: ClientSettings, network: Network | None = None
    ) -> None:
        self.config = config
        self.clock = clock
        self.ready = False
        # Clients of Kafka go to the brokers of the cluster.
        self.endpoints: list[Endpoint] = []
        self.foreign_groups = ForeignGroups()
        self.transactions = NoTransactions()
        self.queues = NoQueues()
        self.webhooks = NoWebhooks()
        self.freezing = NoFreezing()
        self.store = Store(Path(config.data_dir) / GATEWAY_DATABASE, clock)
        self.counters = self.store.counters
        self.purgatory = FollowingPurgatory(config.max_waiting)
        self.changes = TopicChanges(self.purgatory)
        self._build_security()
        self._build_data(settings, network)
        # Acknowledgements and offsets outside of a transaction take it, too.
        self.long_transactions = LongTransactions(
            config, clock, self.store, refuse_transactions, refuse_transactions
        )
        self._background: list[asyncio.Task[None]] = []

    def _build_security(self) -> None:
        """Build users, access rules and quotas: those of this process."""
        security = self.security = LocalSecurity(self.config, self.clock, self.store, Alone())
        self.users, self.tokens, self.logins = security.users, security.tokens, security.logins
        self.passwords, self.jwts, self.audit = security.passwords, security.jwts, security.audit
        self.authorizer, self.quota_table = security.authorizer, security.quota_table
        self.quotas, self.acls = security.quotas, security.acls
        self.guards = security.guards(self)

    def _build_data(self, settings: ClientSettings, network: Network | None) -> None:
        """Build topics, partitions and records over the cluster's client."""
        config, clock = self.config, self.clock
        sticky = StickyPartitions()
        self.cluster = ClusterClient(settings, clock, network, changed=lambda names: self.topics.take(names))
        self.producer = Producer(self.cluster)
        self.fetcher = Fetcher(self.cluster, lambda tp: self.partitions.arrived(tp))
        self.topics = Topics(config, self.cluster, self.changes, self.purgatory, sticky)
        self._bounds = Bounds(self.cluster, self.changes, self.purgatory)
        self.partitions = Partitions(
            config, self.cluster, self.fetcher, self.topics, self._bounds, self.purgatory, self.changes
        )
        open_batches = OpenBatches(config.max_decompressed_bytes, config.max_opened_bytes)
        self.records = Records(
            clock, self.topics, self.partitions, self._bounds, self.producer, open_batches, sticky
        )
        self.roles = Roles(self.cluster)
        self.purgatory.follow = self.partitions.follow
        self.topics.dropped.append(self._topic_dropped)
        self.topics.deleted.append(self._topic_deleted)
        self.topics.grown.append(self.partitions.grown)

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store, ask the cluster for its metadata, start the background work.

        Raises StartupError with one line for the operator.
        """
        await self.store.open(check=True)
        try:
            await self.cluster.open()
        except BrokerError as error:
            raise startup_error(error, self.cluster.settings.bootstrap) from None
        await self._check_cluster()
        await self.security.load(await self.store.read(load_settings))
        await self._open_groups()
        config = self.config
        self._background = [
            asyncio.create_task(self._every(config.background_interval_ms, self._background_step)),
            asyncio.create_task(self._every(config.checkpoint_interval_ms, self._checkpoint)),
            asyncio.create_task(
                self._every(max(self.cluster.settings.fetch_idle_ms // 3, 1), self._keep_following)
            ),
            asyncio.create_task(self._every(config.idempotency_check_interval_ms, self._expire_keys)),
        ]
        self.ready = True

    async def _check_cluster(self) -> None:
        """Note the id of the cluster in the store, or refuse another one."""
        settings = await self.store.read(load_settings)
        known, found = settings.get(_CLUSTER_ID, ""), self.cluster.cluster_id
        if known and found and known != found:
            raise StartupError(
                f"{self.config.data_dir} holds consumers and keys of the Kafka cluster {known}, and --upstream leads "
                f"to the cluster {found}. Choose another directory with --data-dir, or the right cluster."
            )
        if found and not known:
            await self.store.submit([put_setting(_CLUSTER_ID, found)])

    async def _open_groups(self) -> None:
        """Open groups, managed consumers and idempotency keys; consumers of the last run stay members."""
        self.groups = RemoteGroups(self.config, self.cluster, self)
        self.consumers = Consumers(self, self.store, self.groups)
        writer = RemotePlanWriter(self, self.cluster, self.producer)
        self.idempotency = IdempotencyKeys(self, self.store, RemoteProducerIds(self.cluster), writer)
        await self.consumers.open()

    def drain(self) -> None:
        """Answer every request that waits; none waits afterwards. The first half of a stop."""
        if self.ready:
            self.consumers.drain()
            self.groups.drain()
        self.ready = False
        self.purgatory.drain()

    async def close(self) -> None:
        """Wait for the writes under way, and close the connections and the store."""
        self.drain()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._close_groups()
        await self.partitions.close()
        await self.fetcher.close()
        await self.producer.close()
        await self.cluster.close()
        await self.security.close()
        await self.store.close()

    async def _close_groups(self) -> None:
        """Close what `_open_groups` has opened. Consumers do not leave their groups."""
        if self._background:
            await self.consumers.close()
            await self.groups.close()

    # --- the facade ----------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """See `Facade.cluster_id`."""
        return self.cluster.cluster_id

    @property
    def capabilities(self) -> frozenset[str]:
        """See `Facade.capabilities`."""
        return OVER_A_CLUSTER

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
        """See `Facade.look`."""
        if topics is None:
            await self.topics.look(None)
            return
        wanted = {*topics, *(tp.topic for tp in partitions)}
        await self.topics.look(wanted, configs=configs)
        tps = list(partitions)
        if bounds or (moment is not None and topics):
            for name in topics:
                info = self.topics.find(name)
                if info is not None:
                    tps += [TopicPartition(name, partition) for partition in range(info.partitions)]
        if tps:
            await self.partitions.look(tps, moment, committed=committed, fresh=fresh)

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool = True) -> None:
        """See `Facade.bring`."""
        missing = {read.tp.topic for read in reads if self.topics.find(read.tp.topic) is None}
        if missing:
            await self.topics.look(missing)
        await self.partitions.bring(reads, max_bytes=max_bytes, fresh=fresh)

    async def look_at_group(self, group_id: str) -> None:
        """See `Facade.look_at_group`."""
        await self.groups.look_at_group(group_id)

    async def look_at_groups(self) -> None:
        """See `Facade.look_at_groups`."""
        await self.groups.look_at_groups()

    async def holdings(self, max_topics: int, max_lags: int) -> Holdings:
        """See `Facade.holdings`. Sizes are not known; offsets are those that were read last."""
        return await holdings(self.clock, self.topics, self._bounds, max_topics)

    # --- background ----------------------------------------------------------------------------------------

    def _topic_dropped(self, info: TopicInfo) -> None:
        self.partitions.forget(info)

    def _topic_deleted(self, name: str) -> None:
        if self.ready:
            self.consumers.topic_deleted(name)

    async def _every(self, interval_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await step()
            except (OSError, BrokerError) as error:
                log.error("background work failed: %s", error)
            except Exception:
                # A failed background step must not end the rhythm: the next one tries again.
                log.exception("background work failed")

    async def _background_step(self) -> None:
        self.security.expire()

    async def _checkpoint(self) -> None:
        """Carry over what was committed into the database file."""
        await self.store.submit([CARRY_OVER], local=True)

    async def _keep_following(self) -> None:
        """Read the partitions that requests wait for, so that the fetcher does not take them for idle."""
        for key in tuple(self.purgatory.awaited()):
            self.partitions.follow(key)

    async def _expire_keys(self) -> None:
        """Delete idempotency keys that are too old."""
        await self.idempotency.expire()
