"""The coordinators of the cluster's groups, for the members that this gateway hosts and for members over HTTP.

Each call is one request of Kafka's protocol to the coordinator of the group. Errors are in the replies, also those of
a coordinator that cannot be reached: the join loop (`core/groups/hosted.py`) decides what to do.

Theory. A membership belongs to no connection: the coordinator checks member id, instance id and generation alone.
So a gateway that is restarted continues as the same member. It sends a heartbeat first, then SyncGroup, which returns
the assignment of the generation again. It must not join: in a stable group the JoinGroup of the leader begins a
rebalance.

A member of an embedded broker is told of a rebalance at once. Here the answer to a heartbeat says so; heartbeats are
sent in the background, and `heartbeat` returns what the last answer said. As soon as one member of a group learns of
a rebalance, or joins, the others of this gateway send a heartbeat too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from core.client.cluster import ClusterClient
from core.client.failures import error_code
from core.client.links import ALONE, SHARED
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.interfaces import Round
from core.groups.refusals import refusal
from core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from core.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from core.upstream.group_offsets import PATIENCE_MS
from core.upstream.group_views import GroupViews
from core.vocabulary.groups import (
    NO_MEMBER,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Resumption,
    Standing,
    State,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)

log = logging.getLogger(__name__)

# Kafka's heartbeat.interval.ms: that long a rebalance of others may stay unnoticed.
HEARTBEAT_SECONDS = 3.0
# Between two heartbeats of one member; a poll asks for one each time.
_LEAST_SECONDS = 0.5
# How long a heartbeat is tried again while the coordinator moves; the next one comes soon.
_HEARTBEAT_PATIENCE_MS = 3_000
# SyncGroup waits for the leader, for a rebalance timeout at most: Kafka's default is 60 s, for clients 5 min.
_SYNC_WAIT_MS = 300_000
# Characters of a member's client id: as many as the name of a managed consumer has.
_CLIENT_ID = 249
# Members of an earlier run that are continued at the same time, and what the coordinator may take for one.
_RESUMES_AT_ONCE, _RESUME_MS = 100, 0
# Heartbeats of all members together in a second; with more members each sends fewer.
_MOST_HEARTBEATS = 1_000
# From the next version of SyncGroup on, Kafka refuses a request that does not name the protocol (KIP-559).
_WITHOUT_PROTOCOL = 4
# After a JoinGroup the other members of this gateway look at once, when the coordinator has it.
_TELL_SECONDS = 0.05
# Members of which something is remembered; the least recently used are dropped.
_MAX_MEMBERS = 100_000
_MAX_GROUPS = 10_000

V = TypeVar("V")


class _Remembered(Generic[V]):
    """A few values by key; the least recently used are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, *key: str) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, value: V, *key: str) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def pop(self, *key: str) -> V | None:
        return self._values.pop(key, None)


class _Led(NamedTuple):
    """A generation for which a member of this gateway has to assign."""

    generation: int
    round: Round


class _Beat:
    """The heartbeats of one member in one generation."""

    __slots__ = ("error", "generation", "sent", "task")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.error = ErrorCode.NONE
        # When the last one was sent, in monotonic seconds.
        self.sent = float("-inf")
        self.task: asyncio.Task[None] | None = None


class RemoteCoordinator:
    """Requests to group coordinators; see `core.groups.interfaces.Coordinator`. Used on the event loop only."""

    def __init__(self, cluster: ClusterClient, broker: Logs, views: GroupViews) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = ErrorCode.NONE
        self._cluster = cluster
        self._broker = broker
        self._views = views
        self._resuming = asyncio.Semaphore(_RESUMES_AT_ONCE)
        self._watchers: list[Callable[[str], None]] = []
        self._led: _Remembered[_Led] = _Remembered(_MAX_GROUPS)
        # The last assignments that members of this gateway have made, by group: sticky assignors keep to them.
        self._assigned: _Remembered[dict[str, bytes]] = _Remembered(_MAX_GROUPS)
        self._standings: _Remembered[Standing] = _Remembered(_MAX_MEMBERS)
        self._beats: _Remembered[_Beat] = _Remembered(_MAX_MEMBERS)
        # When a group of this gateway's members was last seen moving, in monotonic seconds.
        self._moving: _Remembered[float] = _Remembered(_MAX_GROUPS)

    # --- rebalances ----------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(group_id)` whenever the group may rebalance."""
        self._watchers.append(watcher)

    def drain(self) -> None:
        """Refuse all later requests; members stay what they are."""
        self.closed = ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def close(self) -> None:
        """End the heartbeats."""
        self.drain()
        tasks = [beat.task for beat in self._beats._values.values() if beat.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _moved(self, group_id: str) -> None:
        self._moving.put(self._cluster.clock.monotonic(), group_id)
        for watcher in self._watchers:
            watcher(group_id)

    # --- join and sync -------------------------------------------------------------------------------------

    async def name(self, group_id: str, request: JoinRequest) -> str:
        """Return the id of the member that will join, which the group gives (KIP-394).

        A static member without an id gets it at the end of its join only. Until then it has one that this gateway
        alone knows.
        """
        if request.member_id == NO_MEMBER and request.group_instance_id is None:
            reply = await self.join(group_id, request)
            if reply.error is not ErrorCode.MEMBER_ID_REQUIRED:
                raise refusal(reply.error or ErrorCode.UNKNOWN_SERVER_ERROR, group_id)
            request.member_id = reply.member_id
        elif request.member_id == NO_MEMBER:
            request.new_member_id = f"{request.group_instance_id}-{self._cluster.clock.uuid4()}"
        return request.member_id or request.new_member_id

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup: return at the end of the round; MEMBER_ID_REQUIRED with the id for a new member."""
        if self.closed:
            return JoinReply(self.closed, request.member_id)
        rebalance_ms = request.rebalance_timeout_ms
        if rebalance_ms < 0:
            rebalance_ms = request.session_timeout_ms
        wanted = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in request.protocols],
        )
        if request.member_id or request.group_instance_id:
            self.loop.call_later(_TELL_SECONDS, self._moved, group_id)
        try:
            answer: JoinGroupResponse = await self._cluster.ask_coordinator(
                group_id,
                wanted,
                lane=ALONE,
                timeout_ms=rebalance_ms + self._cluster.settings.request_timeout_ms,
                # DescribeGroups shows it, and member ids begin with it.
                client_id=request.client_id[:_CLIENT_ID] or None,
            )
            return await self._joined(group_id, answer)
        except BrokerError as error:
            return JoinReply(error.code, request.member_id)

    async def _joined(self, group_id: str, answer: JoinGroupResponse) -> JoinReply:
        reply = JoinReply(
            error_code(answer.error_code),
            answer.member_id,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader,
            tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata) for m in answer.members),
            answer.skip_assignment,
        )
        if reply.error:
            return reply
        leads = reply.leader_id == reply.member_id
        topics: Collection[str] = ()
        if leads:
            topics = (
                subscribed_topics(CONSUMER_PROTOCOL_TYPE, (member.metadata for member in reply.members)) or ()
            )
            # The assignment needs their partition counts.
            await self._broker.look(topics)
            # Before version 7 the answer does not say the protocol type.
            if not reply.skip_assignment and reply.protocol_type in (None, CONSUMER_PROTOCOL_TYPE):
                previous = self._assigned.get(group_id) or {}
                waiting = Round(reply.protocol or "", reply.members, previous)
                self._led.put(_Led(reply.generation, waiting), group_id, reply.member_id)
        self._standings.put(Standing(True, leads=leads, topics=topics), group_id, reply.member_id)
        return reply

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """SyncGroup: return once the leader has sent the assignments."""
        return await self._sync(group_id, request, ALONE, _SYNC_WAIT_MS)

    async def _sync(self, group_id: str, request: SyncRequest, lane: str, wait_ms: int) -> SyncReply:
        if self.closed:
            return SyncReply(self.closed)
        wanted = SyncGroupRequest(
            group_id=group_id,
            generation_id=request.generation,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in request.assignments
            ],
        )
        _complete(wanted, self._led.get(group_id, request.member_id))
        named = wanted.protocol_type is not None and wanted.protocol_name is not None
        try:
            answer: SyncGroupResponse = await self._cluster.ask_coordinator(
                group_id,
                wanted,
                lane=lane,
                timeout_ms=wait_ms + self._cluster.settings.request_timeout_ms,
                newest=None if named else _WITHOUT_PROTOCOL,
            )
        except BrokerError as error:
            return SyncReply(error.code)
        if request.assignments:
            self._led.pop(group_id, request.member_id)
            if not answer.error_code:
                self._assigned.put(dict(request.assignments), group_id)
        return SyncReply(
            error_code(answer.error_code), answer.assignment, answer.protocol_type, answer.protocol_name
        )

    def to_lead(self, group_id: str, member_id: str, generation: int) -> Round | None:
        """Return the round that waits for the assignment of this member; None if it leads none."""
        led = self._led.get(group_id, member_id)
        return led.round if led is not None and led.generation == generation else None

    # --- after a restart -----------------------------------------------------------------------------------

    async def resume(self, group_id: str, member: Resumption) -> SyncReply:
        """Continue as a member of an earlier run: return its assignment, or why it has to join.

        REBALANCE_IN_PROGRESS also if a partition of its topics has no owner: topics have grown meanwhile. If the
        member leads, its join begins a rebalance then; else the join changes nothing.
        """
        async with self._resuming:
            return await self._resume(group_id, member)

    async def _resume(self, group_id: str, member: Resumption) -> SyncReply:
        error = await self.beat(group_id, *member)
        if error:
            return SyncReply(error)
        wanted = SyncRequest(member.member_id, member.generation, group_instance_id=member.group_instance_id)
        # The leader has assigned in this generation, so that the answer comes at once.
        reply = await self._sync(group_id, wanted, SHARED, _RESUME_MS)
        if reply.error:
            return reply
        try:
            topics, complete = await self._coverage(group_id, member.member_id)
        except BrokerError as refused:
            return SyncReply(refused.code)
        if not complete:
            return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
        # The leader is not shown to members. A join that changes nothing is harmless for the others.
        self._standings.put(Standing(True, leads=True, topics=topics), group_id, member.member_id)
        return reply

    async def _coverage(self, group_id: str, member_id: str) -> tuple[Collection[str], bool]:
        """Return the topics of a member's subscription, and whether each of their partitions has an owner."""
        view = await self._views.look(group_id)
        if view is None or view.state != State.STABLE:
            return (), True
        topics = subscribed_topics(
            CONSUMER_PROTOCOL_TYPE, (one.metadata for one in view.members if one.member_id == member_id)
        )
        await self._broker.look(topics or ())
        owned: dict[str, int] = {}
        for one in view.members:
            for tp in assigned_partitions(one.assignment):
                owned[tp.topic] = owned.get(tp.topic, 0) + 1
        for topic in topics or ():
            try:
                count = self._broker.topics.get(topic).partitions
            except BrokerError:
                continue
            if owned.get(topic, 0) < count:
                return topics or (), False
        return topics or (), True

    def standing(self, group_id: str, member_id: str) -> Standing | None:
        """Return what is known of a member; None if this process has neither joined nor resumed it."""
        return self._standings.get(group_id, member_id)

    @property
    def heartbeat_seconds(self) -> float:
        """The time between two heartbeats of one member."""
        return max(HEARTBEAT_SECONDS, len(self._beats) / _MOST_HEARTBEATS)

    # --- heartbeats ----------------------------------------------------------------------------------------

    async def beat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Heartbeat: return what the coordinator says, or NETWORK_EXCEPTION."""
        if self.closed:
            return self.closed
        wanted = HeartbeatRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=group_instance_id,
        )
        try:
            answer: HeartbeatResponse = await self._cluster.ask_coordinator(
                group_id, wanted, patience_ms=_HEARTBEAT_PATIENCE_MS
            )
        except BrokerError as error:
            return error.code
        return error_code(answer.error_code)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Return what the coordinator said last of this generation, and send the next heartbeat if it is time.

        An error is returned once.
        """
        beat = self._beats.get(group_id, member_id)
        if beat is None or beat.generation != generation:
            beat = _Beat(generation)
            self._beats.put(beat, group_id, member_id)
        if beat.error:
            error, beat.error = beat.error, ErrorCode.NONE
            return error
        now = self._cluster.clock.monotonic()
        moving = (self._moving.get(group_id) or float("-inf")) > beat.sent
        if beat.task is None and not self.closed and (moving or now - beat.sent >= _LEAST_SECONDS):
            beat.sent = now
            beat.task = self.loop.create_task(self._beat(beat, group_id, member_id, group_instance_id))
        return ErrorCode.NONE

    async def _beat(self, beat: _Beat, group_id: str, member_id: str, group_instance_id: str | None) -> None:
        try:
            error = await self.beat(group_id, member_id, beat.generation, group_instance_id)
        finally:
            beat.task = None
        known = self._beats.get(group_id, member_id) is beat
        # Without an answer the member stays what it is: the next heartbeat is sent soon.
        if known and error and (error is ErrorCode.REBALANCE_IN_PROGRESS or not error.retriable):
            beat.error = error
            self._moved(group_id)

    # --- leave ---------------------------------------------------------------------------------------------

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """LeaveGroup of one or more members. Raises BrokerError for the whole request."""
        if self.closed:
            raise refusal(self.closed, group_id)
        replies: list[LeaveReply] = []
        wanted = LeaveGroupRequest(
            group_id=group_id,
            # Before version 3 a request names one member.
            member_id=leavers[0].member_id,
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in leavers],
        )
        answer: LeaveGroupResponse = await self._cluster.ask_coordinator(
            group_id, wanted, patience_ms=PATIENCE_MS
        )
        error = error_code(answer.error_code)
        if error and error is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise refusal(error, group_id, leavers[0].member_id)
        given = {one.member_id: error_code(one.error_code) for one in answer.members}
        for leaver in leavers:
            self._standings.pop(group_id, leaver.member_id)
            self._beats.pop(group_id, leaver.member_id)
            self._led.pop(group_id, leaver.member_id)
            replies.append(LeaveReply(*leaver, given.get(leaver.member_id, error)))
        self.loop.call_later(_TELL_SECONDS, self._moved, group_id)
        return replies


def _complete(request: SyncGroupRequest, led: _Led | None) -> None:
    """Name the protocol in the SyncGroup of a leader, if the caller has not."""
    if led is not None and request.protocol_name is None:
        request.protocol_type = CONSUMER_PROTOCOL_TYPE
        request.protocol_name = led.round.protocol
