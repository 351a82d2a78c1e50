"""The verbs on topics: create, delete, grow, configure, describe.

Order of effects. A topic exists once its row is committed; the directories of its partitions follow. So a
crash between the two leaves a topic with empty partitions, never directories that belong to nobody. Deleting
goes the same way: first the row, then the directories; what a crash leaves of them is swept at the next start, by
what the row's transaction has noted. Directories of which nothing is known are never removed (`core.log.manager`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.broker.broker_configs import ConfigEntry
from core.broker.state import BrokerState, TopicInfo
from core.errors import BrokerError, ErrorCode
from core.metadata.store import CARRY_OVER, Effect
from core.metadata.topics import forget_deletions, note_deletion, put_topic, remove_topic
from core.records.partitioner import StickyPartitions
from core.topic_config import definition, parse_topic_config
from core.types import TopicPartition

log = logging.getLogger(__name__)

MAX_TOPIC_NAME = 249
MIN_INSYNC = "min.insync.replicas"
# Directories made in one turn of the event loop, at 0.1 ms each.
_CREATED_AT_ONCE = 50
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless `name` is legal: 1 to 249 of a–z A–Z 0–9 . _ -, not "." or ".."."""
    if name in ("", ".", "..") or len(name) > MAX_TOPIC_NAME or not _LEGAL_NAME.fullmatch(name):
        shown = name if len(name) <= MAX_TOPIC_NAME else name[:60] + "…"
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Illegal topic name {shown!r}: it must have 1 to {MAX_TOPIC_NAME} characters out of a-z, A-Z, 0-9, "
            "'.', '_' and '-', and be neither '.' nor '..'.",
        )


class TopicVerbs(BrokerState):
    """Everything that doors do with topics."""

    _changing: dict[str, asyncio.Task[None]]
    _sticky: StickyPartitions

    def topics(self, prefix: str = "", include_internal: bool = False) -> list[TopicInfo]:
        """The topics whose name begins with `prefix`, sorted by name."""
        return sorted(
            (
                t
                for t in self._topics.values()
                if t.name.startswith(prefix) and (include_internal or not t.internal)
            ),
            key=lambda t: t.name,
        )

    async def create_topic(
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
        instead of a `replication_factor`. A replicated topic that says nothing of min.insync.replicas gets the
        majority: only then a promotion can be proven to lose nothing. Raises TOPIC_ALREADY_EXISTS,
        INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
        INVALID_CONFIG, NOT_CONTROLLER.
        """
        self.require_metadata()
        check_topic_name(name)
        if name in self._topics or name in self._changing:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.", topic=name)
        count = self.config.default_partitions if partitions in (None, -1) else int(partitions or 0)
        self._check_partitions(count, 0)
        holders = self._assign(replication_factor, replicas)
        overrides = {key: value for key, value in (configs or {}).items() if value is not None}
        if len(holders) > 1 and not {MIN_INSYNC} & {*overrides, *self.broker_configs.topic_defaults}:
            overrides[MIN_INSYNC] = str(len(holders) // 2 + 1)
        info = TopicInfo(
            name=name,
            topic_id=self.clock.uuid4(),
            partitions=count,
            overrides=overrides,
            config=parse_topic_config(overrides, self.broker_configs.topic_defaults),
            created_ms=self.clock.wall_ms(),
            version=1,
            replicas=holders,
        )
        if not validate_only:
            await self._change(name, None, info)
        return info

    def _assign(self, factor: int, replicas: Sequence[int] | None) -> tuple[int, ...]:
        """The brokers that hold a new topic; empty where there is only this one."""
        brokers = (self.config.broker_id, *sorted(peer.broker_id for peer in self.config.peers))
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
            count = min(self.config.default_replication_factor, len(brokers)) if factor == -1 else factor
            if not 1 <= count <= len(brokers):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor must be from 1 to the number of brokers, {len(brokers)}, not {factor}.",
                )
            chosen = brokers[:count]
        return chosen if len(brokers) > 1 else ()

    async def topic_or_create(self, name: str) -> TopicInfo:
        """The topic, created with the defaults if it does not exist and auto-creation is on."""
        found = self._topics.get(name)
        if found is not None:
            return found
        if not self.config.auto_create_topics or (self.metadata is not None and self.metadata.serving < 0):
            return self.topic(name)
        try:
            return await self.create_topic(name)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        running = self._changing.get(name)
        if running is not None:
            await asyncio.wait([running])
        return self.topic(name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED."""
        self.require_metadata()
        info = self.topic(name)
        if info.internal:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} is internal to the broker.")
        await self._change(name, info, None)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> TopicInfo:
        """Grow a topic to `count` partitions. Raises INVALID_PARTITIONS when that is not more than it has."""
        self.require_metadata()
        info = self.topic(name)
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
        self.require_metadata()
        info = self.topic(name)
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
            config=parse_topic_config(overrides, self.broker_configs.topic_defaults),
            version=info.version + 1,
        )
        if not validate_only and overrides != info.overrides:
            await self._change(name, info, changed)
            return changed
        return info if overrides == info.overrides else changed

    def describe_configs(self, name: str) -> list[ConfigEntry]:
        """All settings of a topic, by name."""
        return self.effective_configs(self.topic(name))

    def effective_configs(self, info: TopicInfo) -> list[ConfigEntry]:
        """All settings of a topic, by name; also of one that is not created yet."""
        return self.broker_configs.of_topic(info.overrides)

    def _check_partitions(self, count: int, existing: int) -> None:
        limit = self.config.max_partitions_per_topic
        if not 1 <= count <= limit:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"A topic has from 1 to {limit} partitions, not {count}.",
                limit=limit,
            )
        total = sum(t.partitions for t in self._topics.values()) - existing + count
        if total > self.config.max_partitions:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"The broker holds at most {self.config.max_partitions} partitions; this would make {total}.",
                limit=self.config.max_partitions,
            )

    async def _change(self, name: str, before: TopicInfo | None, after: TopicInfo | None) -> None:
        """Make one change durable, then visible. Changes of one topic run one after the other.

        A caller that goes away does not stop a change that has begun.
        """
        while (running := self._changing.get(name)) is not None:
            await asyncio.wait([running])
        if self._topics.get(name) is not before:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Topic {name!r} was changed by somebody else meanwhile; try again.",
            )
        task = self._changing[name] = asyncio.create_task(self._apply(before, after))
        task.add_done_callback(lambda _: self._changing.pop(name))
        await asyncio.shield(task)

    async def _apply(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        if after is None:
            assert before is not None
            # The death of the process before the files follow must not make them strays, so it is noted whose
            # they are; with the next deletion it is forgotten, so that there is no second commit.
            swept = tuple(self._deleted)
            forget, note = forget_deletions(swept), note_deletion(before.topic_id)
            await self.store.submit([remove_topic(before.name), forget, note, CARRY_OVER])
            self._drop(before)
            self._deleted.difference_update(swept)
            self._deleted.add(before.topic_id)
            return
        await self.store.submit([put_topic(after.row), CARRY_OVER])
        try:
            await self._adopt(before, after)
        except BrokerError:
            await self._take_back(before, after)
            raise

    async def _take_back(self, before: TopicInfo | None, after: TopicInfo) -> None:
        """The disk took a change of a topic, but not the directories: what was refused must not be there later."""
        if before is None:
            self.replicas.remove(after.name)
            self.logs.delete(after.name)
            self._deleted.add(after.topic_id)
            undo: list[Effect] = [remove_topic(after.name), note_deletion(after.topic_id)]
        else:
            undo = [put_topic(before.row)]
        try:
            await self.store.submit([*undo, CARRY_OVER])
        except BrokerError as error:
            log.warning(
                "topic %s is refused now, but may be there after a restart: %s", after.name, error.message
            )

    def _drop(self, before: TopicInfo) -> None:
        """A topic is gone: forget it here as well."""
        self._remove(before)
        self._sticky.forget(before.name)
        self.replicas.remove(before.name)
        self.logs.delete(before.name)
        for partition in range(before.partitions):
            self.purgatory.notify(TopicPartition(before.name, partition))

    async def _adopt(self, before: TopicInfo | None, after: TopicInfo) -> None:
        """A topic is stored, new or changed: make what it needs here."""
        # The broker's defaults may have changed while it was stored.
        after = replace(after, config=self.topic_config(after.name, after.overrides))
        new = range(before.partitions if before else 0, after.partitions)
        if self.holds(after):
            for partition in new:
                tp = TopicPartition(after.name, partition)
                self.logs.create(tp, after.topic_id, after.config)
                if len(after.replicas) > 1:
                    self.replicas.add(tp, after.topic_id, after.replicas, created=True)
                if partition % _CREATED_AT_ONCE == _CREATED_AT_ONCE - 1:
                    await asyncio.sleep(0)
        if before is not None:
            self.logs.update_config(after.name, after.config)
        self._put(after)
        if self.cluster is not None:
            self.cluster.wake()
