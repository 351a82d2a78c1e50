"""Topics: create, delete, grow, configure, describe.

Order of effects. A topic exists once its row is committed; the directories of its partitions follow. So a
crash between the two leaves a topic with empty partitions, never directories without a topic. Deleting
has the same order: first the row, then the directories. The row's transaction notes them, so that the next start
deletes what a crash has left. Directories of which nothing is known are never removed (`core.log.manager`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, ValuesView
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from core.broker.broker_configs import BrokerConfigs
from core.broker.freeze import Freeze
from core.broker.topic_table import TopicTable
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.manager import LogManager
from core.metadata.store import CARRY_OVER, Effect, Store
from core.metadata.topics import TopicRow, forget_deletions, note_deletion, put_topic, remove_topic
from core.purgatory import Purgatory
from core.records.partitioner import StickyPartitions
from core.replication.controller import Controller
from core.replication.replicas import Replicas
from core.topic_config import definition, parse_topic_config
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA
from core.vocabulary.topic import ConfigEntry, TopicInfo, check_topic_name

if TYPE_CHECKING:
    # Loaded by a broker with peers alone.
    from core.replication.cluster import Cluster

log = logging.getLogger(__name__)

MIN_INSYNC = "min.insync.replicas"
# Directories made in one turn of the event loop, at 0.1 ms each.
_CREATED_AT_ONCE = 50


class Topics:
    """The topics of one broker, as `broker.topics`. `deleted` is called with the name of a topic that was deleted."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: Store,
        logs: LogManager,
        table: TopicTable,
        broker_configs: BrokerConfigs,
        controller: Controller,
        freeze: Freeze,
        replicas: Replicas,
        cluster: Cluster | None,
        purgatory: Purgatory,
        sticky: StickyPartitions,
        *,
        deleted: Callable[[str], Awaitable[None]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._logs = logs
        self._table = table
        self._broker_configs = broker_configs
        self._controller = controller
        self._freeze = freeze
        self._replicas = replicas
        self._cluster = cluster
        self._purgatory = purgatory
        self._sticky = sticky
        self._deleted_hook = deleted
        # The changes under way, by topic.
        self.changing: dict[str, asyncio.Task[None]] = {}
        # Deleted topics whose files are out of the way, and of which the store still has a note.
        self._deleted: set[UUID] = set()

    # --- reading -------------------------------------------------------------------------------------------

    def get(self, name: str) -> TopicInfo:
        """Return the topic of that name. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return self._table.get(name)

    def name_of(self, topic_id: UUID) -> str:
        """Return the name that belongs to a topic id. Raises UNKNOWN_TOPIC_ID."""
        return self._table.name_of(topic_id)

    def all(self) -> ValuesView[TopicInfo]:
        """Return all topics, in no order."""
        return self._table.all()

    def holds(self, topic: TopicInfo) -> bool:
        """Whether this broker has a replica of the topic."""
        return not topic.replicas or self._config.broker_id in topic.replicas

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int = -1,
        replicas: Sequence[int] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create a topic and answer it once it is durable.

        `partitions` None or −1 means the broker's default. `replicas` are broker ids, the first leader first,
        instead of a `replication_factor`. A replicated topic without min.insync.replicas gets the majority: only then
        a promotion can be proven to lose nothing. Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION,
        INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, NOT_CONTROLLER.
        """
        self._controller.require()
        check_topic_name(name)
        if name == METADATA.topic:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} is internal to the broker.")
        if self._table.find(name) is not None or name in self.changing:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.", topic=name)
        count = self._config.default_partitions if partitions in (None, -1) else int(partitions or 0)
        self._check_partitions(count, 0)
        holders = self._assign(replication_factor, replicas)
        overrides = {key: value for key, value in (configs or {}).items() if value is not None}
        if len(holders) > 1 and not {MIN_INSYNC} & {*overrides, *self._broker_configs.topic_defaults}:
            overrides[MIN_INSYNC] = str(len(holders) // 2 + 1)
        info = TopicInfo(
            name=name,
            topic_id=self._clock.uuid4(),
            partitions=count,
            overrides=overrides,
            config=parse_topic_config(overrides, self._broker_configs.topic_defaults),
            created_ms=self._clock.wall_ms(),
            version=1,
            replicas=holders,
        )
        if not validate_only:
            await self._change(name, None, info)
        return info

    def _assign(self, factor: int, replicas: Sequence[int] | None) -> tuple[int, ...]:
        """The brokers that hold a new topic; empty where there is only this one."""
        brokers = (self._config.broker_id, *sorted(peer.broker_id for peer in self._config.peers))
        if replicas is not None:
            if (
                replicas[:1] != [brokers[0]]
                or len(set(replicas)) < len(replicas)
                or not {*replicas} <= {*brokers}
            ):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Replicas are different brokers out of {', '.join(map(str, brokers))}, the first one being "
                    f"{brokers[0]}, which leads.",
                )
            chosen = tuple(replicas)
        else:
            count = min(self._config.default_replication_factor, len(brokers)) if factor == -1 else factor
            if not 1 <= count <= len(brokers):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor must be from 1 to the number of brokers, {len(brokers)}, not {factor}.",
                )
            chosen = brokers[:count]
        return chosen if len(brokers) > 1 else ()

    async def get_or_create(self, name: str) -> TopicInfo:
        """The topic, created with the defaults if it does not exist and auto-creation is on."""
        found = self._table.find(name)
        if found is not None:
            return found
        if not self._config.auto_create_topics or not self._controller.serving:
            return self._table.get(name)
        try:
            return await self.create(name)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        running = self.changing.get(name)
        if running is not None:
            await asyncio.wait([running])
        return self._table.get(name)

    async def delete(self, name: str) -> None:
        """Delete a topic with its records. Raises UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED."""
        self._controller.require()
        info = self._table.get(name)
        if info.internal:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} is internal to the broker.")
        await self._change(name, info, None)
        await self._deleted_hook(name)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> TopicInfo:
        """Grow a topic to `count` partitions. Raises INVALID_PARTITIONS when that is not more than it has."""
        self._controller.require()
        info = self._table.get(name)
        if count <= info.partitions:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {info.partitions} partitions; the new number must be larger than that, "
                f"not {count}.",
            )
        self._check_partitions(count, info.partitions)
        grown = replace(info, partitions=count, version=info.version + 1)
        if not validate_only:
            await self._change(name, info, grown)
        return grown

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicInfo:
        """Change settings of a topic; None puts one back to its default. Raises INVALID_CONFIG."""
        self._controller.require()
        info = self._table.get(name)
        overrides = dict(info.overrides)
        for key, value in changes.items():
            definition(key)
            if value is None:
                overrides.pop(key, None)
            else:
                overrides[key] = value
        changed = replace(
            info,
            overrides=overrides,
            config=parse_topic_config(overrides, self._broker_configs.topic_defaults),
            version=info.version + 1,
        )
        if not validate_only and overrides != info.overrides:
            await self._change(name, info, changed)
            return changed
        return info if overrides == info.overrides else changed

    def describe_configs(self, name: str) -> list[ConfigEntry]:
        """All settings of a topic, by name."""
        return self.effective_configs(self._table.get(name))

    def effective_configs(self, info: TopicInfo) -> list[ConfigEntry]:
        """All settings of a topic, by name; also of one that is not created yet."""
        return self._broker_configs.of_topic(info.overrides)

    def _check_partitions(self, count: int, existing: int) -> None:
        limit = self._config.max_partitions_per_topic
        if not 1 <= count <= limit:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"A topic has from 1 to {limit} partitions, not {count}.",
                limit=limit,
            )
        total = sum(t.partitions for t in self._table.all()) - existing + count
        if total > self._config.max_partitions:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"The broker holds at most {self._config.max_partitions} partitions; this would make {total}.",
                limit=self._config.max_partitions,
            )

    async def _change(self, name: str, before: TopicInfo | None, after: TopicInfo | None) -> None:
        """Make one change durable, then visible. Changes of one topic run one after the other.

        A caller that is canceled does not stop a change that has begun.
        """
        self._freeze.require_thawed(ErrorCode.NOT_CONTROLLER)
        while (running := self.changing.get(name)) is not None:
            await asyncio.wait([running])
        if self._table.find(name) is not before:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Topic {name!r} was changed by another client at the same time. Read it and try again.",
            )
        task = self.changing[name] = asyncio.create_task(self._apply(before, after))
        task.add_done_callback(lambda _: self.changing.pop(name))
        await asyncio.shield(task)

    async def _apply(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        if after is None:
            assert before is not None
            # The death of the process before the files follow must not make them strays, so it is noted whose
            # they are; with the next deletion it is forgotten, so that there is no second commit.
            swept = tuple(self._deleted)
            forget, note = forget_deletions(swept), note_deletion(before.topic_id)
            await self._store.submit([remove_topic(before.name), forget, note, CARRY_OVER])
            self._drop(before)
            self._deleted.difference_update(swept)
            self._deleted.add(before.topic_id)
            return
        await self._store.submit([put_topic(_row(after)), CARRY_OVER])
        try:
            await self._adopt(before, after)
        except BrokerError:
            await self._take_back(before, after)
            raise

    async def _take_back(self, before: TopicInfo | None, after: TopicInfo) -> None:
        """The disk took a change of a topic, but not the directories: what was refused must not be there later."""
        if before is None:
            self._replicas.remove(after.name)
            self._logs.delete(after.name)
            self._deleted.add(after.topic_id)
            undo: list[Effect] = [remove_topic(after.name), note_deletion(after.topic_id)]
        else:
            undo = [put_topic(_row(before))]
        try:
            await self._store.submit([*undo, CARRY_OVER])
        except BrokerError as error:
            log.warning(
                "topic %s is refused now, but may be there after a restart: %s", after.name, error.message
            )

    def _drop(self, before: TopicInfo) -> None:
        """Forget a deleted topic here as well."""
        self._table.remove(before)
        self._sticky.forget(before.name)
        self._replicas.remove(before.name)
        self._logs.delete(before.name)
        for partition in range(before.partitions):
            self._purgatory.notify(TopicPartition(before.name, partition))

    async def _adopt(self, before: TopicInfo | None, after: TopicInfo) -> None:
        """A topic was stored, new or changed: create its partitions here."""
        # The broker's defaults may have changed while it was stored.
        after = replace(after, config=self._broker_configs.topic_config(after.name, after.overrides))
        new = range(before.partitions if before else 0, after.partitions)
        if self.holds(after):
            for partition in new:
                tp = TopicPartition(after.name, partition)
                self._logs.create(tp, after.topic_id, after.config)
                if len(after.replicas) > 1:
                    self._replicas.add(tp, after.topic_id, after.replicas, created=True)
                if partition % _CREATED_AT_ONCE == _CREATED_AT_ONCE - 1:
                    await asyncio.sleep(0)
        if before is not None:
            self._logs.update_config(after.name, after.config)
        self._table.put(after)
        if self._cluster is not None:
            self._cluster.wake()

    # --- what is stored ------------------------------------------------------------------------------------

    def load(self, rows: Iterable[TopicRow], deleted: set[UUID]) -> None:
        """Take the topics from the store at the start; `deleted` are those whose files may be left."""
        for row in rows:
            self._table.put(self._info(row))
        self._deleted = deleted

    async def adopt(self, rows: Iterable[TopicRow]) -> None:
        """Make the topics those that another broker has stored: drop, create and change what differs."""
        stored = {row.name: self._info(row) for row in rows}
        for before in tuple(self._table.all()):
            after = stored.get(before.name)
            if after is None or after.topic_id != before.topic_id:
                self._drop(before)
        for name, after in stored.items():
            known = self._table.find(name)
            if known != after:
                await self._adopt(known, after)

    def _info(self, row: TopicRow) -> TopicInfo:
        return TopicInfo(
            name=row.name,
            topic_id=row.topic_id,
            partitions=row.partitions,
            overrides=row.configs,
            config=self._broker_configs.topic_config(row.name, row.configs),
            created_ms=row.created_ms,
            version=row.version,
            replicas=row.replicas,
        )

    # Last, because annotations after it would mean this method.
    def list(self, prefix: str = "", include_internal: bool = False) -> list[TopicInfo]:
        """Return the topics whose name begins with `prefix`, sorted by name."""
        return sorted(
            (
                t
                for t in self._table.all()
                if t.name.startswith(prefix) and (include_internal or not t.internal)
            ),
            key=lambda t: t.name,
        )


def _row(info: TopicInfo) -> TopicRow:
    """Return the topic as it is stored."""
    return TopicRow(
        info.name,
        info.topic_id,
        info.partitions,
        info.overrides,
        info.created_ms,
        info.version,
        info.replicas,
    )
