"""What moves a managed consumer: polls, acknowledgements, seeks, commits. See `consumers.py` for the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from core.consumers.membership import RETRY_DELAY
from core.consumers.reading import Found
from core.consumers.state import Consumer
from core.consumers.table import ConsumerTable
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.consumers import (
    EARLIEST,
    LATEST,
    NOT_ASSIGNED,
    NOT_SUBSCRIBED,
    UNKNOWN_TOKEN,
    Acknowledged,
    Batch,
    PartitionCommit,
    PartitionPosition,
    Seek,
    illegal_state,
)
from core.vocabulary.groups import Commit, CommittedOffset

# Answers to a commit that a round under way explains: once it is over the commit may be right.
_AFTER_THE_ROUND = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)

# Seconds that an acknowledgement by itself waits for a rebalance.
ACK_PATIENCE = 10.0


class ConsumerPolls(ConsumerTable):
    """The verbs of reading."""

    async def poll(
        self,
        group_id: str,
        name: str,
        *,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        min_bytes: int = 1,
        ack: str | None = None,
        advance: bool = False,
    ) -> Batch:
        """The next batch: at most `limit` records and about `max_bytes` of them, but at least one record.

        One sweep over all partitions that are assigned and not paused; answered on the first data (of
        `min_bytes` together, where set; never more than `max_bytes`), at the latest after `wait_ms`, which also
        covers the wait for the group. Cancelling the poll moves nothing. A poll that comes while another waits
        takes its place; the other is answered with nothing.

        Raises INVALID_RECORD_STATE with reason `unknown-token` or `not-subscribed`, FENCED_INSTANCE_ID,
        OFFSET_OUT_OF_RANGE (`start` is `none` and there is no position), CORRUPT_MESSAGE with `topic`,
        `partition` and `next_offset` (seek there), INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
        KAFKA_STORAGE_ERROR.
        """
        until = self._monotonic() + min(wait_ms, self._config.max_wait_ms) / 1000
        with self._in_use(group_id, name) as consumer:
            _require_subscription(consumer)
            consumer.turn += 1
            self._purgatory.notify(consumer)
            unsaved = False
            if ack is not None:
                unsaved = await self._acknowledge(consumer, ack, until)
            elif advance:
                if self._advance(consumer):
                    self._store.progress(consumer)
                await self._auto_commit(consumer)
            # A batch that is full is not worth waiting for more.
            min_bytes = min(min_bytes, max_bytes)
            batch = await self._next(consumer, limit, max_bytes, min_bytes, until, advance, unsaved)
            return batch or Batch((), None, (), False, consumer.state)

    async def _next(
        self,
        consumer: Consumer,
        limit: int,
        max_bytes: int,
        min_bytes: int,
        until: float,
        advancing: bool,
        unsaved: bool,
    ) -> Batch | None:
        """What a poll delivers; None when its time is up or its turn is over.

        `unsaved` says that it has acknowledged something which is not stored yet: with the new batch, or before
        it waits.
        """
        turn = consumer.turn
        while await self._settled(consumer, until) and consumer.turn == turn:
            if consumer.outstanding:
                if (again := self._repeated(consumer)) is not None:
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
            if unsaved:
                unsaved = False
                await self._store.progress(consumer)
            elif last:
                break
            elif not await self._wait_for_data(consumer, until, min_bytes):
                # The time is up, or the broker drains: what there is now, be it less than was asked for.
                until = self._monotonic()
        if unsaved:
            await self._store.progress(consumer)
        return None

    async def _settled(self, consumer: Consumer, until: float) -> bool:
        """Wait until the consumer may read; False when the time is up. Raises why it never will."""
        while True:
            if consumer.gone:
                self._find(consumer.group_id, consumer.name)
                return False
            self._membership.check(consumer)
            self._require_unfenced(consumer)
            if consumer.failure is not None:
                failure, consumer.failure = consumer.failure, None
                raise failure
            if consumer.joining is None or (consumer.lingering is not None and consumer.outstanding):
                return True
            if not await self._purgatory.wait(
                [consumer], until - self._monotonic(), lambda: consumer.joining is None or consumer.gone
            ):
                return False

    async def _wait_for_data(self, consumer: Consumer, until: float, min_bytes: int) -> bool:
        """Wait until it is worth while to look again; False when the time is up."""
        turn, assigned = consumer.turn, consumer.assigned

        def check() -> bool:
            return (
                consumer.turn != turn
                or consumer.assigned is not assigned
                or consumer.joining is not None
                or consumer.fenced
                or consumer.gone
                or self._reading.ready(consumer, min_bytes)
            )

        return await self._purgatory.wait([consumer, *assigned], until - self._monotonic(), check)

    async def _deliver(self, consumer: Consumer, found: Found, advancing: bool) -> Batch | None:
        """A new batch, kept before it is answered; None if a rebalance or a seek took it away meanwhile."""
        consumer.give(found.ranges, advancing=advancing)
        token = consumer.token
        if not advancing:
            await self._store.progress(consumer)
            if consumer.token != token or tuple(consumer.outstanding.values()) != found.ranges:
                return None
        return Batch(found.records, token, found.ranges, False, consumer.state)

    def _repeated(self, consumer: Consumer) -> Batch | None:
        """What is outstanding once more; None if nothing of it is left."""
        self._reading.trim(consumer)
        ranges = tuple(consumer.outstanding.values())
        records = self._reading.again(consumer)
        if not records:
            consumer.take(ranges)
            return None
        return Batch(records, consumer.token, ranges, True, consumer.state)

    def take_back(self, group_id: str, name: str, token: str | None) -> None:
        """The batch of this token never reached its client: the next poll with `advance` delivers it again."""
        consumer = self._by_group.get(group_id, {}).get(name)
        if consumer is not None and consumer.advancing and token is not None and token == consumer.token:
            consumer.outstanding = {}

    # --- acknowledgements ----------------------------------------------------------------------------------

    async def ack(self, group_id: str, name: str, token: str) -> Acknowledged:
        """Acknowledge the batch of this token, without a poll. Doing it again changes nothing."""
        with self._in_use(group_id, name) as consumer:
            self._reading.trim(consumer)
            before = tuple(consumer.outstanding.values())
            newest = consumer.sequence_of(token) == consumer.sequence
            if await self._acknowledge(consumer, token, self._monotonic() + ACK_PATIENCE):
                await self._store.progress(consumer)
            if not newest:
                return Acknowledged((), ())
            revoked = consumer.revoked
            return Acknowledged(tuple(one for one in before if one not in revoked), revoked)

    async def _acknowledge(self, consumer: Consumer, token: str, until: float) -> bool:
        """Commit what is outstanding under this token; whether the consumer has moved and is to be stored.

        Between two generations it has to wait for the new one, in which what stayed is committed; if that takes
        too long, it raises REBALANCE_IN_PROGRESS and may be tried again.
        """
        sequence = consumer.sequence_of(token)
        if sequence is None:
            raise illegal_state(
                UNKNOWN_TOKEN,
                f"Consumer {consumer.name!r} has delivered no batch with the token {token[:60]!r}.",
            )
        self._require_unfenced(consumer)
        moved = False
        until = max(until, self._monotonic() + 1.0)
        self._reading.trim(consumer)
        while sequence == consumer.sequence and consumer.outstanding:
            ranges = tuple(consumer.outstanding.values())
            commits = [Commit(one.topic, one.partition, one.next_offset) for one in ranges]
            errors = await self._commit_to_group(consumer, commits)
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
            if refused not in _AFTER_THE_ROUND:
                raise self._groups.refusal(refused, consumer.group_id, consumer.member_id)
            if not await self._round_is_over(consumer, until):
                raise BrokerError(
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    f"Group {consumer.group_id!r} has not agreed on its new generation yet; acknowledge again in a "
                    "moment.",
                    group=consumer.group_id,
                )
        return moved

    def _require_unfenced(self, consumer: Consumer) -> None:
        if consumer.fenced:
            raise self._groups.refusal(ErrorCode.FENCED_INSTANCE_ID, consumer.group_id, consumer.member_id)

    async def _round_is_over(self, consumer: Consumer, until: float) -> bool:
        """Wait for the end of the rebalance that refused a commit; False when it takes too long."""
        self._membership.check(consumer)
        if consumer.lingering is not None:
            # It lingers for this acknowledgement, which the group does not take any more.
            consumer.lingering.set()
        if consumer.joining is None or consumer.lingering is not None:
            # Where it lingers too: the task that joins goes on only while this one waits.
            await asyncio.sleep(RETRY_DELAY)
        return self._monotonic() < until and await self._settled(consumer, until)

    def _advance(self, consumer: Consumer) -> bool:
        """What was delivered without a token counts as taken; whether that moved anything."""
        if not consumer.advancing or not consumer.outstanding:
            return False
        self._reading.trim(consumer)
        consumer.take(tuple(consumer.outstanding.values()))
        return True

    async def _auto_commit(self, consumer: Consumer) -> None:
        interval = consumer.options.auto_commit_interval_ms / 1000
        now = self._monotonic()
        if consumer.options.auto_commit and now >= consumer.next_auto_commit:
            consumer.next_auto_commit = now + interval
            await self._commit_before_leaving(consumer)

    # --- positions -----------------------------------------------------------------------------------------

    def positions(self, group_id: str, name: str) -> list[PartitionPosition]:
        """The partitions that are assigned now, with the position of each."""
        with self._in_use(group_id, name) as consumer:
            return list(consumer.partitions())

    async def seek(self, group_id: str, name: str, seeks: Sequence[Seek], *, wait_ms: int = 0) -> None:
        """Go on elsewhere; what is outstanding of these partitions is forgotten. All or nothing, and durable.

        Waits up to `wait_ms` for the assignment. Raises INVALID_RECORD_STATE with reason `not-assigned` for a
        partition that is not assigned, and OFFSET_OUT_OF_RANGE with the `offset` and the bounds.
        """
        with self._in_use(group_id, name) as consumer:
            await self._await_assignment(consumer, wait_ms)
            await self._move_to(consumer, seeks)

    async def seek_everywhere(
        self,
        group_id: str,
        name: str,
        to: str = EARLIEST,
        *,
        time_ms: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        """As `seek`, in all partitions that are assigned. Without any it raises `not-assigned`."""
        with self._in_use(group_id, name) as consumer:
            await self._await_assignment(consumer, wait_ms)
            if not consumer.assigned:
                raise illegal_state(NOT_ASSIGNED, f"Consumer {name!r} has no partitions at the moment.")
            await self._move_to(consumer, [Seek(t, p, to, time_ms) for t, p in consumer.assigned])

    async def _await_assignment(self, consumer: Consumer, wait_ms: int) -> None:
        _require_subscription(consumer)
        until = self._monotonic() + min(wait_ms, self._config.max_wait_ms) / 1000
        await self._settled(consumer, until)

    async def _move_to(self, consumer: Consumer, seeks: Iterable[Seek]) -> None:
        targets = {}
        for one in seeks:
            address = TopicPartition(one.topic, one.partition)
            _require_assigned(consumer, [address])
            targets[address] = self._target(address, one)
        self._advance(consumer)
        for address, position in targets.items():
            consumer.outstanding.pop(address, None)
            consumer.move(address, position)
        await self._store.progress(consumer)
        self._purgatory.notify(consumer)

    def _target(self, address: TopicPartition, seek: Seek) -> int:
        bounds = self._broker.partitions.offsets(address)
        if seek.time_ms is not None:
            found = self._broker.partitions.offset_for_time(address, seek.time_ms).offset
            return found if found >= 0 else bounds.high_watermark
        if isinstance(seek.to, str):
            return {EARLIEST: bounds.log_start_offset, LATEST: bounds.high_watermark}[seek.to]
        if bounds.log_start_offset <= seek.to <= bounds.high_watermark:
            return seek.to
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{address} holds offsets from {bounds.log_start_offset} to {bounds.high_watermark}; {seek.to} lies "
            "outside.",
            topic=address.topic,
            partition=address.partition,
            offset=seek.to,
            log_start_offset=bounds.log_start_offset,
            high_watermark=bounds.high_watermark,
        )

    async def pause(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver nothing of these partitions (None: of any, also of those that come later).

        What is outstanding still comes again. Raises INVALID_RECORD_STATE with reason `not-assigned`.
        """
        with self._in_use(group_id, name) as consumer:
            if partitions is None:
                consumer.paused_all = True
            else:
                _require_assigned(consumer, partitions)
                consumer.paused.update(partitions)
            await self._store.progress(consumer)

    async def resume(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver again. Raises as `pause`."""
        with self._in_use(group_id, name) as consumer:
            if partitions is None:
                consumer.paused_all = False
                consumer.paused.clear()
            else:
                _require_assigned(consumer, partitions)
                if consumer.paused_all:
                    consumer.paused_all = False
                    consumer.paused = set(consumer.assigned)
                consumer.paused.difference_update(partitions)
            self._purgatory.notify(consumer)
            await self._store.progress(consumer)

    # --- commits without tokens ----------------------------------------------------------------------------

    async def commit(
        self, group_id: str, name: str, offsets: Sequence[PartitionCommit] | None = None
    ) -> list[PartitionCommit]:
        """Commit these offsets, or (None) all that polls have delivered; what was committed, once durable.

        Raises what refuses it: INVALID_RECORD_STATE with reason `not-subscribed`, or `not-assigned` before the
        group has settled, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._in_use(group_id, name) as consumer:
            _require_subscription(consumer)
            if self._advance(consumer):
                self._store.progress(consumer)
            if offsets is None:
                commits = self._uncommitted(consumer)
            else:
                commits = [Commit(o.topic, o.partition, o.next_offset, metadata=o.metadata) for o in offsets]
            if not commits:
                return []
            self._require_unfenced(consumer)
            if consumer.subscription.joins and consumer.generation < 0:
                raise illegal_state(
                    NOT_ASSIGNED, f"Consumer {name!r} has not joined its group yet: poll first."
                )
            errors = await self._commit_to_group(consumer, commits)
            for commit, error in zip(commits, errors, strict=True):
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._broker.partitions.info(TopicPartition(commit.topic, commit.partition))
                if error:
                    raise self._groups.refusal(error, group_id, consumer.member_id)
            return [PartitionCommit(c.topic, c.partition, c.offset, c.metadata or "") for c in commits]

    def committed(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition]
    ) -> list[CommittedOffset | None]:
        """The committed offset of each of `partitions` in the consumer's group; None where there is none."""
        with self._in_use(group_id, name):
            return [self._groups.committed(group_id, *address) for address in partitions]


def _require_subscription(consumer: Consumer) -> None:
    if not consumer.subscription:
        raise illegal_state(NOT_SUBSCRIBED, f"Consumer {consumer.name!r} reads nothing yet: subscribe first.")


def _require_assigned(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    for address in partitions:
        if address not in consumer.assigned:
            raise illegal_state(
                NOT_ASSIGNED, f"{address} is not assigned to consumer {consumer.name!r} at the moment."
            )
