"""What groups need from outside: a store, timers, topics and partitions; and what hosted members need of groups.

A test passes dictionaries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.effects import Change, StoredState
from core.vocabulary.groups import (
    Commit,
    CommitRequest,
    CommittedOffset,
    GroupView,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Resumption,
    SyncReply,
    SyncRequest,
)


class GroupStore(Protocol):
    """Durable storage of groups."""

    async def load(self) -> StoredState:
        """Return all that is stored."""
        ...

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Store `changes` in one transaction; calls take effect in their order.

        The future is done once the changes are durable, and fails with a BrokerError when they could not be stored.
        Futures are done in the order of the calls. Raises a BrokerError when too many changes wait already.
        """
        ...


class Timer(Protocol):
    """A callback that will be called."""

    def cancel(self) -> object:
        """Do not call the callback."""
        ...


class Scheduler(Protocol):
    """Timers that wake the groups; asyncio's event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` in `delay` seconds."""
        ...


class Round(NamedTuple):
    """A round that waits for the assignment of its leader: what the leader needs to assign.

    `previous` are the assignments of the generation before, by member id, as far as they are known.
    """

    protocol: str
    members: Sequence[JoinedMember]
    previous: Mapping[str, bytes]


class Coordinator(Protocol):
    """The group coordinator as hosted members see it: in this process, or on a broker of another cluster.

    Errors of a member are in the replies, also those of a coordinator that cannot be reached.
    """

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the members."""
        ...

    @property
    def closed(self) -> ErrorCode:
        """The error of all requests before the groups are loaded and after the stop; NONE in between."""
        ...

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(group_id)` whenever the group may rebalance."""

    async def name(self, group_id: str, request: JoinRequest) -> str:
        """Return the id of the member that will join: its own, or a new one, which the request carries then."""
        ...

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup: return at the end of the round."""
        ...

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """SyncGroup: return once the leader has sent the assignments."""
        ...

    async def resume(self, group_id: str, member: Resumption) -> SyncReply:
        """Continue as a member without a join: return its assignment, or why it has to join."""
        ...

    async def beat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Heartbeat: extend the session of a member."""
        ...

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """LeaveGroup of one or more members. Raises BrokerError for the whole request."""
        ...

    def to_lead(self, group_id: str, member_id: str, generation: int) -> Round | None:
        """Return the round that waits for the assignment of this member; None if it leads none."""
        ...


class Offsets(Protocol):
    """The committed offsets of groups, as positions need them. See `OffsetStore`."""

    async def put(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Commit all or none, as a member."""
        ...

    async def put_by_hand(self, group_id: str, commits: Sequence[Commit]) -> list[ErrorCode]:
        """Commit all or none, in a group without members."""
        ...

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield (topic, partition, committed offset)."""
        ...

    async def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Delete committed offsets; return an error for each."""
        ...


class Describes(Protocol):
    """Shows groups."""

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group, or None if there is none."""
        ...


def partition_count(broker: Logs, topic: str) -> int:
    """Return the number of partitions of a topic, 0 if it does not exist."""
    try:
        return broker.topics.get(topic).partitions
    except BrokerError:
        return 0
