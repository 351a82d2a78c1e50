"""Members of groups over HTTP, as `broker.groups.members`: a shell script joins a group of Java clients.

Two things differ from a member on the Kafka port. A request over HTTP is short and a round may be long: the join
waits in the broker, and the client asks again with its member id until the round is over. And such a client can
hardly compute an assignment. A client that names topics instead of protocols lets the broker assign: the member
offers the protocols of Kafka's own clients, with the metadata that they would send, so that any leader can assign to
it. If it is elected leader itself, the broker assigns at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.hosted import HostedMembers, Then, offers
from core.groups.interfaces import Coordinator
from core.groups.refusals import refusal
from core.vocabulary.groups import (
    Joining,
    JoinReply,
    JoinRequest,
    Leaver,
    Resumption,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE


class _Join:
    """One join over HTTP: a single round; the client does all the rest."""

    syncs = False

    def __init__(self, group_id: str, request: JoinRequest, *, leads: bool) -> None:
        self.group_id = group_id
        self.leads = leads
        self.reply: JoinReply | None = None
        self._request = request

    def resumes(self) -> Resumption | None:
        """See `HostedMember`. The client continues by its own requests."""
        return None

    async def resumed(self, reply: SyncReply) -> Then:
        """See `HostedMember`. Not called."""
        return Then.AGAIN

    def named(self, member_id: str) -> None:
        """See `HostedMember`."""
        self._request.member_id = member_id

    async def before_join(self) -> None:
        """See `HostedMember`. The client has given up its partitions before it asked."""

    def request(self) -> JoinRequest:
        """See `HostedMember`."""
        return self._request

    async def assigned(self, joined: JoinReply, assignment: bytes) -> Then:
        """See `HostedMember`."""
        self.reply = joined
        return Then.DONE

    def refused(self, error: ErrorCode) -> Then:
        """See `HostedMember`. The client decides what to do."""
        return Then.FAIL

    async def failed(self, error: BrokerError) -> None:
        """See `HostedMember`. The client gets the error."""

    def ended(self) -> None:
        """See `HostedMember`. `HttpMembers` keeps the task."""

    def group_moved(self) -> None:
        """See `HostedMember`. The client rejoins when its heartbeat says so."""


class HttpMembers:
    """Joins, syncs, heartbeats and leaves of HTTP clients. Errors are raised as BrokerError."""

    def __init__(self, config: Config, coordinator: Coordinator, hosted: HostedMembers) -> None:
        self._config = config
        self._coordinator = coordinator
        self._hosted = hosted
        # Joins that wait, and those whose answer has not been fetched yet, by group and member id.
        self._joins: dict[tuple[str, str], tuple[_Join, asyncio.Task[BrokerError | None]]] = {}

    async def join(
        self, group_id: str, request: JoinRequest, *, wait_ms: int, leads: bool = False
    ) -> Joining:
        """Join with protocols of the client's own; wait for the end of the round up to `wait_ms`.

        A join with the id of a join that still waits continues that one. With `leads` the broker assigns if the
        member is elected leader. Raises the errors of `GroupCoordinator.join`, THROTTLING_QUOTA_EXCEEDED.
        """
        config = self._config
        member_id = await self._coordinator.name(group_id, request)
        key = (group_id, member_id)
        if key not in self._joins:
            if len(self._joins) >= config.max_waiting:
                raise BrokerError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"{len(self._joins)} joins wait already; try again later.",
                    limit=config.max_waiting,
                )
            join = _Join(group_id, request, leads=leads)
            task = self._hosted.start(join)
            self._joins[key] = (join, task)
            task.add_done_callback(lambda _: self._forget_later(key, request.session_timeout_ms))
        join, task = self._joins[key]
        await asyncio.wait([task], timeout=min(wait_ms, config.max_wait_ms) / 1000)
        if not task.done():
            return Joining(member_id, None)
        self._joins.pop(key, None)
        error = task.result()
        if error is not None:
            raise error
        assert join.reply is not None
        return Joining(join.reply.member_id, join.reply)

    async def join_topics(
        self, group_id: str, request: JoinRequest, topics: Sequence[str], *, wait_ms: int, assignor: str = ""
    ) -> Joining:
        """Join to read `topics`; the broker assigns if the member is elected leader.

        `assignor` is the protocol to vote for; the votes of all members decide. Raises UNSUPPORTED_ASSIGNOR, and as
        `join`.
        """
        request.protocol_type = CONSUMER_PROTOCOL_TYPE
        request.protocols = offers(topics, assignor)
        return await self.join(group_id, request, wait_ms=wait_ms, leads=True)

    async def sync(self, group_id: str, request: SyncRequest, *, wait_ms: int) -> SyncReply | None:
        """Return the member's assignment; None if the leader has not assigned within `wait_ms`.

        The broker assigns for a leader that sends no assignments. Raises the errors of `GroupCoordinator.sync`.
        """
        if not request.assignments:
            await self._hosted.lead(group_id, request.member_id, request.generation)
        work = self._coordinator.sync(group_id, request)
        try:
            async with asyncio.timeout(min(wait_ms, self._config.max_wait_ms) / 1000):
                reply = await work
        except TimeoutError:
            return None
        if reply.error:
            raise refusal(reply.error, group_id, request.member_id)
        return reply

    async def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> None:
        """Extend the session of a member. Raises REBALANCE_IN_PROGRESS if it has to join again, and the like."""
        error = await self._coordinator.beat(group_id, member_id, generation, group_instance_id)
        if error:
            raise refusal(error, group_id, member_id)

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None = None) -> None:
        """Leave the group. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        (reply,) = await self._coordinator.leave(group_id, [Leaver(member_id, group_instance_id)])
        if reply.error:
            raise refusal(reply.error, group_id, member_id)

    def _forget_later(self, key: tuple[str, str], session_timeout_ms: int) -> None:
        """Keep an answer that the client does not fetch for one session of the member."""
        self._coordinator.loop.call_later(session_timeout_ms / 1000, self._forget, key, self._joins.get(key))

    def _forget(self, key: tuple[str, str], join: object) -> None:
        if join is not None and self._joins.get(key) is join:
            del self._joins[key]
