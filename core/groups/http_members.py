"""Members of groups that speak HTTP: a shell script joins a group of Java clients and takes its share.

Two things differ from a member on the binary port. A request over HTTP is short, a join round may be long: the
join waits in the broker, and the member asks again with its id until the round is over. And such a member can
hardly compute an assignment: one that names topics and no protocols lets the broker do it. It offers the
protocols that Kafka's clients have in common, with the metadata that any of them would send, so that whichever
member leads can assign to it; and when it is elected leader itself, the broker assigns in its name, at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.assignor import STRATEGIES, assign
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE
from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.vocabulary.groups import (
    NO_MEMBER,
    Joining,
    JoinReply,
    JoinRequest,
    Leaver,
    State,
    SyncReply,
    SyncRequest,
)

if TYPE_CHECKING:
    from core.groups.groups import Groups

log = logging.getLogger(__name__)

# What a member without an assignor of its own offers, most wanted first.
PROTOCOLS = tuple(STRATEGIES)
# Subscriptions of this version carry no claim to partitions (KIP-429 adds it): who joins here has let go of all.
_SUBSCRIPTION_VERSION = 0


def offers(topics: Iterable[str], assignor: str = "") -> tuple[tuple[str, bytes], ...]:
    """The protocols of a member that leaves the assignment to the broker, `assignor` first, with its metadata.

    Raises UNSUPPORTED_ASSIGNOR.
    """
    if assignor and assignor not in STRATEGIES:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {assignor!r}; there are: {', '.join(PROTOCOLS)}.",
            assignors=list(PROTOCOLS),
        )
    metadata = encode_subscription(Subscription(sorted(set(topics))), _SUBSCRIPTION_VERSION)
    return tuple((name, metadata) for name in sorted(PROTOCOLS, key=lambda name: name != assignor))


class GroupMembers:
    """Joins, syncs, heartbeats and leaves of members that speak HTTP, as `broker.groups.members`."""

    def __init__(self, broker: Logs, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups
        # Joins that wait, and those whose answer has not been fetched yet.
        self._joins: dict[tuple[str, str], asyncio.Task[JoinReply]] = {}

    async def join(
        self, group_id: str, request: JoinRequest, *, wait_ms: int, leads: bool = False
    ) -> Joining:
        """Join with protocols of the client's own, as a binary member does; wait for the round up to `wait_ms`.

        A join with the id of a join that still waits only goes on waiting. With `leads` the broker assigns if
        this member is elected leader. Raises what the group refuses.
        """
        if request.member_id == NO_MEMBER:
            name = request.group_instance_id or request.client_id
            request.new_member_id = f"{name}-{self._broker.clock.uuid4()}"
        member_id = request.member_id or request.new_member_id
        key = (group_id, member_id)
        task = self._joins.get(key)
        if task is None:
            if len(self._joins) >= self._broker.config.max_waiting:
                raise BrokerError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"{len(self._joins)} joins wait already; try again later.",
                    limit=self._broker.config.max_waiting,
                )
            work = self._join(group_id, request, leads)
            task = self._joins[key] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._forget_later(key, request.session_timeout_ms))
        await asyncio.wait([task], timeout=min(wait_ms, self._broker.config.max_wait_ms) / 1000)
        if not task.done():
            return Joining(member_id, None)
        self._joins.pop(key, None)
        reply = task.result()
        if reply.error:
            raise self._groups.refusal(reply.error, group_id, reply.member_id)
        return Joining(reply.member_id, reply)

    async def join_topics(
        self, group_id: str, request: JoinRequest, topics: Sequence[str], *, wait_ms: int, assignor: str = ""
    ) -> Joining:
        """Join to read `topics`, and let the broker do what a client library would.

        `assignor` is the protocol to vote for; which one is elected is for all members to say.
        Raises UNSUPPORTED_ASSIGNOR, and what the group refuses.
        """
        request.protocol_type = CONSUMER_PROTOCOL_TYPE
        request.protocols = offers(topics, assignor)
        return await self.join(group_id, request, wait_ms=wait_ms, leads=True)

    async def sync(self, group_id: str, request: SyncRequest, *, wait_ms: int) -> SyncReply | None:
        """Fetch the member's assignment; None when the leader has not brought it within `wait_ms`.

        A leader that brings none has the broker assign. Raises what the group refuses.
        """
        if not request.assignments:
            await self.lead(group_id, request.member_id, request.generation)
        work = self._groups.sync(group_id, request)
        try:
            reply = await asyncio.wait_for(work, min(wait_ms, self._broker.config.max_wait_ms) / 1000)
        except TimeoutError:
            return None
        if reply.error:
            raise self._groups.refusal(reply.error, group_id, request.member_id)
        return reply

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> None:
        """Say that the member lives. Raises REBALANCE_IN_PROGRESS when it has to join again, and the like."""
        error = self._groups.heartbeat(group_id, member_id, generation, group_instance_id)
        if error:
            raise self._groups.refusal(error, group_id, member_id)

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None = None) -> None:
        """Leave. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        (reply,) = await self._groups.leave(group_id, [Leaver(member_id, group_instance_id)])
        if reply.error:
            raise self._groups.refusal(reply.error, group_id, member_id)

    async def _join(self, group_id: str, request: JoinRequest, leads: bool) -> JoinReply:
        reply = await self._groups.join(group_id, request)
        if leads and not reply.error:
            # At once, whether the client asks or not: the others wait for it.
            await self.lead(group_id, reply.member_id, reply.generation)
        return reply

    async def lead(self, group_id: str, member_id: str, generation: int) -> None:
        """Assign in the name of a leader, if this member is the one and the group waits for it."""
        group = self._groups.coordinator.group(group_id)
        if (
            group is None
            or group.state is not State.COMPLETING_REBALANCE
            or group.roster.leader_id != member_id
            or group.generation != generation
            or group.protocol_type != CONSUMER_PROTOCOL_TYPE
        ):
            return
        members = list(group.roster.members.values())
        assignments = assign(
            group.protocol or "",
            [member.joined(group.protocol) for member in members],
            self.partitions,
            {member.member_id: member.assignment for member in members},
        )
        reply = await self._groups.sync(group_id, SyncRequest(member_id, generation, assignments))
        if reply.error:
            # Somebody came or went in between; the next round assigns anew.
            log.info("group %r: the assignment of generation %d came late", group_id, generation)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        try:
            return self._broker.topics.get(topic).partitions
        except BrokerError:
            return 0

    def _forget_later(self, key: tuple[str, str], session_timeout_ms: int) -> None:
        """An answer that nobody fetches is kept as long as the session of its member lasts."""
        task = self._joins.get(key)
        loop = asyncio.get_running_loop()
        loop.call_later(session_timeout_ms / 1000, self._forget, key, task)

    def _forget(self, key: tuple[str, str], task: asyncio.Task[JoinReply] | None) -> None:
        if task is not None and self._joins.get(key) is task:
            del self._joins[key]
