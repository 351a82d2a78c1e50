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

from core.client.network import Network
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.config import CALLER, Config, Endpoint
from core.consumers.consumers import Consumers
from core.directory import GATEWAY_DATABASE
from core.errors import BrokerError, StartupError
from core.idempotency.keys import IdempotencyKeys
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import load_settings, put_setting
from core.security.guarded import Guarding
from core.security.keeper import Alone
from core.security.local import LocalSecurity
from core.security.passwords import PasswordChecks
from core.transactions.long_transactions import LongTransactions
from core.types import TopicPartition
from core.upstream.callers import Callers
from core.upstream.freezing import NoFreezing
from core.upstream.groups import RemoteGroups
from core.upstream.keyed_writes import RemotePlanWriter, RemoteProducerIds
from core.upstream.no_queues import NoQueues, NoWebhooks
from core.upstream.no_transactions import NoTransactions, refuse_transactions
from core.upstream.startup import startup_error
from core.upstream.view import ClusterView
from core.vocabulary.capabilities import FOR_CALLERS, OVER_A_CLUSTER
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.holdings import Holdings
from core.vocabulary.records import FetchRead

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
        view = self.view = ClusterView(config, clock, settings, network)
        self.purgatory, self.changes = view.purgatory, view.changes
        self.cluster, self.producer, self.fetcher = view.cluster, view.producer, view.fetcher
        self.topics, self.partitions, self.records = view.topics, view.partitions, view.records
        self.roles = view.roles
        self.topics.deleted.append(self._topic_deleted)
        # The callers with connections of their own, with `--upstream-identity caller`.
        self.callers: Callers | None = None
        self._build_security()
        if config.upstream is not None and config.upstream.identity == CALLER:
            self._serve_callers(settings, network)
        # Acknowledgements and offsets outside of a transaction take it, too.
        self.long_transactions = LongTransactions(
            config, clock, self.store, refuse_transactions, refuse_transactions
        )
        self._background: list[asyncio.Task[None]] = []

    def _build_security(self) -> None:
        """Build users, access rules and quotas: those of this process."""
        security = self.security = LocalSecurity(self.config, self.clock, self.store, Alone())
        self.users, self.tokens, self.logins = security.users, security.tokens, security.logins
        self.passwords: PasswordChecks = security.passwords
        self.jwts, self.audit = security.jwts, security.audit
        self.authorizer, self.quota_table = security.authorizer, security.quota_table
        self.quotas, self.acls = security.quotas, security.acls
        self.guards: Guarding = security.guards(self)

    def _serve_callers(self, settings: ClientSettings, network: Network | None) -> None:
        """Let the cluster check passwords and rights: no call of a request is one of the gateway."""

        def addresses() -> list[Address]:
            known = [one.address for one in self.cluster.brokers.values()]
            return list(dict.fromkeys([*known, *settings.bootstrap]))

        self.callers = Callers(self, settings, network, self.logins, addresses)
        self.guards = self.passwords = self.callers

    def use(self, settings: ClientSettings) -> None:
        """Use the credentials and the TLS context of other settings for connections and logins to come."""
        self.cluster.links.use_tls(settings.tls)
        login = self.cluster.settings.login
        if login is not None and settings.login is not None:
            login.take(settings.login)
        if self.callers is not None:
            self.callers.use_tls(settings.tls)

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
        if self.callers is None:
            # A caller has none, and those of an earlier start would be members as the gateway.
            await self.consumers.open()

    def drain(self) -> None:
        """Answer every request that waits; none waits afterwards. The first half of a stop."""
        if self.ready:
            self.consumers.drain()
            self.groups.drain()
        self.ready = False
        self.purgatory.drain()
        if self.callers is not None:
            self.callers.drain()

    async def close(self) -> None:
        """Wait for the writes under way, and close the connections and the store."""
        self.drain()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.callers is not None:
            await self.callers.close()
        await self._close_groups()
        await self.view.close()
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
        return OVER_A_CLUSTER if self.callers is None else FOR_CALLERS

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
        await self.view.look(
            topics,
            bounds=bounds,
            configs=configs,
            partitions=partitions,
            moment=moment,
            committed=committed,
            fresh=fresh,
        )

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool = True) -> None:
        """See `Facade.bring`."""
        await self.view.bring(reads, max_bytes=max_bytes, fresh=fresh)

    async def look_at_group(self, group_id: str) -> None:
        """See `Facade.look_at_group`."""
        await self.groups.look_at_group(group_id)

    async def look_at_groups(self) -> None:
        """See `Facade.look_at_groups`."""
        await self.groups.look_at_groups()

    async def holdings(self, max_topics: int, max_lags: int) -> Holdings:
        """See `Facade.holdings`. Sizes are not known; offsets are those that were read last."""
        return await self.view.holdings(max_topics)

    # --- background ----------------------------------------------------------------------------------------

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
        self.view.keep_following()
        if self.callers is not None:
            await self.callers.sweep()

    async def _expire_keys(self) -> None:
        """Delete idempotency keys that are too old."""
        await self.idempotency.expire()
