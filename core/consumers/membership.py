"""Keeps managed consumers in their groups: joins, assigns, heartbeats, joins again.

Theory. A managed consumer is a member like any other, but it sits beside the coordinator. It hears of a rebalance
from the coordinator (`watchers`) at once, and it cannot be slow: a round never waits for it longer than the grace
that it gives its client to acknowledge the batch under way. One task a consumer runs while it joins, none while
it is settled; heartbeats come from one loop over all consumers.

What a round does to a consumer:

    the group is in a new round     what is outstanding may still be acknowledged, under the old generation; then
                                    the consumer joins again under the id that it has
    the round is over               partitions that stayed keep position and outstanding batch; new ones begin at
                                    the committed offset, or where `start` says
    the group does not know it      (session over, removed by an operator) it joins as a new member; positions
                                    count no more, only what is committed does
    another took its instance id    it is fenced: polls are refused, and it never fights for the id

Positions are kept over a round only from one generation to the very next: then nobody else can have owned the
partition in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from core.consumers.state import Consumer
from core.consumers.store import ConsumerStore
from core.consumers.topic_pattern import compile_pattern, matches
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.assignor import decode
from core.groups.groups import Groups
from core.groups.http_members import offers
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE
from core.types import TopicPartition
from core.vocabulary.consumers import Subscription
from core.vocabulary.groups import NO_MEMBER, JoinRequest, Leaver, State, SyncRequest

log = logging.getLogger(__name__)

# What DescribeGroups shows where other members have an address.
CLIENT_HOST = "managed"
# Seconds before a join that the coordinator could not serve is tried again.
RETRY_DELAY = 0.1
# Heartbeats in one session: as many as clients send by custom.
HEARTBEATS_PER_SESSION = 3
_JOIN_AGAIN = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.MEMBER_ID_REQUIRED}
)


class Membership:
    """The membership of all managed consumers.

    `place` says where a consumer begins in a partition that is new to it (None: not known yet); `before_leaving`
    is awaited before partitions are given up.
    """

    def __init__(
        self,
        broker: Logs,
        groups: Groups,
        store: ConsumerStore,
        place: Callable[[Consumer, TopicPartition], int | None],
        before_leaving: Callable[[Consumer], Awaitable[None]],
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._store = store
        self._place = place
        self._before_leaving = before_leaving
        self._monotonic = broker.clock.monotonic
        self._closed = False
        # The topics of each pattern, as of one version of the metadata.
        self._matched: dict[str, tuple[str, ...]] = {}
        self._matched_at = -1

    def close(self) -> None:
        """The broker stops: nobody joins any more, and nobody leaves either."""
        self._closed = True

    # --- what consumers want -------------------------------------------------------------------------------

    def topics_of(self, subscription: Subscription) -> tuple[str, ...]:
        """The topics that a subscription means now."""
        if subscription.pattern is None:
            return subscription.topics
        if self._matched_at != self._broker.changes.version:
            self._matched_at = self._broker.changes.version
            self._matched.clear()
        found = self._matched.get(subscription.pattern)
        if found is None:
            compiled = compile_pattern(subscription.pattern, self._broker.config.max_pattern_bytes)
            found = tuple(topic.name for topic in self._broker.topics.list() if matches(compiled, topic.name))
            self._matched[subscription.pattern] = found
        return found

    def start(self, consumer: Consumer) -> None:
        """Join, or join again, unless that is under way."""
        if consumer.joining is None and not self._closed and not consumer.gone:
            consumer.joining = asyncio.get_running_loop().create_task(self._join(consumer))

    def check(self, consumer: Consumer) -> None:
        """Heartbeat, and join again if the group says so."""
        if not consumer.subscription.joins or consumer.joining is not None or consumer.fenced:
            return
        if consumer.generation < 0:
            if consumer.failure is None:
                self.start(consumer)
            return
        error = self._groups.heartbeat(
            consumer.group_id, consumer.member_id, consumer.generation, consumer.options.group_instance_id
        )
        if error is ErrorCode.NONE:
            self._heard(consumer)
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self._fence(consumer)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.start(consumer)
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose_everything(consumer)
            self.start(consumer)
        elif not error.retriable:
            self.start(consumer)

    def review(self, consumer: Consumer) -> None:
        """Topics have come, grown or gone: join again where that concerns the consumer."""
        if not consumer.subscription.joins or consumer.joining is not None or consumer.generation < 0:
            return
        leads = self._leads(consumer)
        if self.topics_of(consumer.subscription) != consumer.joined_topics or (
            leads and consumer.led != self._partitions_of_group(consumer.group_id)
        ):
            self.start(consumer)

    async def leave(self, consumer: Consumer) -> None:
        """Leave the group, whatever is under way."""
        if consumer.joining is not None:
            consumer.joining.cancel()
            await asyncio.gather(consumer.joining, return_exceptions=True)
        await self._quit(consumer)

    async def _quit(self, consumer: Consumer) -> None:
        if consumer.known and not consumer.fenced and not self._closed:
            leaver = Leaver(consumer.member_id, consumer.options.group_instance_id)
            with suppress(BrokerError):
                await self._groups.leave(consumer.group_id, [leaver])
        self._lose_everything(consumer)

    def restore(self, consumer: Consumer) -> None:
        """Go on after a restart: as the member that it was, without a word to the others where that can be."""
        if not consumer.subscription.joins:
            consumer.assigned = consumer.subscription.assignments
            return
        group = self._groups.coordinator.group(consumer.group_id)
        member = None if group is None else group.roster.members.get(consumer.member_id)
        if group is None or member is None:
            self._lose_everything(consumer)
            self.start(consumer)
            return
        consumer.known = True
        if group.state is State.STABLE:
            consumer.joined_topics = self.topics_of(consumer.subscription)
            consumer.led = self._partitions_of_group(consumer.group_id) if self._leads(consumer) else None
            self._adopt(consumer, group.generation, decode(member.assignment))
        else:
            self.start(consumer)

    # --- joining -------------------------------------------------------------------------------------------

    async def _join(self, consumer: Consumer) -> None:
        try:
            await self._linger(consumer)
            await self._before_leaving(consumer)
            while not (self._closed or await self._round(consumer)):
                pass
        except BrokerError as error:
            consumer.failure = error
            await self._quit(consumer)
        finally:
            consumer.joining = None
            self._broker.purgatory.notify(consumer)
        # The next round may have begun while this one ended; nobody has told us, for we were joining.
        self.check(consumer)

    async def _linger(self, consumer: Consumer) -> None:
        """Give the client the time to acknowledge what it has in hand."""
        grace = self._broker.config.consumer_revoke_grace_ms
        patience = min(grace, consumer.options.rebalance_timeout_ms // 2) / 1000
        if not consumer.outstanding or consumer.advancing or consumer.generation < 0 or patience <= 0:
            return
        consumer.lingering = asyncio.Event()
        try:
            await asyncio.wait_for(consumer.lingering.wait(), patience)
        except TimeoutError:
            pass
        finally:
            consumer.lingering = None

    async def _round(self, consumer: Consumer) -> bool:
        """One round; whether the consumer is settled after it. Raises what ends its membership."""
        options = consumer.options
        topics = self.topics_of(consumer.subscription)
        request = JoinRequest(
            consumer.member_id if consumer.known else NO_MEMBER,
            CONSUMER_PROTOCOL_TYPE,
            offers(topics, options.assignor),
            options.session_timeout_ms,
            options.rebalance_timeout_ms,
            consumer.name,
            CLIENT_HOST,
            options.group_instance_id,
            new_member_id=consumer.member_id,
            can_skip_assignment=True,
        )
        consumer.known = True
        joined = await self._groups.join(consumer.group_id, request)
        if joined.error:
            return await self._refused(consumer, joined.error)
        leads = joined.leader_id == joined.member_id
        if leads and not joined.skip_assignment:
            await self._groups.members.lead(consumer.group_id, joined.member_id, joined.generation)
        synced = await self._groups.sync(
            consumer.group_id,
            SyncRequest(joined.member_id, joined.generation, (), options.group_instance_id),
        )
        if synced.error:
            return await self._refused(consumer, synced.error)
        consumer.joined_topics = topics
        consumer.led = self._partitions_of_group(consumer.group_id) if leads else None
        self._adopt(consumer, joined.generation, decode(synced.assignment))
        # The subscription may have changed while the round went on.
        return topics == self.topics_of(consumer.subscription)

    async def _refused(self, consumer: Consumer, error: ErrorCode) -> bool:
        if self._closed:
            return True
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._fence(consumer)
            return True
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose_everything(consumer)
            return False
        if error in _JOIN_AGAIN:
            return False
        if error.retriable:
            await asyncio.sleep(RETRY_DELAY)
            return False
        raise self._groups.refusal(error, consumer.group_id, consumer.member_id)

    def _adopt(self, consumer: Consumer, generation: int, assigned: Iterable[TopicPartition]) -> None:
        """The assignment of a generation is in force."""
        owned = set(assigned)
        follows = 0 <= consumer.generation <= generation <= consumer.generation + 1
        kept = owned & set(consumer.assigned) if follows else set()
        lost = consumer.positions.keys() - kept
        consumer.replace_partitions(kept, owned)
        for address in owned - kept:
            position = self._place(consumer, address)
            if position is not None:
                consumer.move(address, position)
        moved = bool(lost or consumer.unsaved) or consumer.generation != generation
        consumer.generation = generation
        consumer.failure = None
        self._heard(consumer)
        if moved:
            self._store.progress(consumer, lost - consumer.positions.keys())
        self._broker.purgatory.notify(consumer)

    # --- small steps ---------------------------------------------------------------------------------------

    def new_member_id(self, consumer: Consumer) -> str:
        """An id that nobody has, in the form that Kafka gives them."""
        name = consumer.options.group_instance_id or consumer.name
        return f"{name}-{self._broker.clock.uuid4()}"

    def _heard(self, consumer: Consumer) -> None:
        interval = consumer.options.session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION
        consumer.next_heartbeat = self._monotonic() + interval

    def _fence(self, consumer: Consumer) -> None:
        log.info(
            "group %r: consumer %r is fenced: another member has its instance id %r",
            consumer.group_id,
            consumer.name,
            consumer.options.group_instance_id,
        )
        consumer.fenced = True
        consumer.replace_partitions((), ())
        self._broker.purgatory.notify(consumer)

    def _lose_everything(self, consumer: Consumer) -> None:
        """The group no longer counts on this member: it owns nothing, and comes back under another id."""
        lost = list(consumer.positions)
        consumer.replace_partitions((), ())
        consumer.generation = -1
        consumer.known = False
        consumer.member_id = self.new_member_id(consumer)
        if not consumer.gone:
            self._store.progress(consumer, lost)

    def _leads(self, consumer: Consumer) -> bool:
        group = self._groups.coordinator.group(consumer.group_id)
        return group is not None and group.roster.leader_id == consumer.member_id

    def _partitions_of_group(self, group_id: str) -> dict[str, int]:
        """The topics that members of the group read, with the number of partitions of those that exist."""
        group = self._groups.coordinator.group(group_id)
        topics = (group.subscribed_topics if group is not None else None) or ()
        return {topic: count for topic in topics if (count := self._groups.members.partitions(topic))}
