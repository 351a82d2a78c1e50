"""The members of share groups, as `broker.groups.shares` (KIP-932). A share group is a queue of the same name.

The queue is what is stored: its name keeps the id among the ids of all groups, and it has the settings, the locks
and the counts. Its members are in memory alone, in the same registry as all groups. The queue service takes and gives
back the names here. A first heartbeat of a group without a queue has one made, with the settings of the group
(`GroupConfigs`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.group_configs import GROUP_DEFINITIONS, GroupSettings, duration_ms
from core.groups.machines import SHARE, Effects
from core.groups.registry import GroupRegistry
from core.groups.share_group import Shape, ShareGroup, ShareSettings
from core.types import TopicPartition
from core.vocabulary.queues import DeadLetter, Queues, QueueSettings, Start
from core.vocabulary.share_groups import JOINING, LEAVING, ShareGroupView, ShareHeartbeat, ShareReply

_RESET, _COPIES = "share.auto.offset.reset", "errors.deadletterqueue.copy.record.enable"
_NAMES = frozenset(GROUP_DEFINITIONS)
_RESETS = {"earliest": Start("earliest"), "latest": Start("latest")}


class Settings(Protocol):
    """The settings of groups, as `broker.group_configs`."""

    def of(self, group_id: str) -> GroupSettings:
        """Return the settings in force of a group."""
        ...

    def own(self, group_id: str) -> dict[str, str]:
        """Return what a group sets itself."""
        ...


class ShareGroups:
    """Requests of share group members, and what the queues need of them. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry, broker: Logs) -> None:
        self._registry = registry
        self._broker = broker
        self._queues: Callable[[], Queues] | None = None
        self._settings: Settings | None = None
        # The settings of groups that their queues have, as far as members have come since the start.
        self._adopted: dict[str, GroupSettings] = {}

    def serve(self, queues: Callable[[], Queues], settings: Settings) -> None:
        """Take the queues of this broker and the settings of groups; before the first request."""
        self._queues = queues
        self._settings = settings

    # --- with the queues ---------------------------------------------------------------------------------------

    def keep(self, group_id: str) -> None:
        """Take an id for a queue. Raises GROUP_ID_NOT_FOUND if a group of another type has it, POLICY_VIOLATION."""
        entry = self._registry.get(group_id)
        if entry is not None and not isinstance(entry.group, ShareGroup):
            if not self._registry.is_unused(entry) or entry.stored:
                raise of_another_type(group_id, entry.group.group_type)
            self._registry.forget(group_id)
            entry = None
        if entry is None:
            entry, error = self._registry.create(group_id, ShareGroup(group_id))
            if entry is None:
                raise BrokerError(
                    error, f"There are {self._registry.config.max_groups} groups; delete others first."
                )
        assert isinstance(entry.group, ShareGroup)
        entry.group.is_kept = True

    def refuse_another_type(self, group_id: str) -> None:
        """Raise GROUP_ID_NOT_FOUND, with the reason "group-type", if a group of another type has the id."""
        entry = self._registry.get(group_id)
        if entry is None or isinstance(entry.group, ShareGroup):
            return
        if entry.stored or not self._registry.is_unused(entry):
            raise of_another_type(group_id, entry.group.group_type)

    def forget(self, group_id: str) -> None:
        """Give an id back: its queue is deleted, and its members are removed."""
        if self._group(group_id) is not None:
            self._registry.forget(group_id)
        self._adopted.pop(group_id, None)

    def has_members(self, group_id: str) -> bool:
        """Return whether share consumers are in the group of a queue."""
        group = self._group(group_id)
        return group is not None and not group.is_empty

    def create_settings(self, group_id: str, topics: Sequence[str]) -> QueueSettings:
        """Return the settings of a queue that a share consumer makes, which behaves as Kafka's."""
        assert self._settings is not None
        return of_a_share_group(topics, self._settings.of(group_id), self._broker.clock.wall_ms())

    # --- members -----------------------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        """Handle ShareGroupHeartbeat. What a member reads begins durably before its first answer.

        The words of refusals are Kafka's.
        """
        refused = self._refusal(group_id, request)
        if refused is not None:
            return refused
        if request.member_epoch != LEAVING:
            try:
                await self._subscribe(group_id, request)
                await self._adopt(group_id)
            except BrokerError as error:
                return ShareReply(error.code, message=error.message)
        group = self._group(group_id)
        if group is None:
            return ShareReply(ErrorCode.GROUP_ID_NOT_FOUND, message=f"Share group {group_id} not found.")
        assert self._settings is not None
        settings = self._settings.of(group_id)
        reply = group.heartbeat(
            request,
            self._shape,
            ShareSettings(
                settings.share_session_timeout_ms / 1000,
                settings.share_heartbeat_interval_ms,
                self._registry.config.group_share_max_size,
            ),
            self._registry.moment(),
        )
        if (entry := self._registry.get(group_id)) is not None:
            # Sets the timer.
            self._registry.settle(entry, Effects(None, []))
        return reply

    def _refusal(self, group_id: str, request: ShareHeartbeat) -> ShareReply | None:
        error, message = ErrorCode.INVALID_REQUEST, None
        if self._registry.closed is not ErrorCode.NONE:
            return ShareReply(
                self._registry.closed, message="The group coordinator is not available; try again."
            )
        if not group_id:
            message = "GroupId can't be empty."
        elif not request.member_id:
            message = "MemberId can't be empty."
        elif request.rack_id == "":
            message = "RackId can't be empty."
        elif request.member_epoch < LEAVING:
            message = "MemberEpoch is invalid."
        elif request.member_epoch == JOINING and not request.topics:
            message = "SubscribedTopicNames must be set in first request."
        elif self._size(request) > self._registry.config.group_max_member_bytes:
            message = "The names of the subscribed topics are longer than the broker takes."
        else:
            found = self._registry.group(group_id)
            if found is not None and not isinstance(found, ShareGroup) and not found.is_unused:
                error = ErrorCode.GROUP_ID_NOT_FOUND
                message = f"Group {group_id} is not a share group."
            elif self._group(group_id) is None and request.member_epoch != JOINING:
                error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found."
        return None if message is None else ShareReply(error, message=message)

    @staticmethod
    def _size(request: ShareHeartbeat) -> int:
        size = len(request.member_id) + len(request.client_id) + len(request.rack_id or "")
        return size + sum(map(len, request.topics or ()))

    async def _subscribe(self, group_id: str, request: ShareHeartbeat) -> None:
        """Have the queue read the topics of a member, if it does not yet."""
        assert self._queues is not None
        topics = sorted(set(request.topics or ()))
        if not topics:
            return
        queues = self._queues()
        if self._group(group_id) is not None:
            # The id is taken a little before there is a queue: for the first of two members that join at once.
            with contextlib.suppress(BrokerError):
                known = {*queues.topics(group_id), *queues.get(group_id).settings.topics}
                if known.issuperset(topics):
                    return
        await queues.subscribe(group_id, topics, self.create_settings(group_id, topics))

    async def _adopt(self, group_id: str) -> None:
        """Let the queue have what its group sets itself, if that was changed since the last heartbeat."""
        assert self._queues is not None and self._settings is not None
        settings = self._settings.of(group_id)
        if self._adopted.get(group_id) is settings or self._group(group_id) is None:
            return
        if own := self._settings.own(group_id):
            queues = self._queues()
            before = queues.get(group_id).settings
            after = with_group_settings(before, settings, self._broker.clock.wall_ms(), own)
            if after != before:
                await queues.put(group_id, after)
        self._adopted[group_id] = settings

    def _shape(self, topic: str) -> Shape | None:
        """Return the partitions of a topic that this broker serves to share groups."""
        try:
            info = self._broker.topics.get(topic)
        except BrokerError:
            return None
        if not info.replicas:
            return info.topic_id, range(info.partitions)
        led = tuple(
            partition for partition in range(info.partitions) if self._leads(TopicPartition(topic, partition))
        )
        return info.topic_id, led

    def _leads(self, tp: TopicPartition) -> bool:
        try:
            return self._broker.partitions.info(tp).leads
        except BrokerError:
            return False

    async def delete(self, group_id: str) -> None:
        """Delete a share group and its queue. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        self._registry.require_open()
        if self.has_members(group_id):
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP, f"Group {group_id!r} has members; stop them first.", group=group_id
            )
        assert self._queues is not None
        await self._queues().delete(group_id)

    def describe(self, group_id: str) -> ShareGroupView | None:
        """Return the group; None if there is none, or if it has another type."""
        self._registry.require_open()
        group = self._group(group_id)
        return None if group is None or group.is_dead else group.share_view()

    def _group(self, group_id: str) -> ShareGroup | None:
        group = self._registry.group(group_id)
        return group if isinstance(group, ShareGroup) else None


def of_another_type(group_id: str, group_type: str) -> BrokerError:
    """Return the refusal of a queue whose name is the id of a group that is none."""
    return BrokerError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group_id!r} is a {group_type} group, and no {SHARE} group: use another name, or delete that group first.",
        group=group_id,
        reason="group-type",
    )


def of_a_share_group(topics: Sequence[str], group: GroupSettings, now_ms: int) -> QueueSettings:
    """Return the settings of a queue that a share consumer makes.

    Such a queue gives a record up at its delivery limit, as Kafka does. Without a dead-letter topic it drops it.
    """
    queue = QueueSettings(topics=tuple(topics), drop=True)
    return with_group_settings(queue, group, now_ms, _NAMES)


def with_group_settings(
    queue: QueueSettings, group: GroupSettings, now_ms: int, names: Collection[str]
) -> QueueSettings:
    """Return the settings of a queue with those of its share group that `names` has (KIP-932, KIP-1191).

    A new start matters to topics that are added later.
    """
    start = _RESETS.get(group.share_auto_offset_reset.lower())
    if start is None:
        start = Start(time_ms=now_ms - (duration_ms(group.share_auto_offset_reset) or 0))
    topic = group.errors_deadletterqueue_topic_name
    found: dict[str, dict[str, Any]] = {
        _RESET: {"start": start},
        "share.record.lock.duration.ms": {"lock_ms": group.share_record_lock_duration_ms},
        "share.delivery.count.limit": {"delivery_limit": group.share_delivery_count_limit},
        "share.partition.max.record.locks": {"max_in_flight": group.share_partition_max_record_locks},
        "share.isolation.level": {"read_committed": group.share_isolation_level == "read_committed"},
        "errors.deadletterqueue.topic.name": {
            "dead_letter": DeadLetter(topic, group.errors_deadletterqueue_copy_record_enable)
            if topic
            else None
        },
    }
    if _COPIES in names:
        names = {*names, "errors.deadletterqueue.topic.name"}
    if _RESET in names and queue.start.time_ms is not None and start.time_ms is not None:
        # A duration counts from the creation of the queue on, and is the same setting as then.
        names = set(names) - {_RESET}
    changes = {field: value for name in names for field, value in found.get(name, {}).items()}
    return replace(queue, **changes)
