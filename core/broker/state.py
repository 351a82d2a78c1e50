"""What the verbs of the broker share: the topics, the logs, the store and everything that waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, ValuesView
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from core.broker.broker_configs import BrokerConfigs
from core.broker.flusher import Flusher
from core.broker.open_batches import OpenedBatches
from core.broker.producer_ids import ProducerIds
from core.clock import Clock
from core.config import Config, Endpoint
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.manager import LogManager
from core.log.replica_log import ReplicaLog
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import TopicRow, put_setting
from core.purgatory import Purgatory
from core.replication.replicas import Replicas
from core.topic_config import TopicConfig, parse_topic_config
from core.types import LogOffsets, TopicPartition
from core.vocabulary.foreign_groups import ForeignGroups

if TYPE_CHECKING:
    from core.replication.cluster import Cluster
    from core.replication.metadata_log import MetadataLog

log = logging.getLogger(__name__)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
# The single value that holds `BrokerState.leader_epoch`; each broker's own.
LEADER_EPOCH = "local.leader.epoch"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as doors see it. `overrides` are its own settings as text; `version` rises with each change."""

    name: str
    topic_id: UUID
    partitions: int
    overrides: dict[str, str]
    config: TopicConfig
    created_ms: int
    version: int
    # Broker ids, the same for all partitions, the first leader first; of one broker alone, its own.
    replicas: tuple[int, ...] = ()

    @property
    def internal(self) -> bool:
        """Whether the topic belongs to the broker and not to users."""
        return self.name in INTERNAL_TOPICS

    @property
    def row(self) -> TopicRow:
        """The topic as it is stored."""
        return TopicRow(
            self.name,
            self.topic_id,
            self.partitions,
            self.overrides,
            self.created_ms,
            self.version,
            self.replicas,
        )


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its bounds, its size on disk in bytes, and its replicas as broker ids.

    `leader` is −1 where nobody is known to lead. Only the leader knows `isr`; a follower shows what it saw last.
    `leads`: this broker does.
    """

    topic_partition: TopicPartition
    offsets: LogOffsets
    size: int
    leader_epoch: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leads: bool

    @property
    def role(self) -> Literal["leader", "follower"]:
        """What this broker is to the partition."""
        return "leader" if self.leads else "follower"

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def order(self) -> tuple[int, ...]:
        """The leader, then the other replicas as assigned."""
        first = (self.leader,) if self.leader in self.replicas else ()
        return (*first, *(r for r in self.replicas if r != self.leader))


class BrokerState:
    """The shared state; touched on the event loop only."""

    def __init__(self, config: Config, clock: Clock, store: Store, logs: LogManager) -> None:
        self.config = config
        self.clock = clock
        self.store = store
        self.logs = logs
        self.counters = store.counters
        self.purgatory = Purgatory(config.max_waiting)
        self.flusher = Flusher(config.flush_threads, self.counters, clock)
        self.opened = OpenedBatches(config.max_decompressed_bytes, config.max_opened_bytes)
        self.producer_ids = ProducerIds(self._reserve_producer_ids)
        self.replicas = Replicas(self)
        # With peers: what goes on between the brokers, and who keeps the store.
        self.cluster: Cluster | None = None
        self.metadata: MetadataLog | None = None
        self.cluster_id = ""
        self.ready = False
        # Rises whenever an answer about topics would change: the key of every cache of such answers.
        self.metadata_version = 0
        # Called whenever it rises.
        self.topic_listeners: list[Callable[[], None]] = []
        self.foreign_groups = ForeignGroups()
        self._topics: dict[str, TopicInfo] = {}
        self._topic_names: dict[UUID, str] = {}
        # Deleted topics whose files are out of the way, and of whom the store still says so.
        self._deleted: set[UUID] = set()
        # The addresses that TCP listeners are really bound to.
        self.endpoints: list[Endpoint] = []
        self._next_producer_id = 0
        # The leader epoch of every partition with one replica: one number for all, so that an unclean start raises
        # it with one write. It never goes back.
        self.leader_epoch = 0
        # Whether a start after a crash still has work to do before the first append: `core.broker.unclean_start`.
        self.unsettled = False
        # A number for each topic that is another one after every append to it and every change of it: whoever
        # reads all partitions of a topic knows by it whether there is anything to look for.
        self.touched: dict[str, int] = {}
        self._touches = 0
        # Appends that were begun for clients which need no answer and may have gone; they end before the logs close.
        self.unattended: set[asyncio.Task[None]] = set()
        self.broker_configs = BrokerConfigs(self)

    async def _reserve_producer_ids(self, count: int) -> int:
        raise NotImplementedError

    @property
    def metadata_leader(self) -> int:
        """The broker that keeps topics, groups and offsets; −1 if nobody is known to."""
        return self.config.broker_id if self.metadata is None else self.metadata.leader

    def require_metadata(self) -> None:
        """Raise NOT_CONTROLLER unless this broker keeps topics, groups and offsets."""
        if self.metadata is not None and self.metadata.serving < 0:
            leader = self.metadata.leader
            who = f"broker {leader} does" if leader not in (-1, self.config.broker_id) else "nobody does now"
            raise BrokerError(
                ErrorCode.NOT_CONTROLLER,
                f"This broker does not keep topics, groups and offsets; {who}.",
                leader=leader,
            )

    def holds(self, topic: TopicInfo) -> bool:
        """Whether this broker has a replica of the topic."""
        return not topic.replicas or self.config.broker_id in topic.replicas

    def touch(self, topic: str) -> None:
        """Say that something happened to a topic or to one of its partitions, to those that wait for all."""
        self._touches += 1
        self.touched[topic] = self._touches
        self.purgatory.notify(topic)

    def topic(self, name: str) -> TopicInfo:
        """The topic of that name; UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        found = self._topics.get(name)
        if found is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name!r}.", topic=name
            )
        return found

    def topic_name(self, topic_id: UUID) -> str:
        """The name that belongs to a topic id; UNKNOWN_TOPIC_ID if there is none."""
        name = self._topic_names.get(topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}.")
        return name

    def log(self, topic_partition: TopicPartition) -> ReplicaLog:
        """The log of a partition, opened if need be; UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        topic = self.topic(topic_partition.topic)
        if not 0 <= topic_partition.partition < topic.partitions:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {topic.name!r} has no partition {topic_partition.partition}; it has {topic.partitions}, "
                "counted from 0.",
                topic=topic.name,
                partition=topic_partition.partition,
            )
        if topic.replicas and self.config.broker_id not in topic.replicas:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"This broker holds no replica of {topic.name!r}; the brokers "
                f"{', '.join(map(str, topic.replicas))} do.",
                leader=topic.replicas[0],
            )
        return self.logs.get(topic_partition)

    def topics_of_all(self) -> ValuesView[TopicInfo]:
        """All topics, in no order."""
        return self._topics.values()

    def topic_config(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """The settings of a stored topic with the broker's defaults.

        Where the defaults of today do not go together with what the topic has set itself, the topic's hold alone.
        """
        try:
            return parse_topic_config(overrides, self.broker_configs.topic_defaults)
        except BrokerError as error:
            log.warning("topic %s: the broker's defaults do not hold for it: %s", name, error.message)
            return parse_topic_config(overrides)

    def configs_changed(self) -> None:
        """The broker's defaults have changed: give them to the topics that do not set their own."""
        changed: dict[str, TopicConfig] = {}
        # Most topics set nothing or the same; they share what was parsed once.
        parsed: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        for info in list(self._topics.values()):
            key = tuple(sorted(info.overrides.items()))
            config = parsed.get(key)
            if config is None:
                config = parsed[key] = self.topic_config(info.name, info.overrides)
            if config != info.config:
                self._topics[info.name] = replace(info, config=config)
                changed[info.name] = config
        if changed:
            self.logs.update_configs(changed)
        self._metadata_changed()

    def epoch_of(self, log: Log) -> int:
        """The leader epoch in force of a partition with one replica.

        A log may know a newer one than this broker: from a time when it had peers, or of a role that was given by
        hand. Metadata names one epoch for all of them, without a look into logs, so all of them take it.
        """
        if log.leader_epoch > self.leader_epoch:
            # Whether it can be stored or not: the next one that looks into this log finds it again.
            self._lead_in(log.leader_epoch)
            with contextlib.suppress(BrokerError):
                self._store_leader_epoch(log.leader_epoch).add_done_callback(_heard)
        return self.leader_epoch

    async def raise_leader_epoch(self, epoch: int) -> None:
        """Let partitions with one replica be led in a newer epoch. Raises KAFKA_STORAGE_ERROR.

        No client is told of the epoch before it is durable, or the next unclean start could give it out again.
        """
        await self._store_leader_epoch(epoch)
        self._lead_in(epoch)

    def _lead_in(self, epoch: int) -> None:
        if epoch > self.leader_epoch:
            self.leader_epoch = epoch
            self._metadata_changed()

    def _store_leader_epoch(self, epoch: int) -> asyncio.Future[None]:
        return self.store.submit([put_setting(LEADER_EPOCH, str(epoch)), CARRY_OVER], local=True)

    def _put(self, info: TopicInfo) -> None:
        self._topics[info.name] = info
        self._topic_names[info.topic_id] = info.name
        self._metadata_changed()
        self.touch(info.name)

    def _remove(self, info: TopicInfo) -> None:
        del self._topics[info.name]
        del self._topic_names[info.topic_id]
        self._metadata_changed()
        self.touched.pop(info.name, None)
        self.purgatory.notify(info.name)

    def _metadata_changed(self) -> None:
        self.metadata_version += 1
        for listener in self.topic_listeners:
            listener()

    def _info(self, row: TopicRow) -> TopicInfo:
        return TopicInfo(
            name=row.name,
            topic_id=row.topic_id,
            partitions=row.partitions,
            overrides=row.configs,
            config=self.topic_config(row.name, row.configs),
            created_ms=row.created_ms,
            version=row.version,
            replicas=row.replicas,
        )


def _heard(storing: asyncio.Future[None]) -> None:
    if not storing.cancelled():
        storing.exception()
