"""Keep one managed consumer in its group: join, assign, heartbeat, join again.

Theory. A managed consumer is a member like any other, but the broker hosts it (`core/groups/hosted.py` has the join
loop; this is its policy). It cannot be slow: a rebalance waits for it no longer than the grace in which its client
may acknowledge the current batch. One loop over all consumers sends the heartbeats.

What a rebalance does to a member:

    the group rebalances            `before_rejoin` is awaited, still under the old generation; then the member joins
                                    again under the id that it has
    the rebalance is over           `assigned` receives the partitions, and whether the new generation follows the
                                    old one directly: only then no other member can have owned them in between
    the group does not know it      (session expired, removed by an operator) `lost` is called; the member joins again
                                    under a new id
    another took its instance id    `revoked` is called; the member is fenced and does not join again

A group of another cluster gives the member its id: `named` is called, so that the id is stored before the member
joins under it. After a restart such a member asks first whether its group still knows it in its generation
(`resumes`): then it continues, and no other member notices. A join would begin a rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from core.clock import Clock
from core.consumers.interfaces import MemberGroups
from core.errors import BrokerError, ErrorCode
from core.groups.hosted import JOIN_AGAIN, Then, offers
from core.types import TopicPartition
from core.vocabulary.consumers import ConsumerOptions, Subscription
from core.vocabulary.groups import (
    NO_MEMBER,
    Commit,
    CommitRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    Resumption,
    SyncReply,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE, assigned_partitions

log = logging.getLogger(__name__)

# DescribeGroups shows this where other members have an address.
CLIENT_HOST = "managed"
# Heartbeats per session timeout: as many as Kafka's clients send by default.
HEARTBEATS_PER_SESSION = 3


class Membership:
    """The membership of one managed consumer, a `HostedMember`. Use it on the event loop only.

    `subscription` and `topics_of` return what the member wants to read now. The other callbacks report what happens:
    `named` says that the group has given the member its id; `before_rejoin` is awaited before partitions are given
    up; `bring(partitions)` is awaited before `assigned(partitions, follows, new_generation)` puts an assignment in
    force; `revoked` takes all partitions away; `lost` does so too, and the group has forgotten the member; `changed`
    says that waiting polls should look again.
    """

    leads = True
    syncs = True

    __slots__ = (
        "_assigned",
        "_before_rejoin",
        "_bring",
        "_changed",
        "_clock",
        "_closed",
        "_failure",
        "_group_id",
        "_groups",
        "_heartbeat_at",
        "_joined_topics",
        "_joining",
        "_known",
        "_led",
        "_lost",
        "_name",
        "_named",
        "_options",
        "_removed",
        "_resuming",
        "_revoked",
        "_subscription",
        "_topics_of",
        "fenced",
        "generation",
        "member_id",
    )

    def __init__(
        self,
        groups: MemberGroups,
        clock: Clock,
        group_id: str,
        name: str,
        options: ConsumerOptions,
        *,
        subscription: Callable[[], Subscription],
        topics_of: Callable[[Subscription], tuple[str, ...]],
        named: Callable[[], None],
        bring: Callable[[Collection[TopicPartition]], Awaitable[None]],
        before_rejoin: Callable[[], Awaitable[None]],
        assigned: Callable[[set[TopicPartition], bool, bool], None],
        revoked: Callable[[], None],
        lost: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._group_id = group_id
        self._name = name
        self._options = options
        self._subscription = subscription
        self._topics_of = topics_of
        self._named = named
        self._bring = bring
        self._before_rejoin = before_rejoin
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost
        self._changed = changed
        self.member_id = self._new_member_id()
        # The generation whose assignment is in force; −1 before there is one.
        self.generation = -1
        # Whether another member has taken over the instance id.
        self.fenced = False
        # Whether the group knows the member id.
        self._known = False
        # The topics of the last join, and the partition counts of the group's topics if this member led.
        self._joined_topics: tuple[str, ...] = ()
        self._led: dict[str, int] | None = None
        # Whether the join loop runs.
        self._joining = False
        # Whether the join loop first asks if the group still knows the member of the run before.
        self._resuming = False
        self._heartbeat_at = 0.0
        # Why the last attempt to join failed; the next poll raises it.
        self._failure: BrokerError | None = None
        # The broker stops: the member neither joins nor leaves.
        self._closed = False
        # The consumer was deleted: the member does not join again.
        self._removed = False

    # --- state ---------------------------------------------------------------------------------------------

    @property
    def joined(self) -> bool:
        """Whether the assignment of a generation is in force."""
        return self.generation >= 0

    @property
    def joining(self) -> bool:
        """Whether a join is under way."""
        return self._joining

    @property
    def heartbeat_due(self) -> bool:
        """Whether it is time for the next heartbeat."""
        return self._heartbeat_at <= self._clock.monotonic()

    def require_unfenced(self) -> None:
        """Raise FENCED_INSTANCE_ID if another member has taken over the instance id."""
        if self.fenced:
            raise self._groups.refusal(ErrorCode.FENCED_INSTANCE_ID, self._group_id, self.member_id)

    def raise_failure(self) -> None:
        """Raise, once, the error with which the last attempt to join ended."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # --- calls ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join, or join again, unless a join is under way."""
        if not self._closed and not self._removed:
            self._joining = True
            self._groups.hosted.add(self)
            self._groups.hosted.start(self)

    def check(self) -> None:
        """Send a heartbeat, and join again if the group asks for it."""
        if self.joining or self.fenced or not self._subscription().joins:
            return
        if not self.joined:
            if self._failure is None:
                self.start()
            return
        error = self._groups.heartbeat(
            self._group_id, self.member_id, self.generation, self._options.group_instance_id
        )
        if error is ErrorCode.NONE:
            self._schedule_heartbeat()
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.start()
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
            self.start()
        elif not error.retriable:
            self.start()

    def review(self) -> None:
        """Join again if topics that concern the member were created, deleted or got more partitions."""
        subscription = self._subscription()
        if not subscription.joins or self.joining or not self.joined:
            return
        leads = self._leads()
        if self._topics_of(subscription) != self._joined_topics or (
            leads and self._led != self._partitions_of_group()
        ):
            self.start()

    def resubscribe(self) -> None:
        """Join for a subscription that is new or has changed. A fenced or failed member tries again."""
        if self._failure is None and not self.fenced and (self.joined or self.joining):
            self.review()
        else:
            self._failure, self.fenced = None, False
            self.start()

    async def commit(self, commits: Sequence[Commit]) -> list[ErrorCode]:
        """Commit offsets as this member; one error for each, in order, once they are durable."""
        return await self._groups.commit(
            self._group_id,
            CommitRequest(commits, self.member_id, max(self.generation, 0), self._options.group_instance_id),
        )

    async def leave(self, *, removed: bool = False) -> None:
        """Leave the group, also in the middle of a join. With `removed` the member never joins again."""
        self._removed = self._removed or removed
        await self.stop()
        await self._quit()

    def restore(self, member_id: str, generation: int) -> None:
        """Continue after a restart as the member with this id, without a rebalance if the group is stable."""
        self.member_id, self.generation = member_id, generation
        standing = self._groups.standing(self._group_id, member_id)
        if standing is None:
            self._known = True
            self._resuming = generation >= 0
            self.start()
        elif not standing.known:
            self._forget()
            self.start()
        else:
            self._known = True
            if standing.stable:
                self._continue(standing.generation, standing.assignment)
            else:
                self.start()

    def _continue(self, generation: int, assignment: bytes) -> None:
        """Continue as the member of the run before, without a join."""
        self._joined_topics = self._topics_of(self._subscription())
        self._led = self._partitions_of_group() if self._leads() else None
        self._groups.hosted.add(self)
        self._adopt(generation, assignment)

    def close(self) -> None:
        """Stay the member that it is while the broker stops: neither join nor leave any more."""
        self._closed = True

    async def stop(self) -> None:
        """Cancel a join that is under way, and wait for its end."""
        await self._groups.hosted.stop(self)

    # --- joining -------------------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        """See `HostedMember`."""
        return self._group_id

    def resumes(self) -> Resumption | None:
        """See `HostedMember`."""
        if not self._resuming or self._closed:
            return None
        return Resumption(self.member_id, self.generation, self._options.group_instance_id)

    async def resumed(self, reply: SyncReply) -> Then:
        """See `HostedMember`. A member that cannot continue joins, under the id that the group knows."""
        if self._closed:
            return Then.DONE
        error = reply.error
        if error.retriable and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            return Then.LATER
        self._resuming = False
        if error is ErrorCode.NONE:
            await self._bring(assigned_partitions(reply.assignment))
            self._continue(self.generation, reply.assignment)
            return Then.DONE
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
            return Then.DONE
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        return Then.AGAIN

    def named(self, member_id: str) -> None:
        """See `HostedMember`."""
        self.member_id = member_id
        self._named()

    async def before_join(self) -> None:
        """See `HostedMember`."""
        await self._before_rejoin()

    def request(self) -> JoinRequest | None:
        """See `HostedMember`. The broker joins no more while it stops."""
        if self._closed:
            return None
        options = self._options
        self._joined_topics = self._topics_of(self._subscription())
        member_id = self.member_id if self._known else NO_MEMBER
        self._known = True
        return JoinRequest(
            member_id,
            CONSUMER_PROTOCOL_TYPE,
            offers(self._joined_topics, options.assignor),
            options.session_timeout_ms,
            options.rebalance_timeout_ms,
            self._name,
            CLIENT_HOST,
            options.group_instance_id,
            new_member_id=self.member_id,
            can_skip_assignment=True,
        )

    async def assigned(self, joined: JoinReply, assignment: bytes) -> Then:
        """See `HostedMember`. Join again if the subscription has changed during the rebalance."""
        self.member_id = joined.member_id
        self._led = self._partitions_of_group() if joined.leader_id == joined.member_id else None
        await self._bring(assigned_partitions(assignment))
        self._adopt(joined.generation, assignment)
        unchanged = self._joined_topics == self._topics_of(self._subscription())
        return Then.DONE if unchanged else Then.AGAIN

    def refused(self, error: ErrorCode) -> Then:
        """See `HostedMember`. An error that another join does not heal ends the membership."""
        if self._closed:
            return Then.DONE
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
            return Then.DONE
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
            return Then.AGAIN
        if error in JOIN_AGAIN:
            return Then.AGAIN
        return Then.LATER if error.retriable else Then.FAIL

    async def failed(self, error: BrokerError) -> None:
        """See `HostedMember`. The next poll raises the error."""
        self._failure = error
        await self._quit()

    def ended(self) -> None:
        """See `HostedMember`."""
        self._joining = False
        self._changed()

    def group_moved(self) -> None:
        """See `HostedMember`. The answer to a heartbeat shows whether to rejoin."""
        self.check()

    def _adopt(self, generation: int, assignment: bytes) -> None:
        """Put the assignment of a generation in force."""
        follows = 0 <= self.generation <= generation <= self.generation + 1
        before, self.generation = self.generation, generation
        self._failure = None
        self._schedule_heartbeat()
        self._assigned(set(assigned_partitions(assignment)), follows, before != generation)

    async def _quit(self) -> None:
        if self._known and not self.fenced and not self._closed:
            leaver = Leaver(self.member_id, self._options.group_instance_id)
            with suppress(BrokerError):
                await self._groups.leave(self._group_id, [leaver])
        self._groups.hosted.remove(self)
        self._forget()

    # --- small steps ---------------------------------------------------------------------------------------

    def _new_member_id(self) -> str:
        """Return an unused id in the form that Kafka gives them."""
        return f"{self._options.group_instance_id or self._name}-{self._clock.uuid4()}"

    def _schedule_heartbeat(self) -> None:
        interval = self._options.session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION
        interval = min(interval, self._groups.heartbeat_seconds)
        self._heartbeat_at = self._clock.monotonic() + interval

    def _fence(self) -> None:
        log.info(
            "group %r: consumer %r is fenced: another member has its instance id %r",
            self._group_id,
            self._name,
            self._options.group_instance_id,
        )
        self.fenced = True
        self._revoked()

    def _forget(self) -> None:
        """The group does not know this member any more: it owns nothing and will join under another id."""
        self.generation = -1
        self._known = False
        self.member_id = self._new_member_id()
        self._lost()

    def _leads(self) -> bool:
        standing = self._groups.standing(self._group_id, self.member_id)
        return standing is not None and standing.leads

    def _partitions_of_group(self) -> dict[str, int]:
        """The topics that members of the group read, with the partition count of those that exist."""
        standing = self._groups.standing(self._group_id, self.member_id)
        topics = () if standing is None else standing.topics
        return {topic: count for topic in topics if (count := self._groups.hosted.partitions(topic))}
