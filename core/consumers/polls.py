"""Polls and acknowledgements of one consumer: a batch is delivered until it is acknowledged; waits for data.

See `consumers` for the two ways to poll.
"""

from __future__ import annotations

import asyncio

from core.clock import Clock
from core.consumers.commits import Commits
from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.consumers.reading import Found, Reading
from core.consumers.registry import Registry
from core.consumers.store import ConsumerStore
from core.errors import BrokerError, ErrorCode
from core.groups.hosted import RETRY_DELAY
from core.purgatory import Purgatory
from core.vocabulary.consumers import UNKNOWN_TOKEN, Batch, illegal_state
from core.vocabulary.groups import Commit

# Errors of a commit that a rebalance explains: once it is over, the commit may succeed.
_AFTER_THE_REBALANCE = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


class Polls:
    """Polls and acknowledges for consumers. Each call takes a consumer that is in use."""

    def __init__(
        self,
        clock: Clock,
        purgatory: Purgatory,
        groups: MemberGroups,
        registry: Registry,
        store: ConsumerStore,
        reading: Reading,
        commits: Commits,
    ) -> None:
        self._monotonic = clock.monotonic
        self._purgatory = purgatory
        self._groups = groups
        self._registry = registry
        self._store = store
        self._reading = reading
        self._commits = commits

    # --- batches -------------------------------------------------------------------------------------------

    async def next_batch(
        self,
        consumer: Consumer,
        limit: int,
        max_bytes: int,
        min_bytes: int,
        until: float,
        advancing: bool,
        unsaved: bool,
    ) -> Batch | None:
        """Return the next batch; None at the time `until`, or when another poll has taken this one's place.

        `unsaved` says that the poll has acknowledged something which is not stored yet. It is stored with the new
        batch, or before the poll waits.
        """
        turn, fresh = consumer.turn, True
        while await self._may_read(consumer, until, max_bytes, fresh) and consumer.turn == turn:
            fresh = False
            if consumer.outstanding:
                if (again := await self._repeated(consumer)) is not None:
                    return again
                continue
            last = until <= self._monotonic()
            if last or self._reading.ready(consumer, min_bytes):
                found = self._reading.sweep(consumer, limit, max_bytes)
                if found.records:
                    batch = await self._deliver(consumer, found, advancing)
                    if batch is not None:
                        return batch
                    continue
                if found.more:
                    # A client that does not wait gets its empty batch; the positions have moved.
                    await asyncio.sleep(0)
                    if not last:
                        continue
            if unsaved:
                unsaved = False
                await self._store.progress(consumer)
            elif last:
                break
            elif not await self._wait_for_data(consumer, until, min_bytes):
                # The time is up, or the broker stops: deliver what there is, even if it is less than `min_bytes`.
                until = self._monotonic()
        if unsaved:
            await self._store.progress(consumer)
        return None

    async def _may_read(self, consumer: Consumer, until: float, max_bytes: int, fresh: bool) -> bool:
        """Wait until the consumer may read, with what it reads at hand; return False at the time `until`."""
        while await self.settled(consumer, until):
            if self._groups.at_hand or consumer.outstanding:
                return True
            assigned = consumer.assigned
            await self._reading.bring(consumer, max_bytes, fresh=fresh)
            if consumer.assigned is assigned and not consumer.membership.joining and not consumer.gone:
                return True
        return False

    async def settled(self, consumer: Consumer, until: float) -> bool:
        """Wait until the consumer may read; return False at the time `until`.

        Raises RESOURCE_NOT_FOUND if it was deleted, FENCED_INSTANCE_ID, and the error of a join that failed.
        """
        membership = consumer.membership
        while True:
            if consumer.gone:
                self._registry.find(consumer.group_id, consumer.name)
                return False
            membership.check()
            membership.require_unfenced()
            membership.raise_failure()
            if not membership.joining or (consumer.lingering is not None and consumer.outstanding):
                return True
            if not await self._purgatory.wait(
                [consumer], until - self._monotonic(), lambda: not membership.joining or consumer.gone
            ):
                return False

    async def _wait_for_data(self, consumer: Consumer, until: float, min_bytes: int) -> bool:
        """Wait until another look at the partitions is worthwhile; return False at the time `until`."""
        turn, assigned, membership = consumer.turn, consumer.assigned, consumer.membership

        def check() -> bool:
            return (
                consumer.turn != turn
                or consumer.assigned is not assigned
                or membership.joining
                or membership.fenced
                or consumer.gone
                or self._reading.ready(consumer, min_bytes)
            )

        return await self._purgatory.wait([consumer, *assigned], until - self._monotonic(), check)

    async def _deliver(self, consumer: Consumer, found: Found, advancing: bool) -> Batch | None:
        """Make a new batch and store it before it is delivered; None if a rebalance or a seek has taken it away."""
        consumer.give(found.ranges, advancing=advancing)
        token = consumer.token
        if not advancing:
            await self._store.progress(consumer)
            if consumer.token != token or tuple(consumer.outstanding.values()) != found.ranges:
                return None
        return Batch(found.records, token, found.ranges, False, consumer.state)

    async def _repeated(self, consumer: Consumer) -> Batch | None:
        """Return the outstanding batch again; None if no record of it is left.

        What is left of a batch after a rebalance has a token of its own: a client that has worked on the whole must
        not acknowledge the rest with it.
        """
        self._reading.trim(consumer)
        if consumer.revoked and consumer.outstanding:
            consumer.renumber()
            await self._store.progress(consumer)
        ranges, token = tuple(consumer.outstanding.values()), consumer.token
        records = await self._reading.again(consumer)
        if consumer.token != token or tuple(consumer.outstanding.values()) != ranges:
            return None
        if not records:
            consumer.take(ranges)
            return None
        return Batch(records, consumer.token, ranges, True, consumer.state)

    # --- acknowledgements ----------------------------------------------------------------------------------

    def advance(self, consumer: Consumer) -> bool:
        """Take what was delivered without a token as acknowledged; return whether a position has moved."""
        if not consumer.advancing or not consumer.outstanding:
            return False
        self._reading.trim(consumer)
        consumer.take(tuple(consumer.outstanding.values()))
        return True

    async def acknowledge(self, consumer: Consumer, token: str, until: float) -> bool:
        """Commit the outstanding batch of this token; return whether a position has moved and is to be stored.

        During a rebalance it waits for the new generation and commits the partitions that the consumer keeps. At the
        time `until` it raises REBALANCE_IN_PROGRESS and may be tried again.
        """
        sequence = consumer.sequence_of(token)
        if sequence is None:
            raise illegal_state(
                UNKNOWN_TOKEN,
                f"Consumer {consumer.name!r} has delivered no batch with the token {token[:60]!r}.",
            )
        consumer.membership.require_unfenced()
        moved = False
        until = max(until, self._monotonic() + 1.0)
        self._reading.trim(consumer)
        while sequence == consumer.sequence and consumer.outstanding:
            ranges = tuple(consumer.outstanding.values())
            commits = [Commit(one.topic, one.partition, one.next_offset) for one in ranges]
            errors = await self._commits.commit(consumer, commits)
            done = [
                one
                for one, error in zip(ranges, errors, strict=True)
                # A topic that was deleted meanwhile has nothing to commit.
                if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ]
            moved = moved or bool(done)
            consumer.take(done)
            refused = next((e for e in errors if e and e is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)
            if refused is None:
                continue
            if refused not in _AFTER_THE_REBALANCE:
                raise self._groups.refusal(refused, consumer.group_id, consumer.membership.member_id)
            if not await self._rebalanced(consumer, until):
                raise BrokerError(
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    f"Group {consumer.group_id!r} has not agreed on its new generation yet; acknowledge again in a "
                    "moment.",
                    group=consumer.group_id,
                )
        return moved

    async def _rebalanced(self, consumer: Consumer, until: float) -> bool:
        """Wait for the end of the rebalance that refused a commit; return False at the time `until`."""
        consumer.membership.check()
        if consumer.lingering is not None:
            # The grace is for this acknowledgement, and the group does not accept it any more.
            consumer.lingering.set()
        if not consumer.membership.joining or consumer.lingering is not None:
            # Also during the grace: the task that joins runs only while this one waits.
            await asyncio.sleep(RETRY_DELAY)
        return self._monotonic() < until and await self.settled(consumer, until)
