"""The topics of the cluster, as `broker.topics`: what Metadata and DescribeConfigs have told, and changes of them.

A topic of the cluster has no version and no time of creation. The version is a digest of what a topic's definition
consists of, so that an ETag changes with it. A cluster without topic ids (before Kafka 2.8) gives an id that is made
of the cluster's and the topic's name; a topic that was created again cannot be told from the first one then.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence, ValuesView
from dataclasses import replace
from uuid import NAMESPACE_URL, UUID, uuid5

from core.changes import TopicChanges
from core.client.cluster import ClusterClient
from core.client.metadata import TopicMetadata
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core.purgatory import Purgatory
from core.records.partitioner import StickyPartitions
from core.topic_config import DEFINITIONS, TopicConfig, parse_topic_config
from core.types import TopicPartition
from core.upstream.failures import NotAtHandError, answer_error, no_topic
from core.upstream.topic_configs import TopicConfigs, overrides_of
from core.vocabulary.topic import ConfigEntry, TopicInfo, check_topic_name

_NIL = UUID(int=0)
# How long a topic is waited for that the controller has created, changed or deleted: brokers learn of it later.
_SETTLE_SECONDS = 10.0
# A topic that is known is not looked up again within this time, unless the call needs it as it is now.
_LOOK_AGE_MS = 1_000
_PLAIN = TopicConfig()
# Topics that are not shown any more, of which the id is remembered.
_MAX_MISSING = 10_000


class Topics:
    """The topics that the cluster shows to this gateway."""

    def __init__(
        self,
        config: Config,
        cluster: ClusterClient,
        changes: TopicChanges,
        purgatory: Purgatory,
        sticky: StickyPartitions,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._changes = changes
        self._purgatory = purgatory
        self._sticky = sticky
        self._configs = TopicConfigs(cluster)
        self._infos: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        # Called with a topic that is not shown any more, or that is another one now.
        self.dropped: list[Callable[[TopicInfo], None]] = []
        # Called with the name of a topic that was deleted for certain.
        self.deleted: list[Callable[[str], None]] = []
        # Topics that are not shown any more, and their ids. A broker with old metadata, or a right that was taken
        # for a while, must not look like a deletion: positions in the topic would be forgotten.
        self._missing: OrderedDict[str, UUID] = OrderedDict()
        # Called with the name of a topic that has grown, and its partitions before and after.
        self.grown: list[Callable[[str, int, int], None]] = []

    # --- what is at hand -----------------------------------------------------------------------------------

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic of that name; None if it is not at hand."""
        return self._infos.get(name)

    def get(self, name: str) -> TopicInfo:
        """See `facade.Topics.get`."""
        found = self._infos.get(name)
        if found is None:
            raise no_topic(name, self._cluster.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return found

    def name_of(self, topic_id: UUID) -> str:
        """See `facade.Topics.name_of`."""
        name = self._names.get(topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}.")
        return name

    def all(self) -> ValuesView[TopicInfo]:
        """See `facade.Topics.all`."""
        return self._infos.values()

    def describe_configs(self, name: str) -> list[ConfigEntry]:
        """See `facade.Topics.describe_configs`. The settings are those of the last `look` with `configs`."""
        return self.effective_configs(self.get(name))

    def effective_configs(self, info: TopicInfo) -> list[ConfigEntry]:
        """See `facade.Topics.effective_configs`; empty for a topic that is not created yet."""
        found = self._configs.get(info.name)
        if isinstance(found, BrokerError):
            raise found
        if found is None and info.name in self._infos:
            raise NotAtHandError(f"The settings of {info.name!r}")
        return found or []

    # --- bring to hand -------------------------------------------------------------------------------------

    async def look(self, names: Collection[str] | None, *, configs: bool = False) -> None:
        """Read topics (None: all) from the cluster, with `configs` also their settings. Raises LinkLost."""
        if names is None:
            await self._cluster.refresh(None)
            return
        if not names:
            return
        missing = any(name not in self._infos for name in names)
        await self._cluster.refresh(names, max_age_ms=0 if configs or missing else _LOOK_AGE_MS)
        if configs:
            there = [name for name in names if name in self._infos]
            await self._configs.look(there)
            for name in there:
                self._put(name)
        for name in names:
            if name in self._infos:
                self._cluster.topic(name)

    def take(self, names: Collection[str]) -> None:
        """Take over what the cluster's metadata has of these topics now; for `ClusterClient.changed`."""
        for name in names:
            self._put(name)
        self._changes.answers_changed()

    def _put(self, name: str) -> None:
        before = self._infos.get(name)
        metadata = self._cluster.topics.get(name)
        if metadata is None:
            if before is not None:
                self._drop(before)
            return
        topic_id = self._id_of(metadata)
        if before is not None and before.topic_id != topic_id:
            self._drop(before)
            before = None
        if self._missing.pop(name, topic_id) != topic_id:
            self._tell_deletion(name)
        info = self._info(metadata, topic_id)
        if info == before:
            return
        self._infos[name] = info
        self._names[topic_id] = name
        if before is not None and info.partitions > before.partitions:
            for listener in self.grown:
                listener(name, before.partitions, info.partitions)
        self._changes.topics_changed()
        self._changes.touch(name)

    def _drop(self, info: TopicInfo) -> None:
        for listener in self.dropped:
            listener(info)
        del self._infos[info.name]
        self._missing[info.name] = info.topic_id
        if len(self._missing) > _MAX_MISSING:
            self._missing.popitem(last=False)
        if info.topic_id == self._made_id(info.name):
            # It could not be told from the next one of its name.
            self._tell_deletion(info.name)
        self._names.pop(info.topic_id, None)
        self._configs.forget(info.name)
        self._sticky.forget(info.name)
        self._changes.topics_changed()
        self._changes.forget(info.name)
        for partition in range(info.partitions):
            self._purgatory.notify(TopicPartition(info.name, partition))

    def _tell_deletion(self, name: str) -> None:
        self._missing.pop(name, None)
        for listener in self.deleted:
            listener(name)

    def _id_of(self, metadata: TopicMetadata) -> UUID:
        return self._made_id(metadata.name) if metadata.topic_id == _NIL else metadata.topic_id

    def _made_id(self, name: str) -> UUID:
        """Return the id of a topic in a cluster without topic ids."""
        return uuid5(NAMESPACE_URL, f"kafka:{self._cluster.cluster_id}/{name}")

    def _info(self, metadata: TopicMetadata, topic_id: UUID) -> TopicInfo:
        overrides = overrides_of(self._configs.get(metadata.name))
        count = len(metadata.partitions)
        return TopicInfo(
            name=metadata.name,
            topic_id=topic_id,
            partitions=count,
            overrides=overrides,
            config=_known(overrides) if overrides else _PLAIN,
            created_ms=-1,
            version=_digest(count, overrides),
            replicas=metadata.partitions[0].replicas if metadata.partitions else (),
        )

    # --- changes -------------------------------------------------------------------------------------------

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
        """See `facade.Topics.create`. The cluster's own defaults are used (KIP-464)."""
        check_topic_name(name)
        count = -1 if partitions is None else partitions
        wanted = {key: value for key, value in (configs or {}).items() if value is not None}
        assignments = []
        if replicas is not None:
            assignments = [
                CreatableReplicaAssignment(partition, list(replicas)) for partition in range(max(count, 1))
            ]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else count,
            replication_factor=-1 if assignments else replication_factor,
            assignments=assignments,
            configs=[CreatableTopicConfig(key, value) for key, value in wanted.items()],
        )
        request = CreateTopicsRequest([topic], self._cluster.settings.request_timeout_ms, validate_only)
        answer = await self._cluster.ask_controller(request)
        made: CreatableTopicResult = answer.topics[0]
        if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.", topic=name)
        if made.error_code:
            raise answer_error(made.error_code, made.error_message, f"Topic {name!r} cannot be created")
        if validate_only:
            return TopicInfo(
                name, _NIL, max(made.num_partitions, count, 1), wanted, _known(wanted), -1,
                _digest(max(made.num_partitions, count, 1), wanted), tuple(replicas or ()),
            )  # fmt: skip
        await self._settle(name, lambda metadata: metadata is not None and _is_led(metadata))
        return self.get(name)

    async def get_or_create(self, name: str) -> TopicInfo:
        """See `facade.Topics.get_or_create`."""
        found = self._infos.get(name)
        if found is not None:
            return found
        await self.look((name,))
        found = self._infos.get(name)
        if found is not None:
            return found
        if not self._config.auto_create_topics:
            return self.get(name)
        check_topic_name(name)
        if self._cluster.errors.get(name) not in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return self.get(name)
        try:
            return await self.create(name)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._settle(name, lambda metadata: metadata is not None)
        return self.get(name)

    async def delete(self, name: str) -> None:
        """See `facade.Topics.delete`."""
        await self.look((name,))
        info = self.get(name)
        if info.internal:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} is internal to the cluster."
            )
        topics = [DeleteTopicState(name=name)]
        request = DeleteTopicsRequest(topics, [name], self._cluster.settings.request_timeout_ms)
        answer = await self._cluster.ask_controller(request)
        gone = answer.responses[0]
        if gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_topic(name)
        if gone.error_code:
            raise answer_error(gone.error_code, gone.error_message, f"Topic {name!r} cannot be deleted")
        before = self._cluster.topics.get(name)
        topic_id = None if before is None else before.topic_id
        await self._settle(
            name, lambda metadata: metadata is None or topic_id not in (_NIL, metadata.topic_id)
        )
        if name not in self._infos:
            self._tell_deletion(name)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> TopicInfo:
        """See `facade.Topics.create_partitions`."""
        await self.look((name,))
        info = self.get(name)
        topic = CreatePartitionsTopic(name, count, None)
        request = CreatePartitionsRequest([topic], self._cluster.settings.request_timeout_ms, validate_only)
        answer = await self._cluster.ask_controller(request)
        grown = answer.results[0]
        if grown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_topic(name)
        if grown.error_code:
            raise answer_error(grown.error_code, grown.error_message, f"Topic {name!r} cannot grow")
        if validate_only:
            return replace(info, partitions=count)
        await self._settle(
            name, lambda now: now is not None and len(now.partitions) >= count and _is_led(now)
        )
        return self.get(name)

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicInfo:
        """See `facade.Topics.alter_configs` (KIP-339)."""
        await self.look((name,), configs=True)
        info = self.get(name)
        if changes:
            await self._configs.alter(name, changes, validate_only=validate_only)
        overrides = dict(info.overrides)
        for key, value in changes.items():
            if value is None:
                overrides.pop(key, None)
            else:
                overrides[key] = value
        if validate_only or not changes:
            version = _digest(info.partitions, overrides)
            return replace(info, overrides=overrides, config=_known(overrides), version=version)
        await self._configs.settle(name, overrides, _SETTLE_SECONDS)
        self._put(name)
        return self.get(name)

    async def _settle(self, name: str, done: Callable[[TopicMetadata | None], bool]) -> None:
        """Read a topic until a broker shows the change; give up in silence after some seconds."""
        cluster = self._cluster
        deadline = cluster.clock.monotonic() + _SETTLE_SECONDS
        attempt = 0
        while True:
            await cluster.refresh((name,))
            if done(cluster.topics.get(name)) or cluster.clock.monotonic() >= deadline:
                self._put(name)
                return
            await cluster.pause(attempt)
            attempt += 1

    # Last, because annotations after it would mean this method.
    def list(self, prefix: str = "", include_internal: bool = False) -> list[TopicInfo]:
        """See `facade.Topics.list`."""
        return sorted(
            (
                one
                for one in self._infos.values()
                if one.name.startswith(prefix) and (include_internal or not one.internal)
            ),
            key=lambda one: one.name,
        )


def _is_led(metadata: TopicMetadata) -> bool:
    return all(one.leader >= 0 for one in metadata.partitions)


def _known(overrides: Mapping[str, str]) -> TopicConfig:
    """Return what this program uses of a topic's settings. Those that only the cluster knows are left out."""
    try:
        return parse_topic_config({key: value for key, value in overrides.items() if key in DEFINITIONS})
    except BrokerError:
        return _PLAIN


def _digest(partitions: int, overrides: Mapping[str, str]) -> int:
    return zlib.crc32(repr((partitions, sorted(overrides.items()))).encode())
