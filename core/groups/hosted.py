"""Members that the broker hosts: one join loop, with a policy for each kind of member.

Theory. A Kafka client joins, assigns if it is the leader, syncs, sends heartbeats, and rejoins when the group
rebalances. Some clients cannot do that: a shell script, a person with netcat, a consumer that exists only as polls
over HTTP. For them the broker runs the loop, with one task per member while it joins and none while it is settled:

    before_join ──► join ──► lead: assign for all, if elected ──► sync ──► assigned ──► settled
                     ▲                                              │                     │
                     ├── refused: again, or again later ────────────┘                     │
                     └──────────────────── group_moved: the group rebalances ◄────────────┘

What differs is the policy (`HostedMember`) of each kind:

                      HTTP members             line members              managed consumers
    heartbeats        the client               the client's commands     the broker
    sync, rejoin      the client               the broker                the broker
    is kept for       a session after the      a session after the       its time to live after the last
                      client's last request    client's last command     request of its client
    outstanding       the client decides       the client decides        may be acknowledged for a grace
    records                                                              before the member rejoins
    after a restart   the client continues     the broker finds it by    the broker finds it in the table
                                               its host                  of consumers

A hosted member never delays a round: the coordinator reports a rebalance to the runtime at once (`_group_moved`), and
a member that leads assigns at once, with the assignors of Kafka's own clients.

The coordinator may be on a broker of another cluster. Then a member of an earlier run begins with `resume`: if the
group still knows it in its generation, it continues, and no other member notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Protocol

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.assignor import assign
from core.groups.interfaces import Coordinator, partition_count
from core.groups.refusals import refusal
from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.vocabulary.groups import (
    ASSIGNORS,
    JoinReply,
    JoinRequest,
    Leaver,
    Resumption,
    SyncReply,
    SyncRequest,
)

log = logging.getLogger(__name__)

# Seconds before a join that the coordinator could not serve is tried again.
RETRY_DELAY = 0.1
# Errors of join and sync after which a member joins again at once, under the member id that it has.
JOIN_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
# Subscriptions of version 0 name no owned partitions (KIP-429 adds them): a hosted member gives all up when it joins.
_SUBSCRIPTION_VERSION = 0


class Then(Enum):
    """What the join loop does next."""

    DONE = auto()
    AGAIN = auto()
    # Join again after RETRY_DELAY.
    LATER = auto()
    # End with the error.
    FAIL = auto()


class HostedMember(Protocol):
    """The policy of one hosted member. Compared by identity."""

    @property
    def group_id(self) -> str:
        """Return the id of the member's group."""
        ...

    @property
    def leads(self) -> bool:
        """Return whether the broker assigns if the member is elected leader."""
        ...

    @property
    def syncs(self) -> bool:
        """Return whether the broker fetches the member's assignment; if not, the client does."""
        ...

    def resumes(self) -> Resumption | None:
        """Return the member of an earlier run that continues without a join; None to join."""
        ...

    async def resumed(self, reply: SyncReply) -> Then:
        """Handle the answer to `resumes`: DONE if the member continues, AGAIN to join, LATER to ask again."""
        ...

    def named(self, member_id: str) -> None:
        """Take the id that the group has given the member; `request` joins with it next."""
        ...

    async def before_join(self) -> None:
        """Prepare to give up all partitions. Called once per run of the loop. Raises BrokerError to end it."""
        ...

    def request(self) -> JoinRequest | None:
        """Return the next join, or None to end the loop."""
        ...

    async def assigned(self, joined: JoinReply, assignment: bytes) -> Then:
        """Adopt the new generation. `assignment` is empty if the client syncs."""
        ...

    def refused(self, error: ErrorCode) -> Then:
        """Handle an error of join or sync."""
        ...

    async def failed(self, error: BrokerError) -> None:
        """Handle the error that ends the loop. The loop still counts as running."""
        ...

    def ended(self) -> None:
        """Handle the end of the loop, whether it succeeded, failed or was canceled."""
        ...

    def group_moved(self) -> None:
        """Handle a rebalance of the group, if one is under way. Called while the loop does not run."""
        ...


def offers(topics: Iterable[str], assignor: str = "") -> tuple[tuple[str, bytes], ...]:
    """Return the protocols of a member for which the broker assigns, `assignor` first, with its metadata.

    Raises UNSUPPORTED_ASSIGNOR.
    """
    if assignor and assignor not in ASSIGNORS:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {assignor!r}; there are: {', '.join(ASSIGNORS)}.",
            assignors=list(ASSIGNORS),
        )
    metadata = encode_subscription(Subscription(sorted(set(topics))), _SUBSCRIPTION_VERSION)
    return tuple((name, metadata) for name in sorted(ASSIGNORS, key=lambda name: name != assignor))


class HostedMembers:
    """The join loops of all hosted members. Used on the event loop only."""

    def __init__(self, coordinator: Coordinator, broker: Logs) -> None:
        self._coordinator = coordinator
        self._broker = broker
        # Members that rejoin when their group rebalances, by group.
        self._members: dict[str, dict[HostedMember, None]] = {}
        self._running: dict[HostedMember, asyncio.Task[BrokerError | None]] = {}
        # Groups whose members are called in this turn of the event loop.
        self._moved: set[str] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        coordinator.watch(self._group_moved)

    # --- members -----------------------------------------------------------------------------------------------

    def add(self, member: HostedMember) -> None:
        """Call `member.group_moved` whenever its group rebalances, from now on and once soon."""
        self._members.setdefault(member.group_id, {})[member] = None
        self._group_moved(member.group_id)

    def remove(self, member: HostedMember) -> None:
        """Stop calling a member. A loop that runs continues."""
        members = self._members.get(member.group_id, {})
        members.pop(member, None)
        if not members:
            self._members.pop(member.group_id, None)

    def start(self, member: HostedMember) -> asyncio.Task[BrokerError | None]:
        """Run the join loop, unless it runs already. The task returns the error that ended it, or None."""
        task = self._running.get(member)
        if task is None:
            task = self._running[member] = self._coordinator.loop.create_task(self._run(member))
            task.add_done_callback(partial(self._ended, member))
        return task

    def running(self, member: HostedMember) -> asyncio.Task[BrokerError | None] | None:
        """Return the task of the member's join loop, or None if it does not run."""
        return self._running.get(member)

    async def stop(self, member: HostedMember) -> None:
        """Cancel the member's join loop and wait for its end."""
        task = self._running.get(member)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def leave(self, group_id: str, member_id: str) -> None:
        """Let a member leave its group, in the background."""
        task = self._coordinator.loop.create_task(self._leave(group_id, member_id))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, group_id: str, member_id: str) -> None:
        # If the broker stops or the disk fails, the member's session expires later.
        with suppress(BrokerError):
            await self._coordinator.leave(group_id, [Leaver(member_id)])

    # --- the join loop -----------------------------------------------------------------------------------------

    async def _run(self, member: HostedMember) -> BrokerError | None:
        error: BrokerError | None = None
        try:
            if not await self._resume(member):
                await member.before_join()
                error = await self._settle(member)
        except BrokerError as refused:
            error = refused
        if error is not None:
            await member.failed(error)
        return error

    async def _resume(self, member: HostedMember) -> bool:
        """Continue as the member of an earlier run; return False if the member has to join."""
        while (wanted := member.resumes()) is not None:
            then = await member.resumed(await self._coordinator.resume(member.group_id, wanted))
            if then is Then.DONE:
                return True
            if then is not Then.LATER:
                return False
            await asyncio.sleep(RETRY_DELAY)
        return False

    async def _settle(self, member: HostedMember) -> BrokerError | None:
        """Join and sync until the policy is satisfied or gives up; return the error if it gives up."""
        group_id = member.group_id
        while (request := member.request()) is not None:
            joined = await self._coordinator.join(group_id, request)
            if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
                member.named(joined.member_id)
                continue
            error: ErrorCode = joined.error
            assignment = b""
            if not error and member.leads:
                await self.lead(group_id, joined.member_id, joined.generation)
            if not error and member.syncs:
                wanted = SyncRequest(joined.member_id, joined.generation, (), request.group_instance_id)
                synced = await self._coordinator.sync(group_id, wanted)
                error, assignment = synced.error, synced.assignment
            then = member.refused(error) if error else await member.assigned(joined, assignment)
            if then is Then.DONE:
                return None
            if then is Then.FAIL:
                return refusal(error, group_id, joined.member_id)
            if then is Then.LATER:
                await asyncio.sleep(RETRY_DELAY)
        return None

    def _ended(self, member: HostedMember, task: asyncio.Task[BrokerError | None]) -> None:
        del self._running[member]
        member.ended()
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            log.error("group %r: a hosted member could not join", member.group_id, exc_info=fault)
        if fault is None and task.result() is None:
            # The next round may have begun before this one ended.
            self._coordinator.loop.call_soon(self._follow_one, member)
        else:
            # Not at once: for example, the disk may be full.
            self._coordinator.loop.call_later(RETRY_DELAY, self._follow_one, member)

    async def lead(self, group_id: str, member_id: str, generation: int) -> None:
        """Assign for the leader, if this member is the leader and the group waits for its assignment."""
        waiting = self._coordinator.to_lead(group_id, member_id, generation)
        if waiting is None:
            return
        assignments = assign(waiting.protocol, waiting.members, self.partitions, waiting.previous)
        reply = await self._coordinator.sync(group_id, SyncRequest(member_id, generation, assignments))
        if reply.error:
            # A member joined or left meanwhile; the leader of the next round assigns.
            log.info("group %r: the assignment of generation %d came late", group_id, generation)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        return partition_count(self._broker, topic)

    # --- rebalances --------------------------------------------------------------------------------------------

    def _group_moved(self, group_id: str) -> None:
        """Call the members of a group in the next turn of the event loop."""
        if group_id in self._members and group_id not in self._moved:
            self._moved.add(group_id)
            self._coordinator.loop.call_soon(self._follow, group_id)

    def _follow(self, group_id: str) -> None:
        self._moved.discard(group_id)
        for member in list(self._members.get(group_id, ())):
            self._follow_one(member)

    def _follow_one(self, member: HostedMember) -> None:
        known = member in self._members.get(member.group_id, ())
        if known and member not in self._running and not self._coordinator.closed:
            member.group_moved()
