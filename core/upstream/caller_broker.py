"""CallerBroker: the cluster as one caller of a gateway sees it, over connections that have its credentials alone.

It implements the facade for requests of that caller. What the caller may do is decided by the cluster, request by
request: nothing here is shared with the gateway's own connections or with another caller. Settings, counters and what
this process can do come from the gateway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from core.client.network import Network
from core.client.settings import ClientSettings
from core.clock import Clock
from core.config import Config, Endpoint
from core.counters import Counters
from core.errors import BrokerError
from core.facade import Consumers
from core.security.guarded_users import Acls, Ruled
from core.types import TopicPartition
from core.upstream.groups import RemoteGroups
from core.upstream.no_members import NoConsumers, NoKeyedWrites
from core.upstream.view import ClusterView
from core.vocabulary.foreign_groups import ForeignGroups
from core.vocabulary.freeze import Freezing
from core.vocabulary.holdings import Holdings
from core.vocabulary.idempotency import Idempotency
from core.vocabulary.queues import Queues
from core.vocabulary.quotas import Quotas
from core.vocabulary.records import FetchRead
from core.vocabulary.transactions import Transactions
from core.vocabulary.users import Tokens, Users
from core.vocabulary.webhooks import Webhooks


class CallerBroker:
    """The facade of one caller. `base` is the gateway. Open it before use; `drain` and `close` it in the end."""

    def __init__(self, base: Ruled, settings: ClientSettings, network: Network | None) -> None:
        self._base = base
        self._open = False
        view = self.view = ClusterView(base.config, base.clock, settings, network)
        self.purgatory, self.changes = view.purgatory, view.changes
        self.topics, self.partitions, self.records = view.topics, view.partitions, view.records
        self.roles = view.roles
        self.groups = RemoteGroups(base.config, view.cluster, self)
        self.consumers: Consumers = cast("Any", NoConsumers())
        self.idempotency: Idempotency = cast("Any", NoKeyedWrites())

    async def open(self, cluster_id: str) -> None:
        """Log in. Raises SASL_AUTHENTICATION_FAILED, LinkLost; LinkLost also for another cluster than that."""
        self.view.cluster.cluster_id = cluster_id
        try:
            await self.view.cluster.open()
        except BrokerError:
            await self.view.close()
            raise
        self._open = True

    def drain(self) -> None:
        """Answer every request that waits."""
        self._open = False
        self.groups.drain()
        self.purgatory.drain()

    async def close(self) -> None:
        """Close the connections."""
        self.drain()
        await self.groups.close()
        await self.view.close()

    # --- the cluster -----------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """See `Facade.cluster_id`."""
        return self.view.cluster.cluster_id

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
        """See `Facade.holdings`."""
        return await self.view.holdings(max_topics)

    # --- the process -----------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings."""
        return self._base.config

    @property
    def clock(self) -> Clock:
        """The clock."""
        return self._base.clock

    @property
    def counters(self) -> Counters:
        """The counters of the process."""
        return self._base.counters

    @property
    def ready(self) -> bool:
        """See `Facade.ready`."""
        return self._open and self._base.ready

    @property
    def capabilities(self) -> frozenset[str]:
        """See `Facade.capabilities`."""
        return self._base.capabilities

    @property
    def endpoints(self) -> list[Endpoint]:
        """See `Facade.endpoints`."""
        return self._base.endpoints

    @property
    def foreign_groups(self) -> ForeignGroups:
        """See `Facade.foreign_groups`: there are none."""
        return self._base.foreign_groups

    @property
    def transactions(self) -> Transactions:
        """See `Facade.transactions`: a gateway refuses them."""
        return self._base.transactions

    @property
    def queues(self) -> Queues:
        """See `Facade.queues`: a gateway refuses them."""
        return self._base.queues

    @property
    def webhooks(self) -> Webhooks:
        """See `Facade.webhooks`: a gateway refuses them."""
        return self._base.webhooks

    @property
    def freezing(self) -> Freezing:
        """See `Facade.freezing`: a gateway refuses it."""
        return self._base.freezing

    @property
    def users(self) -> Users:
        """See `Facade.users`. No route leads there without the capability."""
        return self._base.users

    @property
    def tokens(self) -> Tokens:
        """See `Facade.tokens`. No route leads there without the capability."""
        return self._base.tokens

    @property
    def quotas(self) -> Quotas:
        """See `Facade.quotas`. No route leads there without the capability."""
        return self._base.quotas

    @property
    def acls(self) -> Acls:
        """The access rules. No route leads there without the capability."""
        return self._base.acls
