"""The coordinator of consumer groups (KIP-848): heartbeats of members, descriptions, and the topics of all groups.

    heartbeat → the group's machine decides → its change is stored → the answer leaves

Members of the classic protocol in such groups speak to `GroupCoordinator`. A heartbeat that changes nothing costs
neither a future nor a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings
from core.groups.effects import StoredModern, StoredModernMember
from core.groups.group import Group
from core.groups.group_configs import GroupConfigs
from core.groups.machines import CONSUMER, Catalog, Effects, Machine
from core.groups.migration import downgrade_to, upgrade
from core.groups.registry import Entry, GroupRegistry
from core.groups.topic_catalog import TopicCatalog
from core.vocabulary.consumer_groups import (
    JOINING,
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberKind,
)


class ConsumerCoordinator:
    """Requests of members of the consumer protocol on the groups of a registry. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry, broker: Logs) -> None:
        self._registry = registry
        self._broker = broker
        self._catalog: TopicCatalog | None = None
        self._is_refreshing = False
        self._downgrade = downgrade_to(registry.settings)
        self._default_settings = default_settings(registry)
        self._settings: GroupConfigs | None = None
        self._unwatch: Callable[[], None] | None = None
        registry.register(CONSUMER, self._restored)

    def follow(self, settings: GroupConfigs) -> None:
        """Take the settings of single groups from here, also when they change; before the groups are loaded."""
        self._settings = settings
        self._unwatch = settings.watch(self._settings_changed)

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group that are in force."""
        if self._settings is None:
            return self._default_settings
        own = self._settings.of(group_id)
        return replace(
            self._default_settings,
            session_timeout=own.consumer_session_timeout_ms / 1000,
            heartbeat_interval=own.consumer_heartbeat_interval_ms / 1000,
            assignment_interval=own.consumer_assignment_interval_ms / 1000,
        )

    def _settings_changed(self, group_id: str) -> None:
        group = self._registry.group(group_id)
        if isinstance(group, ConsumerGroup):
            group.settings = self.settings_of(group_id)

    # --- topics ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Follow the changes of topics."""
        self._broker.changes.listeners.append(self._topics_changed)

    def close(self) -> None:
        """Do not follow the changes of topics and of settings any more."""
        if self._topics_changed in self._broker.changes.listeners:
            self._broker.changes.listeners.remove(self._topics_changed)
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    @property
    def catalog(self) -> Catalog:
        """The topics as they are now."""
        if self._catalog is None:
            topics = ((topic.name, topic.topic_id, topic.partitions) for topic in self._broker.topics.all())
            self._catalog = TopicCatalog(topics, self._broker.config.max_pattern_bytes)
        return self._catalog

    def _topics_changed(self) -> None:
        """Tell the groups in the next turn of the event loop: a tool that creates many topics tells them once."""
        if not self._is_refreshing:
            self._is_refreshing = True
            self._registry.loop.call_soon(self._refresh)

    def _refresh(self) -> None:
        self._is_refreshing = False
        self._catalog = None
        if not self._registry.closed:
            self._registry.topics_changed(lambda: self.catalog)

    # --- heartbeats --------------------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Handle ConsumerGroupHeartbeat; the answer is durable. Errors are in the reply.

        The first heartbeat of a member makes the group if there is none. A group of another type that has members is
        GROUP_ID_NOT_FOUND, unless it is a classic group that can become a consumer group.
        """
        registry = self._registry
        if registry.closed:
            return _refused(registry.closed, "The group coordinator does not serve requests now; try again.")
        if not group_id:
            return _refused(ErrorCode.INVALID_REQUEST, "The group id must not be empty.")
        if _size(request) > registry.config.group_max_member_bytes:
            return _refused(
                ErrorCode.INVALID_REQUEST,
                "The names and the subscription are longer than group_max_member_bytes.",
            )
        if self._is_refreshing:
            self._refresh()
        entry = registry.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            reply, effects = entry.group.beat(request, registry.moment())
            registry.settle(entry, effects)
        else:
            try:
                entry, reply = self._begin(group_id, entry, request)
            except BrokerError as error:
                return _refused(error.code, error.message)
        if entry is None or entry.saving is None:
            return reply
        return await self._durable(entry.saving, reply)

    def _begin(
        self, group_id: str, entry: Entry | None, request: ConsumerHeartbeat
    ) -> tuple[Entry | None, ConsumerHeartbeatReply]:
        """Handle a heartbeat in a group that is no consumer group, which may make it one.

        Raises GROUP_ID_NOT_FOUND, POLICY_VIOLATION.
        """
        registry, now = self._registry, self._registry.moment()
        before = None if entry is None else entry.group
        if request.member_epoch != JOINING:
            raise _not_found(group_id)
        machine = self._machine(group_id, before, now.monotonic)
        reply, effects = machine.beat(request, now)
        if reply.error:
            # Nothing has happened.
            return entry, reply
        if entry is None:
            entry, error = registry.create(group_id, machine)
            if entry is None:
                raise BrokerError(error, "There are too many groups; delete some, or raise max_groups.")
        else:
            waiting = before.release(ErrorCode.REBALANCE_IN_PROGRESS).answers if before is not None else []
            registry.convert(entry, machine)
            effects = Effects(effects.change, [*waiting, *effects.answers], effects.becomes)
        registry.settle(entry, effects)
        return entry, reply

    def _machine(self, group_id: str, before: Machine | None, now: float) -> ConsumerGroup:
        """Return the machine of a group that becomes a consumer group. Raises GROUP_ID_NOT_FOUND."""
        settings = self.settings_of(group_id)
        if before is None:
            return ConsumerGroup(group_id, settings, self.catalog, self._downgrade)
        if isinstance(before, Group) and not before.is_dead:
            return upgrade(before, settings, self.catalog, self._downgrade, now)
        # A queue keeps its id also without members.
        if before.is_unused and not before.is_dead:
            return ConsumerGroup(group_id, settings, self.catalog, self._downgrade, converted=True)
        raise _not_found(group_id)

    async def _durable(
        self, saving: asyncio.Future[None], reply: ConsumerHeartbeatReply
    ) -> ConsumerHeartbeatReply:
        """Return the answer once the group's last change is durable; cancelling the caller does not cancel it."""
        waiter: asyncio.Future[bool] = self._registry.loop.create_future()

        def pass_on(saved: asyncio.Future[None]) -> None:
            if not waiter.done():
                waiter.set_result(saved.exception() is None)

        saving.add_done_callback(pass_on)
        is_stored = await waiter
        return reply if is_stored or reply.error else reply.unavailable()

    # --- views ------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> ConsumerGroupView | None:
        """Return a group of KIP-848, or None if there is none of that id and type."""
        self._registry.require_open()
        group = self._registry.group(group_id)
        return group.described() if isinstance(group, ConsumerGroup) and not group.is_dead else None

    def kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """Return the protocol of a member of a group of KIP-848; None for all others."""
        group = self._registry.group(group_id)
        member = group.roster.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        return None if member is None else member.kind

    def _restored(self, row: StoredModern, members: Sequence[StoredModernMember], now: float) -> Machine:
        settings = self.settings_of(row.group_id)
        return ConsumerGroup.restored(row, members, settings, self.catalog, now, self._downgrade)


def default_settings(registry: GroupRegistry) -> ConsumerGroupSettings:
    """Return the settings of a group that sets nothing itself."""
    config = registry.config
    return ConsumerGroupSettings(
        session_timeout=config.group_consumer_session_timeout_ms / 1000,
        heartbeat_interval=config.group_consumer_heartbeat_interval_ms / 1000,
        assignment_interval=config.group_consumer_assignment_interval_ms / 1000,
        max_size=config.group_max_size,
        may_upgrade=config.group_consumer_upgrade,
        may_downgrade=config.group_consumer_downgrade,
    )


def _refused(error: ErrorCode, message: str) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error, message=message)


def _size(request: ConsumerHeartbeat) -> int:
    """Return how much of a heartbeat is kept, in characters."""
    size = len(request.member_id) + len(request.client_id) + len(request.pattern or "")
    if request.group_instance_id is not None or request.rack_id is not None:
        size += len(request.group_instance_id or "") + len(request.rack_id or "")
    return size + sum(map(len, request.topics)) if request.topics else size


def _not_found(group_id: str) -> BrokerError:
    return BrokerError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"There is no consumer group {group_id!r}; join with epoch 0.",
        group=group_id,
    )
