"""The coordinator of groups to whose members the broker assigns (KIP-848)."""

from __future__ import annotations

from core.errors import ErrorCode
from core.facade import Logs
from core.groups.registry import GroupRegistry
from core.vocabulary.consumer_groups import (
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

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """Handle ConsumerGroupHeartbeat; the answer is durable."""
        return ConsumerHeartbeatReply(ErrorCode.UNSUPPORTED_VERSION, message="Not yet.")

    def describe(self, group_id: str) -> ConsumerGroupView | None:
        """Return a group of KIP-848, or None if there is none of that id and type."""
        return None

    def kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """Return the protocol of a member of a group of KIP-848; None for all others."""
        return None
