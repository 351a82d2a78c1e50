"""The state of one managed consumer in memory. `store` keeps the durable part of it.

The life of a record here:

    position ──poll──► outstanding ──its token is acknowledged──► committed in the group; the position moves past it

`positions` never pass what is outstanding: a poll without the token, a lost answer and a restart all deliver the same
ranges again. In a rebalance a partition that the consumer keeps also keeps its position and its outstanding range. A
partition that it loses takes both along; the outstanding range becomes `revoked`, and the next owner begins at the
committed offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import inf

from core.consumers.membership import Membership
from core.types import TopicPartition
from core.vocabulary.consumers import (
    NOT_ASSIGNED,
    NOT_SUBSCRIBED,
    ConsumerInfo,
    ConsumerOptions,
    PartitionPosition,
    Range,
    Subscription,
    illegal_state,
)
from core.vocabulary.groups import Cut


class Consumer:
    """The state of one managed consumer. Change it on the event loop only.

    `membership_of` makes the consumer's membership; it is called once.
    """

    __slots__ = (
        "advancing",
        "ahead",
        "assigned",
        "created_ms",
        "deadline",
        "gone",
        "group_id",
        "lingering",
        "membership",
        "moved",
        "name",
        "next_auto_commit",
        "nonce",
        "options",
        "outstanding",
        "paused",
        "paused_all",
        "polls",
        "positions",
        "revoked",
        "sequence",
        "settling",
        "staged",
        "stored_deadline",
        "subscription",
        "turn",
        "turn_index",
        "unsaved",
    )

    def __init__(
        self,
        group_id: str,
        name: str,
        nonce: str,
        subscription: Subscription,
        options: ConsumerOptions,
        created_ms: int,
        membership_of: Callable[[Consumer], Membership],
    ) -> None:
        self.group_id = group_id
        self.name = name
        # Begins every token, so that no token of a deleted consumer with the same name is valid here.
        self.nonce = nonce
        self.subscription = subscription
        self.options = options
        self.created_ms = created_ms
        self.membership = membership_of(self)
        # Whether it comes from another cluster, and has not been assigned anything in this one yet.
        self.moved = False
        # --- reading
        self.assigned: tuple[TopicPartition, ...] = ()
        self.positions: dict[TopicPartition, int] = {}
        # Partitions of a cluster whose position lies beyond the high watermark, with the time when that was noticed.
        self.ahead: dict[TopicPartition, float] = {}
        # Partitions whose position is not stored yet, in the order of their changes.
        self.unsaved: dict[TopicPartition, None] = {}
        self.paused: set[TopicPartition] = set()
        self.paused_all = False
        # Number of the newest batch.
        self.sequence = 0
        self.outstanding: dict[TopicPartition, Range] = {}
        # Whether the next request acknowledges what is outstanding (polls with `advance`).
        self.advancing = False
        # Ranges of the newest batch whose partitions were given up before they were acknowledged.
        self.revoked: tuple[Range, ...] = ()
        # What holds the consumer for a decision that acknowledges its batch.
        self.staged: object | None = None
        # Ranges that a decision acknowledges which is being stored.
        self.settling: tuple[Range, ...] = ()
        # Set to end the grace in which the client may acknowledge before a rebalance; None outside of it.
        self.lingering: asyncio.Event | None = None
        # Index in `assigned` of the partition that the next sweep visits first.
        self.turn_index = 0
        self.next_auto_commit = inf
        # --- life, in seconds of the monotonic clock
        self.deadline = inf
        self.stored_deadline = inf
        # Requests that use the consumer now; it does not expire before they end.
        self.polls = 0
        # Rises with each poll: the newest one is served.
        self.turn = 0
        self.gone = False

    # --- tokens --------------------------------------------------------------------------------------------

    @property
    def token(self) -> str | None:
        """The token of the outstanding batch; None if there is none."""
        return self.token_of(self.sequence) if self.outstanding else None

    def token_of(self, sequence: int) -> str:
        """Return the token of the batch with this number."""
        return f"{self.nonce}.{sequence}"

    def sequence_of(self, token: str) -> int | None:
        """Return the number of a token's batch; None if this consumer has delivered no such batch."""
        nonce, _, number = token.partition(".")
        if nonce != self.nonce or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return None
        return int(number) if 0 < int(number) <= self.sequence else None

    # --- checks --------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """See `ConsumerInfo.state`."""
        if self.membership.fenced:
            return "fenced"
        if not self.subscription:
            return "unsubscribed"
        if not self.subscription.joins:
            return "assigned"
        settled = self.membership.joined and (not self.membership.joining or self.lingering is not None)
        return "stable" if settled else "joining"

    def is_paused(self, tp: TopicPartition) -> bool:
        """Return whether no new records of this partition may be delivered."""
        return self.paused_all or tp in self.paused

    def require_subscription(self) -> None:
        """Raise INVALID_RECORD_STATE with reason `not-subscribed` if the consumer reads nothing yet."""
        if not self.subscription:
            raise illegal_state(NOT_SUBSCRIBED, f"Consumer {self.name!r} reads nothing yet: subscribe first.")

    def require_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise INVALID_RECORD_STATE with reason `not-assigned` if one of these is not assigned now."""
        for tp in partitions:
            if tp not in self.assigned:
                raise illegal_state(
                    NOT_ASSIGNED, f"{tp} is not assigned to consumer {self.name!r} at the moment."
                )

    # --- changes -------------------------------------------------------------------------------------------

    def move(self, tp: TopicPartition, position: int) -> None:
        """Set the next offset of a partition; the next write to the store includes it."""
        self.positions[tp] = position
        self.unsaved[tp] = None
        if self.ahead:
            self.ahead.pop(tp, None)

    def give(self, ranges: Iterable[Range], *, advancing: bool) -> None:
        """Make these ranges the outstanding batch, under a new token."""
        assert not self.outstanding
        self.sequence += 1
        self.outstanding = {TopicPartition(one.topic, one.partition): one for one in ranges}
        self.advancing = advancing
        self.revoked = ()

    def renumber(self) -> None:
        """Give what is left of the outstanding batch a new token."""
        self.sequence += 1
        self.revoked = ()

    def take(self, ranges: Iterable[Range]) -> None:
        """Move the positions past these ranges, if they are outstanding; they are outstanding no more."""
        for one in ranges:
            tp = TopicPartition(one.topic, one.partition)
            if self.outstanding.get(tp) == one:
                del self.outstanding[tp]
                self.move(tp, one.next_offset)
        if not self.outstanding and self.lingering is not None:
            self.lingering.set()

    def cut(self, tp: TopicPartition, end: int) -> None:
        """Remove offsets from `end` on from the outstanding range of a partition: its log ends there."""
        one = self.outstanding[tp]
        if one.first < end:
            self.outstanding[tp] = Range(one.topic, one.partition, one.first, min(end, one.next_offset))
        else:
            del self.outstanding[tp]

    def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move positions and outstanding ranges beyond these log end offsets back to them; return what was moved."""
        cuts = []
        for tp in [*(self.positions | self.outstanding)]:
            position, one = self.positions.get(tp, 0), self.outstanding.get(tp)
            before = position if one is None else max(position, one.next_offset)
            end = ends.get(tp, before)
            if before <= end:
                continue
            if position > end:
                self.move(tp, end)
            if one is not None and one.next_offset > end:
                self.cut(tp, end)
            cuts.append(Cut(self.group_id, *tp, before, end))
        return cuts

    def forget_topic(self, topic: str) -> list[TopicPartition]:
        """Forget the positions and ranges of a deleted topic; return the partitions that had a position."""
        deleted = [tp for tp in self.positions if tp.topic == topic]
        for tp in deleted:
            del self.positions[tp]
            self.unsaved.pop(tp, None)
            self.outstanding.pop(tp, None)
        return deleted

    def replace_partitions(self, kept: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> None:
        """Own `assigned` from now on. Only partitions in `kept` keep position, range and pause."""
        keep = set(kept)
        self.revoked += tuple(one for tp, one in self.outstanding.items() if tp not in keep)
        self.outstanding = {tp: one for tp, one in self.outstanding.items() if tp in keep}
        self.positions = {tp: position for tp, position in self.positions.items() if tp in keep}
        self.unsaved = {tp: None for tp in self.unsaved if tp in keep}
        self.paused &= keep
        self.assigned = tuple(sorted(assigned))

    def resume(self, partitions: Iterable[TopicPartition] | None) -> None:
        """End the pause of these partitions (None: of all). Raises as `require_assigned`."""
        if partitions is None:
            self.paused_all = False
            self.paused.clear()
            return
        resumed = list(partitions)
        self.require_assigned(resumed)
        if self.paused_all:
            self.paused_all = False
            self.paused = set(self.assigned)
        self.paused.difference_update(resumed)

    # --- views ---------------------------------------------------------------------------------------------

    def partitions(self) -> tuple[PartitionPosition, ...]:
        """Return the assigned partitions with their positions, without those that have no position yet."""
        return tuple(
            PartitionPosition(*tp, self.positions[tp], self.is_paused(tp))
            for tp in self.assigned
            if tp in self.positions
        )

    def info(self, now: float) -> ConsumerInfo:
        """Return the consumer as callers see it. `now` is the monotonic time in seconds."""
        return ConsumerInfo(
            self.group_id,
            self.name,
            self.state,
            self.subscription,
            self.options,
            self.membership.member_id if self.subscription.joins else "",
            self.membership.generation,
            self.partitions(),
            self.token,
            tuple(self.outstanding.values()),
            self.created_ms,
            max(0, round((self.deadline - now) * 1000)),
        )
