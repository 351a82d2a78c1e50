"""What one client of the cluster sees and does: topics, partitions and records, with connections of their own.

A gateway has one view as itself. With `--upstream-identity caller` each caller has another one, which shares nothing
with it: not a connection, not a batch, not a name of a topic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.batches.open_batches import OpenBatches
from core.changes import TopicChanges
from core.client.cluster import ClusterClient
from core.client.fetcher import Fetcher
from core.client.network import Network
from core.client.producer import Producer
from core.client.settings import ClientSettings
from core.clock import Clock
from core.config import Config
from core.records.partitioner import StickyPartitions
from core.types import TopicPartition
from core.upstream.bounds import Bounds
from core.upstream.holdings import holdings
from core.upstream.partitions import Partitions
from core.upstream.records import Records
from core.upstream.roles import Roles
from core.upstream.topics import Topics
from core.upstream.waiting import FollowingPurgatory
from core.vocabulary.holdings import Holdings
from core.vocabulary.records import FetchRead
from core.vocabulary.topic import TopicInfo


class ClusterView:
    """Topics, partitions and records over one client of the cluster. Open `cluster` first; `close` in the end."""

    def __init__(
        self, config: Config, clock: Clock, settings: ClientSettings, network: Network | None
    ) -> None:
        self._clock = clock
        self.purgatory = FollowingPurgatory(config.max_waiting)
        self.changes = TopicChanges(self.purgatory)
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
        self.topics.grown.append(self.partitions.grown)

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

    async def holdings(self, max_topics: int) -> Holdings:
        """See `Facade.holdings`. Sizes are not known; offsets are those that were read last."""
        return await holdings(self._clock, self.topics, self._bounds, max_topics)

    def keep_following(self) -> None:
        """Read the partitions that requests wait for, so that the fetcher does not take them for idle."""
        for key in tuple(self.purgatory.awaited()):
            self.partitions.follow(key)

    async def close(self) -> None:
        """Wait for the writes under way, and close the connections."""
        await self.partitions.close()
        await self.fetcher.close()
        await self.producer.close()
        await self.cluster.close()

    def _topic_dropped(self, info: TopicInfo) -> None:
        self.partitions.forget(info)
