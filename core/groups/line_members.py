"""Members of groups over the line protocol, as `broker.groups.lines`.

Theory. The client of such a member is a person with netcat, or a script. It chose the member id, it never waits, and
it may be silent between two commands. The protocol is simple: JOIN returns generation and assignment at once;
HEARTBEAT, SYNC, LEAVE and COMMIT name the generation; a client that names an older generation gets an error and joins
again. But the group is a Kafka group, whose members must all join each round. So when a round begins, the broker
joins for these members at once, with the protocols of their last JOIN, and assigns if one of them leads. Other
members never wait for a silent script, and the script learns from its next command that there is a new generation.

A member is kept for one session (`text_session_timeout_ms`) after its client's last command; the broker's own joins
do not count. A member that was silent for longer leaves when the next round begins, if its session has not expired
before.

The host of such members begins with `HOST`, which no other listener uses, so the broker finds them after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.coordinator import GroupCoordinator
from core.groups.effects import StoredGroup, StoredMember
from core.groups.group import Group
from core.groups.hosted import JOIN_AGAIN, HostedMembers, Then, offers
from core.groups.interfaces import partition_count
from core.groups.member import Member
from core.groups.migration import LINE_HOST
from core.groups.offset_store import OffsetStore
from core.groups.positions import GroupPositions
from core.groups.refusals import refusal
from core.groups.registry import GroupRegistry
from core.types import TopicPartition
from core.vocabulary.groups import (
    NO_MEMBER,
    NO_OFFSET,
    Commit,
    CommitRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LineAssignment,
    Resumption,
    State,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    assignment_of,
    subscribed_topics,
)

# The beginning of the host of such a member in DescribeGroups, before its address.
HOST = LINE_HOST
# Characters of a group id and a member id: as for topics, and far less than the Kafka port accepts.
MAX_NAME = 249

Protocols = tuple[tuple[str, bytes], ...]


class LineMember:
    """One member: the broker joins and syncs for it in every round."""

    leads = True
    syncs = True

    def __init__(
        self,
        group_id: str,
        member_id: str,
        session_ms: int,
        registry: GroupRegistry,
        hosted: HostedMembers,
        left: Callable[[], None],
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        # The time of the client's last command, in monotonic seconds.
        self.heard = registry.clock.monotonic()
        # What the next join offers.
        self.protocols: Protocols = ()
        self._host = ""
        # Whether the group knows the member id.
        self._known = False
        self._session_ms = session_ms
        self._registry = registry
        self._hosted = hosted
        # Called when the group does not have the member any more.
        self._left = left

    def join(self, protocols: Protocols, host: str = "") -> asyncio.Task[BrokerError | None]:
        """Join with these protocols, unless a join is under way."""
        if self._hosted.running(self) is None:
            group = self._registry.classic(self.group_id)
            self._known = group is not None and self.member_id in group.roster.members
            self.protocols, self._host = protocols, host
        return self._hosted.start(self)

    def resumes(self) -> Resumption | None:
        """See `HostedMember`. After a restart the group itself is at hand."""
        return None

    async def resumed(self, reply: SyncReply) -> Then:
        """See `HostedMember`. Not called."""
        return Then.AGAIN

    def named(self, member_id: str) -> None:
        """See `HostedMember`."""
        self.member_id = member_id

    async def before_join(self) -> None:
        """See `HostedMember`. The client does not learn of a round before it is over."""

    def request(self) -> JoinRequest:
        """See `HostedMember`."""
        return JoinRequest(
            self.member_id if self._known else NO_MEMBER,
            CONSUMER_PROTOCOL_TYPE,
            self.protocols,
            self._session_ms,
            self._session_ms,
            client_id=self.member_id,
            client_host=HOST + self._host,
            new_member_id=self.member_id,
        )

    async def assigned(self, joined: JoinReply, assignment: bytes) -> Then:
        """See `HostedMember`. The client asks the group for its assignment."""
        return Then.DONE

    def refused(self, error: ErrorCode) -> Then:
        """See `HostedMember`. The client gets errors that another join does not heal."""
        self._known = True
        return Then.AGAIN if error in JOIN_AGAIN else Then.FAIL

    async def failed(self, error: BrokerError) -> None:
        """See `HostedMember`. The client of a JOIN that waits gets the error; the loop runs again soon."""

    def ended(self) -> None:
        """See `HostedMember`. A command that waits has the task."""

    def group_moved(self) -> None:
        """See `HostedMember`. Join the round, or leave after a session of silence."""
        group = self._registry.classic(self.group_id)
        member = None if group is None else group.roster.members.get(self.member_id)
        if member is None or group is None:
            self._left()
        elif group.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
            if self._registry.clock.monotonic() - self.heard < member.session_timeout:
                self.join(member.protocols)
            else:
                self._hosted.leave(self.group_id, self.member_id)


class LineMembers:
    """The commands of all members of this kind. Errors are raised as BrokerError."""

    def __init__(
        self,
        registry: GroupRegistry,
        coordinator: GroupCoordinator,
        offsets: OffsetStore,
        positions: GroupPositions,
        hosted: HostedMembers,
        broker: Logs,
    ) -> None:
        self._registry = registry
        self._coordinator = coordinator
        self._offsets = offsets
        self._positions = positions
        self._hosted = hosted
        self._broker = broker
        self._monotonic = registry.clock.monotonic
        self._session_ms = registry.config.text_session_timeout_ms
        self._members: dict[tuple[str, str], LineMember] = {}

    def open(self) -> None:
        """Host the members of the run before; each has a whole session."""
        for group_id, entry in self._registry:
            group = entry.group
            for member in group.roster.members.values() if isinstance(group, Group) else ():
                if _is_line(member):
                    self._host(group_id, member.member_id)

    # --- commands of clients -----------------------------------------------------------------------------------

    async def join(
        self, group_id: str, topic: str, member_id: str, assignor: str = "", host: str = ""
    ) -> LineAssignment:
        """Join to read `topic`, or return the present generation again; durable when it returns.

        A topic that does not exist is created where the settings allow it. Waits for the end of a round for one
        session at most, then raises REBALANCE_IN_PROGRESS; the member is in the group nevertheless. Raises
        UNSUPPORTED_ASSIGNOR, INVALID_REQUEST (a name that is not allowed, or that of a member of another kind), and
        errors of the group.
        """
        protocols = offers([topic], assignor)
        _check_names(group_id, member_id)
        self._registry.require_name(group_id)
        other = self._registry.group(group_id)
        if other is not None and not isinstance(other, Group) and not other.is_unused:
            raise BrokerError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Group {group_id!r} is of the type {other.group_type!r}; members of the line protocol need another"
                " group.",
                group=group_id,
            )
        await self._broker.topics.get_or_create(topic)
        present = self._present(group_id, member_id)
        if present is not None and not _is_line(present):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{member_id!r} is a member of group {group_id!r} that speaks another protocol; take another id.",
            )
        member = self._host(group_id, member_id)
        deadline = self._monotonic() + self._session_ms / 1000
        while (running := self._hosted.running(member)) is not None and member.protocols != protocols:
            if self._monotonic() >= deadline:
                raise refusal(ErrorCode.REBALANCE_IN_PROGRESS, group_id, member_id)
            await self._wait(running, deadline)
        if running is None:
            present = self._present(group_id, member_id)
            if present is None or present.protocols != protocols:
                member.join(protocols, host)
            elif (leader := self._stale_leader(group_id)) is not None:
                await self._wait(self._members[group_id, leader.member_id].join(leader.protocols), deadline)
        return await self._assignment(member, topic, deadline)

    async def sync(self, group_id: str, topic: str, member_id: str, generation: int) -> LineAssignment:
        """Return the assignment in `generation`.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        member = self._members.get((group_id, member_id))
        running = None if member is None else self._hosted.running(member)
        self._check(group_id, topic, member_id, generation)
        if running is not None:
            await self._wait(running, self._monotonic() + self._session_ms / 1000)
        reply = await self._coordinator.sync(group_id, SyncRequest(member_id, generation))
        if reply.error:
            raise refusal(reply.error, group_id, member_id)
        self._note_alive(group_id, member_id)
        return LineAssignment(generation, _of_topic(reply.assignment, topic))

    def heartbeat(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Extend the session of a member. Raises as `sync`; the client then has to join again."""
        self._check(group_id, topic, member_id, generation)
        error = self._coordinator.heartbeat(group_id, member_id, generation)
        if error:
            raise refusal(error, group_id, member_id)
        self._note_alive(group_id, member_id)

    async def leave(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Leave the group. Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION."""
        self._check(group_id, topic, member_id, generation)
        (reply,) = await self._coordinator.leave(group_id, [Leaver(member_id)])
        if reply.error:
            raise refusal(reply.error, group_id, member_id)

    async def commit(
        self, group_id: str, topic: str, member_id: str, generation: int, partition: int, offset: int
    ) -> None:
        """Commit the next offset to read; durable when it returns.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (another generation, or a partition that the member does not own
        in this one), REBALANCE_IN_PROGRESS, INVALID_REQUEST for an offset below 0.
        """
        member = self._check(group_id, topic, member_id, generation)
        if offset < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"An offset is 0 or larger, not {offset}.")
        if TopicPartition(topic, partition) not in assigned_partitions(member.assignment):
            raise BrokerError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Partition {partition} of {topic!r} is not assigned to {member_id!r} in generation {generation}.",
            )
        await self._positions.set(
            group_id, CommitRequest([Commit(topic, partition, offset)], member_id, generation)
        )
        self._note_alive(group_id, member_id)

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """Return the committed offset, −1 if nothing was committed."""
        found = self._offsets.get(group_id, topic, partition)
        return NO_OFFSET if found is None else found.offset

    async def take_over(
        self,
        group_id: str,
        topic: str,
        generation: int,
        assignor: str,
        members: Mapping[str, Sequence[int]],
    ) -> bool:
        """Continue a group of another broker in its generation, with members (id → partitions) that need not rejoin.

        Return False if the group is in this generation or a later one already, so that the call may be repeated.
        Durable when it returns. Raises NON_EMPTY_GROUP for a group that has members in an older generation,
        UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_ASSIGNOR, INVALID_REQUEST for a name that is not allowed and for a
        partition of two members.
        """
        for member_id in members:
            _check_names(group_id, member_id)
        owned = [TopicPartition(topic, partition) for mine in members.values() for partition in mine]
        for tp in owned:
            self._broker.partitions.info(tp)
        if len(set(owned)) < len(owned):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Two members of group {group_id!r} own the same partition."
            )
        protocols = offers([topic], assignor)
        self._registry.require_name(group_id)
        present = self._registry.classic(group_id)
        if present is not None and present.generation >= generation:
            return False
        stored = [
            StoredMember(
                group_id, member_id, None, member_id, HOST, self._session_ms, self._session_ms, protocols,
                assignment_of(TopicPartition(topic, partition) for partition in partitions),
            )
            for member_id, partitions in members.items()
        ]  # fmt: skip
        row = StoredGroup(
            group_id,
            State.STABLE if stored else State.EMPTY,
            CONSUMER_PROTOCOL_TYPE,
            generation,
            protocols[0][0] if stored else None,
            stored[0].member_id if stored else None,
            -1 if stored else self._registry.clock.wall_ms(),
        )
        await self._coordinator.take_over(row, stored)
        for member_id in members:
            self._host(group_id, member_id)
        return True

    # --- members -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of members that are hosted."""
        return len(self._members)

    def _host(self, group_id: str, member_id: str) -> LineMember:
        """Host a member, or restart the session of one that is hosted."""
        key = (group_id, member_id)
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = LineMember(
                group_id, member_id, self._session_ms, self._registry, self._hosted, partial(self._drop, key)
            )
            self._hosted.add(member)
        member.heard = self._monotonic()
        return member

    def _drop(self, key: tuple[str, str]) -> None:
        self._hosted.remove(self._members.pop(key))

    def _note_alive(self, group_id: str, member_id: str) -> None:
        member = self._members.get((group_id, member_id))
        if member is not None:
            member.heard = self._monotonic()

    async def _wait(self, running: asyncio.Task[BrokerError | None], deadline: float) -> None:
        """Wait for a join up to the deadline. It continues after the deadline, and if the caller is cancelled."""
        await asyncio.wait([running], timeout=max(0.0, deadline - self._monotonic()))

    async def _assignment(self, member: LineMember, topic: str, deadline: float) -> LineAssignment:
        """Return the assignment of the present generation, after a round that is under way."""
        group_id, member_id = member.group_id, member.member_id
        while True:
            running = self._hosted.running(member)
            if running is not None:
                await self._wait(running, deadline)
                if not running.done():
                    raise refusal(ErrorCode.REBALANCE_IN_PROGRESS, group_id, member_id)
                error = running.result()
                if error is not None:
                    raise error
            group = self._registry.classic(group_id)
            generation = -1 if group is None else group.generation
            reply = await self._coordinator.sync(group_id, SyncRequest(member_id, generation))
            if not reply.error:
                return LineAssignment(generation, _of_topic(reply.assignment, topic))
            if reply.error not in JOIN_AGAIN or self._monotonic() >= deadline:
                raise refusal(reply.error, group_id, member_id)
            await asyncio.sleep(0)

    def _present(self, group_id: str, member_id: str) -> Member | None:
        """Return the member as its group has it, or None."""
        group = self._registry.classic(group_id)
        return None if group is None else group.roster.members.get(member_id)

    def _check(self, group_id: str, topic: str, member_id: str, generation: int) -> Member:
        """Return the member if it reads `topic` in this generation. Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION."""
        self._registry.require_name(group_id)
        group = self._registry.classic(group_id)
        member = None if group is None else group.roster.members.get(member_id)
        if group is None or member is None or topic not in _topics(group, [member]):
            raise refusal(ErrorCode.UNKNOWN_MEMBER_ID, group_id, member_id)
        if generation != group.generation:
            raise refusal(ErrorCode.ILLEGAL_GENERATION, group_id, member_id)
        return member

    def _stale_leader(self, group_id: str) -> Member | None:
        """Return the leader of a stable group if it is hosted here and has not assigned all partitions."""
        group = self._registry.classic(group_id)
        if group is None or group.state is not State.STABLE:
            return None
        members = group.roster.members
        leader = members.get(group.roster.leader_id or NO_MEMBER)
        if leader is None or (group_id, leader.member_id) not in self._members:
            return None
        assigned = {tp for member in members.values() for tp in assigned_partitions(member.assignment)}
        exist = {
            TopicPartition(topic, partition)
            for topic in _topics(group, members.values())
            for partition in range(partition_count(self._broker, topic))
        }
        return leader if exist != assigned else None


def _check_names(group_id: str, member_id: str) -> None:
    for what, name in (("group", group_id), ("consumer", member_id)):
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"The name of a {what} has 1 to {MAX_NAME} printable characters."
            )


def _is_line(member: Member) -> bool:
    return member.client_host.startswith(HOST)


def _topics(group: Group, members: Iterable[Member]) -> frozenset[str]:
    metadata = (member.metadata(group.protocol) or member.protocols[0][1] for member in members)
    return subscribed_topics(group.protocol_type, metadata) or frozenset()


def _of_topic(assignment: bytes, topic: str) -> list[int]:
    return sorted(tp.partition for tp in assigned_partitions(assignment) if tp.topic == topic)
