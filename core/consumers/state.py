"""One managed consumer as the broker holds it in memory. What is durable of it is in `consumer_store`.

The life of a record here:

    position ──poll──► outstanding ──its token comes back──► committed in the group; the position moves behind it

`positions` never pass what is outstanding: a poll without the token, a lost answer, a restart all give the same
ranges again. In a rebalance a partition that stays keeps its position and what is outstanding of it. One that
goes takes both along; what was outstanding of it is `revoked`, and its next owner begins at the committed offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import inf

from core.errors import BrokerError
from core.types import TopicPartition
from core.vocabulary.consumers import ConsumerInfo, ConsumerOptions, PartitionPosition, Range, Subscription
from core.vocabulary.groups import Cut


class Consumer:
    """The state of one managed consumer. Changed on the event loop only; no rules beyond consistency."""

    __slots__ = (
        "advancing",
        "assigned",
        "created_ms",
        "deadline",
        "failure",
        "fenced",
        "generation",
        "gone",
        "group_id",
        "joined_topics",
        "joining",
        "known",
        "led",
        "lingering",
        "member_id",
        "name",
        "next_auto_commit",
        "next_heartbeat",
        "nonce",
        "options",
        "outstanding",
        "paused",
        "paused_all",
        "polls",
        "positions",
        "revoked",
        "sequence",
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
    ) -> None:
        self.group_id = group_id
        self.name = name
        # Makes the tokens of this consumer its own, also against one of the same name that was deleted.
        self.nonce = nonce
        self.subscription = subscription
        self.options = options
        self.created_ms = created_ms
        # --- membership
        self.member_id = ""
        # Whether the group has heard of the member id.
        self.known = False
        # The generation whose assignment is in force; −1 before there is one.
        self.generation = -1
        self.assigned: tuple[TopicPartition, ...] = ()
        # The topics that the last join named, and the partitions of the group's topics if this member led.
        self.joined_topics: tuple[str, ...] = ()
        self.led: dict[str, int] | None = None
        self.joining: asyncio.Task[None] | None = None
        # Set while a rebalance waits for the acknowledgement of what is outstanding.
        self.lingering: asyncio.Event | None = None
        self.next_heartbeat = 0.0
        # Why the last attempt to join failed: told by the next poll.
        self.failure: BrokerError | None = None
        self.fenced = False
        # --- reading
        self.positions: dict[TopicPartition, int] = {}
        self.unsaved: dict[TopicPartition, None] = {}
        self.paused: set[TopicPartition] = set()
        self.paused_all = False
        # Number of the batch that was delivered last.
        self.sequence = 0
        self.outstanding: dict[TopicPartition, Range] = {}
        # Whether what is outstanding counts as taken once the next request comes (polls with `advance`).
        self.advancing = False
        # Ranges of the last batch whose partitions went to somebody else before they were acknowledged.
        self.revoked: tuple[Range, ...] = ()
        self.turn_index = 0
        self.next_auto_commit = inf
        # --- life
        self.deadline = inf
        self.stored_deadline = inf
        self.polls = 0
        # Rises with each poll: the newest one is served.
        self.turn = 0
        self.gone = False

    @property
    def token(self) -> str | None:
        """The token of the batch that is outstanding."""
        return self.token_of(self.sequence) if self.outstanding else None

    def token_of(self, sequence: int) -> str:
        """The token of one of this consumer's batches."""
        return f"{self.nonce}.{sequence}"

    def sequence_of(self, token: str) -> int | None:
        """The number of the batch that a token stands for; None if it is none of this consumer's."""
        nonce, _, number = token.partition(".")
        if nonce != self.nonce or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return None
        return int(number) if 0 < int(number) <= self.sequence else None

    @property
    def state(self) -> str:
        """See `ConsumerInfo.state`."""
        if self.fenced:
            return "fenced"
        if not self.subscription:
            return "unsubscribed"
        if not self.subscription.joins:
            return "assigned"
        settled = self.generation >= 0 and (self.joining is None or self.lingering is not None)
        return "stable" if settled else "joining"

    def is_paused(self, address: TopicPartition) -> bool:
        """Whether nothing of this partition is to be delivered."""
        return self.paused_all or address in self.paused

    def move(self, address: TopicPartition, position: int) -> None:
        """The next offset of a partition is this one; to be stored with the next progress."""
        self.positions[address] = position
        self.unsaved[address] = None

    def take(self, ranges: Iterable[Range]) -> None:
        """These ranges of what is outstanding are done with: positions move behind them."""
        for one in ranges:
            address = TopicPartition(one.topic, one.partition)
            if self.outstanding.get(address) == one:
                del self.outstanding[address]
                self.move(address, one.next_offset)
        if not self.outstanding and self.lingering is not None:
            self.lingering.set()

    def give(self, ranges: Iterable[Range], *, advancing: bool) -> None:
        """These ranges are delivered, as a new batch."""
        assert not self.outstanding
        self.sequence += 1
        self.outstanding = {TopicPartition(one.topic, one.partition): one for one in ranges}
        self.advancing = advancing
        self.revoked = ()

    def cut(self, address: TopicPartition, end: int) -> None:
        """Nothing from `end` on is in the partition any more: it is not outstanding either."""
        one = self.outstanding[address]
        if one.first < end:
            self.outstanding[address] = Range(one.topic, one.partition, one.first, min(end, one.next_offset))
        else:
            del self.outstanding[address]

    def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Nothing beyond these ends of logs was ever read: move what lies there back to them; what was moved."""
        cuts = []
        for address in [*(self.positions | self.outstanding)]:
            position, one = self.positions.get(address, 0), self.outstanding.get(address)
            before = position if one is None else max(position, one.next_offset)
            end = ends.get(address, before)
            if before <= end:
                continue
            if position > end:
                self.move(address, end)
            if one is not None and one.next_offset > end:
                self.cut(address, end)
            cuts.append(Cut(self.group_id, *address, before, end))
        return cuts

    def replace_partitions(self, kept: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> None:
        """Own `assigned` from now on; of what was owned before, only `kept` keeps its position."""
        keep = set(kept)
        self.revoked += tuple(one for address, one in self.outstanding.items() if address not in keep)
        self.outstanding = {a: one for a, one in self.outstanding.items() if a in keep}
        self.positions = {a: position for a, position in self.positions.items() if a in keep}
        self.unsaved = {a: None for a in self.unsaved if a in keep}
        self.paused &= keep
        self.assigned = tuple(sorted(assigned))

    def partitions(self) -> tuple[PartitionPosition, ...]:
        """What is owned, with positions; a partition whose beginning is not known yet is left out."""
        return tuple(
            PartitionPosition(*address, self.positions[address], self.is_paused(address))
            for address in self.assigned
            if address in self.positions
        )

    def info(self, now: float) -> ConsumerInfo:
        """The consumer as doors show it."""
        return ConsumerInfo(
            self.group_id,
            self.name,
            self.state,
            self.subscription,
            self.options,
            self.member_id if self.subscription.joins else "",
            self.generation,
            self.partitions(),
            self.token,
            tuple(self.outstanding.values()),
            self.created_ms,
            max(0, round((self.deadline - now) * 1000)),
        )
