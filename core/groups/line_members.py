"""Members of groups that say one line now and then, as `broker.groups.lines`.

Theory. Behind such a member is a person with netcat or a script: it chose its own id, it waits for nothing, and
between two lines nobody knows whether it is there. The protocol gives it a simple life: JOIN tells generation and
assignment at once, HEARTBEAT, SYNC, LEAVE and COMMIT name the generation, and a member whose generation is over
is told so and joins again. But the group is one of Kafka's, whose members must all come to each round. So when a
round begins, whoever started it, the broker joins in the name of these members, at once, with what each said
last; if one of them leads, the broker assigns (`assignor`). Others never wait for a script that sleeps, and the
script finds out by its next line that there is a new generation.

A member is kept for as long as it is heard of: a round in its name does not count. One that was silent for its
session leaves when the next round begins, if its session has not ended before that.

Such members are known by their host (`HOST`), which no other door gives, so they are known after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.assignor import decode, encode
from core.groups.group import Group
from core.groups.http_members import offers
from core.groups.member import Member
from core.groups.messages import StoredGroup, StoredMember
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from core.types import TopicPartition
from core.vocabulary.groups import (
    NO_MEMBER,
    NO_OFFSET,
    Commit,
    JoinRequest,
    Leaver,
    LineAssignment,
    State,
    SyncRequest,
)

if TYPE_CHECKING:
    from core.groups.groups import Groups

# What DescribeGroups shows as the host of such a member, before its address.
HOST = "line:"
# Characters of a group's and a member's name: as for topics, and far below what the binary port can tell.
MAX_NAME = 249
# Seconds before a round that the coordinator could not serve is tried again.
RETRY_DELAY = 0.1
_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


class _Round(NamedTuple):
    """A join that is under way in the name of a member, until it has its assignment."""

    protocols: tuple[tuple[str, bytes], ...]
    task: asyncio.Task[ErrorCode]


class LineMembers:
    """All members of this kind. Errors are raised as BrokerError."""

    def __init__(self, broker: Logs, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups
        self._monotonic = broker.clock.monotonic
        self._session_ms = broker.config.text_session_timeout_ms
        # By group: each member and when it was last heard of. A group is here while it has such members.
        self._heard: dict[str, dict[str, float]] = {}
        self._rounds: dict[tuple[str, str], _Round] = {}
        # Groups to be looked after in this turn of the event loop, and members that are being removed.
        self._moved: set[str] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Take over the members that the last run left; each has a whole session ahead."""
        coordinator = self._groups.coordinator
        coordinator.watchers.append(self._group_moved)
        for listing in coordinator.list():
            group = coordinator.group(listing.group_id)
            ours = [m.member_id for m in group.roster.members.values() if _is_line(m)] if group else []
            if ours:
                self._heard[listing.group_id] = dict.fromkeys(ours, self._monotonic())
                self._group_moved(listing.group_id)

    # --- what a member says --------------------------------------------------------------------------------

    async def join(
        self, group_id: str, topic: str, member_id: str, assignor: str = "", host: str = ""
    ) -> LineAssignment:
        """Join to read `topic`, or hear again what the present generation is; durable when it returns.

        A topic that does not exist is created where the settings allow it. Waits for the end of a round at most
        as long as a session lasts, then raises REBALANCE_IN_PROGRESS; the member is in the group all the same.
        Raises UNSUPPORTED_ASSIGNOR, INVALID_REQUEST (no name for a group or a member, or that of a member of another
        kind), and what the group refuses.
        """
        protocols = offers([topic], assignor)
        for what, name in (("group", group_id), ("consumer", member_id)):
            if not name or len(name) > MAX_NAME or not name.isprintable():
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"The name of a {what} has 1 to {MAX_NAME} printable characters.",
                )
        self._groups.coordinator.require_name(group_id)
        await self._broker.topics.get_or_create(topic)
        member = self._member(group_id, member_id)
        if member is not None and not _is_line(member):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{member_id!r} is a member of group {group_id!r} that speaks another protocol; take another id.",
            )
        self._heard.setdefault(group_id, {})[member_id] = self._monotonic()
        deadline = self._monotonic() + self._session_ms / 1000
        running = self._rounds.get((group_id, member_id))
        if running is not None and running.protocols != protocols:
            await self._wait(running.task, deadline)
            running, member = None, self._member(group_id, member_id)
        if running is None:
            if member is None or member.protocols != protocols:
                known = NO_MEMBER if member is None else member_id
                self._start(group_id, member_id, self._request(known, member_id, protocols, host))
            elif (leader := self._stale_leader(group_id)) is not None:
                await self._wait(self._rejoin(group_id, leader), deadline)
        return await self._tell(group_id, topic, member_id, deadline)

    async def sync(self, group_id: str, topic: str, member_id: str, generation: int) -> LineAssignment:
        """The assignment in `generation`. Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
        running = self._rounds.get((group_id, member_id))
        self._check(group_id, topic, member_id, generation)
        if running is not None:
            await self._wait(running.task, self._monotonic() + self._session_ms / 1000)
        reply = await self._groups.sync(group_id, SyncRequest(member_id, generation))
        if reply.error:
            raise self._groups.refusal(reply.error, group_id, member_id)
        self._hear(group_id, member_id)
        return LineAssignment(generation, _of_topic(reply.assignment, topic))

    def heartbeat(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """The member lives. Raises as `sync`; the member then has to join again."""
        self._check(group_id, topic, member_id, generation)
        error = self._groups.heartbeat(group_id, member_id, generation)
        if error:
            raise self._groups.refusal(error, group_id, member_id)
        self._hear(group_id, member_id)

    async def leave(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Leave; the others share what it had. Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION."""
        self._check(group_id, topic, member_id, generation)
        (reply,) = await self._groups.leave(group_id, [Leaver(member_id, None)])
        if reply.error:
            raise self._groups.refusal(reply.error, group_id, member_id)

    async def commit(
        self, group_id: str, topic: str, member_id: str, generation: int, partition: int, offset: int
    ) -> None:
        """Keep the offset that is to be read next; durable when it returns.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (another generation, or a partition that the member does not
        own in this one), REBALANCE_IN_PROGRESS, INVALID_REQUEST for an offset below 0.
        """
        member = self._check(group_id, topic, member_id, generation)
        if offset < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"An offset is 0 or larger, not {offset}.")
        if TopicPartition(topic, partition) not in decode(member.assignment):
            raise BrokerError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Partition {partition} of {topic!r} is not assigned to {member_id!r} in generation {generation}.",
            )
        await self._groups.positions.set(
            group_id, [Commit(topic, partition, offset)], member_id=member_id, generation=generation
        )
        self._hear(group_id, member_id)

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """The offset that is to be read next, −1 where nothing was committed."""
        found = self._groups.committed(group_id, topic, partition)
        return NO_OFFSET if found is None else found.offset

    async def take_over(
        self,
        group_id: str,
        topic: str,
        generation: int,
        assignor: str,
        members: Mapping[str, Sequence[int]],
    ) -> bool:
        """A group of another broker goes on here in its generation, with members (id → partitions) that need not
        rejoin; False when it has come as far already, so that doing it twice does no harm.

        Durable when it returns. Raises NON_EMPTY_GROUP for a group that has members in an older generation,
        UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_ASSIGNOR, INVALID_REQUEST for a name that cannot be and for a
        partition of two members.
        """
        for member_id in members:
            _check_names(group_id, member_id)
        owned = [TopicPartition(topic, partition) for mine in members.values() for partition in mine]
        for address in owned:
            self._broker.partitions.info(address)
        if len(set(owned)) < len(owned):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Two members of group {group_id!r} own the same partition."
            )
        protocols = offers([topic], assignor)
        self._groups.coordinator.require_name(group_id)
        present = self._groups.coordinator.group(group_id)
        if present is not None and present.generation >= generation:
            return False
        stored = [
            StoredMember(
                group_id, member_id, None, member_id, HOST, self._session_ms, self._session_ms, protocols,
                encode(TopicPartition(topic, partition) for partition in partitions),
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
            -1 if stored else self._broker.clock.wall_ms(),
        )
        await self._groups.coordinator.take_over(row, stored)
        self._heard[group_id] = dict.fromkeys(members, self._monotonic())
        return True

    # --- rounds --------------------------------------------------------------------------------------------

    def _group_moved(self, group_id: str) -> None:
        """A group is not stable (any more): its members here come to the round in the next turn of the loop."""
        if group_id in self._heard and group_id not in self._moved:
            self._moved.add(group_id)
            asyncio.get_running_loop().call_soon(self._follow, group_id)

    def _follow(self, group_id: str) -> None:
        self._moved.discard(group_id)
        heard = self._heard.get(group_id)
        group = self._groups.coordinator.group(group_id)
        if heard is None or self._groups.closed:
            return
        members = {} if group is None else group.roster.members
        for member_id in list(heard):
            if (group_id, member_id) in self._rounds:
                continue
            member = members.get(member_id)
            if member is None or group is None:
                del heard[member_id]
            elif group.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
                if self._monotonic() - heard[member_id] < member.session_timeout:
                    self._rejoin(group_id, member)
                else:
                    self._remove(group_id, member_id)
        if not heard:
            del self._heard[group_id]

    def _rejoin(self, group_id: str, member: Member) -> asyncio.Task[ErrorCode]:
        running = self._rounds.get((group_id, member.member_id))
        if running is not None:
            return running.task
        request = self._request(member.member_id, member.member_id, member.protocols, "")
        return self._start(group_id, member.member_id, request)

    def _request(
        self, known_id: str, member_id: str, protocols: tuple[tuple[str, bytes], ...], host: str
    ) -> JoinRequest:
        return JoinRequest(
            known_id,
            CONSUMER_PROTOCOL_TYPE,
            protocols,
            self._session_ms,
            self._session_ms,
            client_id=member_id,
            client_host=HOST + host,
            new_member_id=member_id,
        )

    def _start(self, group_id: str, member_id: str, request: JoinRequest) -> asyncio.Task[ErrorCode]:
        task = asyncio.get_running_loop().create_task(self._round(group_id, member_id, request))
        self._rounds[group_id, member_id] = _Round(request.protocols, task)
        task.add_done_callback(partial(self._round_over, group_id, member_id))
        return task

    async def _round(self, group_id: str, member_id: str, request: JoinRequest) -> ErrorCode:
        """Join and sync until the member has an assignment, or an error that joining again does not heal."""
        while True:
            joined = await self._groups.join(group_id, request)
            error = joined.error
            if not error:
                await self._groups.members.lead(group_id, member_id, joined.generation)
                error = (await self._groups.sync(group_id, SyncRequest(member_id, joined.generation))).error
            if error not in _AGAIN:
                return error
            request.member_id = member_id

    def _round_over(self, group_id: str, member_id: str, task: asyncio.Task[ErrorCode]) -> None:
        self._rounds.pop((group_id, member_id), None)
        if task.cancelled():
            return
        if task.exception() or task.result():
            # The coordinator could not: the disk is full, or the like. Not at once again.
            asyncio.get_running_loop().call_later(RETRY_DELAY, self._group_moved, group_id)
        else:
            # The next round may have begun while this one ended.
            self._group_moved(group_id)

    def _remove(self, group_id: str, member_id: str) -> None:
        async def leave() -> None:
            # When the broker stops, or the disk fails, its session ends some time.
            with suppress(BrokerError):
                await self._groups.leave(group_id, [Leaver(member_id, None)])

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _wait(self, task: asyncio.Task[ErrorCode], deadline: float) -> None:
        """Wait for a round; it goes on when the caller has no more time, or is gone."""
        await asyncio.wait([task], timeout=max(0.0, deadline - self._monotonic()))

    async def _tell(self, group_id: str, topic: str, member_id: str, deadline: float) -> LineAssignment:
        """The assignment of the present generation, once a round that is under way is over."""
        while True:
            running = self._rounds.get((group_id, member_id))
            if running is not None:
                await self._wait(running.task, deadline)
                done = running.task.done()
                error = running.task.result() if done else ErrorCode.REBALANCE_IN_PROGRESS
                if error:
                    raise self._groups.refusal(error, group_id, member_id)
            group = self._groups.coordinator.group(group_id)
            generation = -1 if group is None else group.generation
            reply = await self._groups.sync(group_id, SyncRequest(member_id, generation))
            if not reply.error:
                return LineAssignment(generation, _of_topic(reply.assignment, topic))
            if reply.error not in _AGAIN or self._monotonic() >= deadline:
                raise self._groups.refusal(reply.error, group_id, member_id)
            await asyncio.sleep(0)

    # --- small steps ---------------------------------------------------------------------------------------

    def _member(self, group_id: str, member_id: str) -> Member | None:
        group = self._groups.coordinator.group(group_id)
        return None if group is None else group.roster.members.get(member_id)

    def _check(self, group_id: str, topic: str, member_id: str, generation: int) -> Member:
        """The member, if it reads `topic` in this generation."""
        self._groups.coordinator.require_name(group_id)
        group = self._groups.coordinator.group(group_id)
        member = None if group is None else group.roster.members.get(member_id)
        if group is None or member is None or topic not in _topics(group, [member]):
            raise self._groups.refusal(ErrorCode.UNKNOWN_MEMBER_ID, group_id, member_id)
        if generation != group.generation:
            raise self._groups.refusal(ErrorCode.ILLEGAL_GENERATION, group_id, member_id)
        return member

    def _hear(self, group_id: str, member_id: str) -> None:
        heard = self._heard.get(group_id)
        if heard is not None and member_id in heard:
            heard[member_id] = self._monotonic()

    def _stale_leader(self, group_id: str) -> Member | None:
        """The leader of a stable group, if it is one of ours and its topics have grown since it assigned."""
        group = self._groups.coordinator.group(group_id)
        if group is None or group.state is not State.STABLE:
            return None
        members = group.roster.members
        leader = members.get(group.roster.leader_id or NO_MEMBER)
        if leader is None or not _is_line(leader):
            return None
        assigned = {address for member in members.values() for address in decode(member.assignment)}
        count = self._groups.members.partitions
        exist = {TopicPartition(t, p) for t in _topics(group, members.values()) for p in range(count(t))}
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
    return sorted(address.partition for address in decode(assignment) if address.topic == topic)
