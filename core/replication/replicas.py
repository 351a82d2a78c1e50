"""The replicated partitions of this broker, and what its verbs ask about them.

    append → `leading`      may this broker append, with these acks?
    append → `appended`     the leader's own end counts for the high watermark
    durable → `committed`   acks=all: fsynced here, and every in-sync replica has it
    fetch of a follower → `progress`, then a read up to the log's end

A partition with one replica is not in this table, and pays one look into an empty dictionary for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.manager import LogManager
from core.purgatory import Purgatory
from core.replication.copies import Copy
from core.replication.epochs import leader_of
from core.replication.promises import Promises
from core.replication.replica import Moved, Replica
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA


class _Ack:
    """An acks=all that waits: done when its records are fsynced here and below the high watermark."""

    __slots__ = ("end", "flushed", "future", "timer")

    def __init__(self, end: int, future: asyncio.Future[None]) -> None:
        self.end = end
        self.future = future
        self.flushed = False
        self.timer: asyncio.TimerHandle | None = None


class Replicas:
    """All replicated partitions, by topic partition and by topic id.

    `promises` is None on a broker without peers. `metadata_moved` is called when the high watermark of the metadata
    partition has moved.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        logs: LogManager,
        purgatory: Purgatory,
        changes: TopicChanges,
        promises: Promises | None,
        *,
        metadata_moved: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._logs = logs
        self._purgatory = purgatory
        self._changes = changes
        self.promises = promises
        self._metadata_moved = metadata_moved
        self._copies: dict[TopicPartition, Copy] = {}
        self._by_id: dict[tuple[bytes, int], Copy] = {}
        self._acks: dict[TopicPartition, list[_Ack]] = {}

    def __bool__(self) -> bool:
        return bool(self._copies)

    def __iter__(self) -> Iterator[Copy]:
        return iter(list(self._copies.values()))

    def get(self, tp: TopicPartition) -> Copy | None:
        """Return the replicated partition; None if it has one replica, or does not exist."""
        return self._copies.get(tp)

    def by_id(self, topic_id: bytes, partition: int) -> Copy | None:
        """The replicated partition of the topic with this id."""
        return self._by_id.get((topic_id, partition))

    # --- which there are -----------------------------------------------------------------------------------

    def add(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        brokers: Iterable[int],
        *,
        created: bool,
        high_watermark: int = 0,
    ) -> Copy:
        """Take a partition with replicas on these brokers.

        One that was just `created` begins at once; of another one the leader must be found out first.
        """
        log = self._logs.get(tp)
        end = log.offsets.log_end_offset
        remembered = self.promises.of(tp, topic_id) if self.promises is not None else None
        config = self._config
        replica = Replica(
            config.broker_id, brokers, lag=config.replica_lag_time_max_ms / 1000, remembered=remembered
        )
        if created and remembered is None:
            replica.created(self._clock.monotonic())
        else:
            replica.restored(end)
            # Where this broker has led, it asks the others first; a follower asks the leader it knows.
            replica.active = replica.start >= 0 and leader_of(replica.epoch) != config.broker_id
        replica.high_watermark = min(max(high_watermark, log.offsets.log_start_offset), end)
        copy = Copy(tp, topic_id, log, replica)
        log.visible = replica.high_watermark
        self._copies[tp] = copy
        self._by_id[topic_id.bytes, tp.partition] = copy
        self.note(copy)
        return copy

    def remove(self, topic: str) -> None:
        """The topic is deleted."""
        for tp in [tp for tp in self._copies if tp.topic == topic]:
            copy = self._copies.pop(tp)
            self._by_id.pop((copy.topic_id.bytes, tp.partition), None)
            self._fail(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is deleted.")
        if self.promises is not None:
            self.promises.forget(topic)

    def note(self, copy: Copy) -> None:
        """What the replica must not forget has changed; `promises.save` makes it durable."""
        if self.promises is not None:
            self.promises.note(copy.tp, copy.topic_id, copy.replica.remembered)

    def needed(self, copy: Copy) -> int:
        """Replicas that must be in sync for anything to be committed; not more than there are."""
        count = len(copy.replica.replicas)
        if copy.tp == METADATA:
            return min(self._config.metadata_min_insync_replicas or count // 2 + 1, count)
        return min(copy.log.config.min_insync_replicas, count)

    # --- leading -------------------------------------------------------------------------------------------

    def leading(self, copy: Copy, acks: int) -> int:
        """The epoch to append in. Raises NOT_LEADER_OR_FOLLOWER; with acks=all NOT_ENOUGH_REPLICAS."""
        replica = copy.replica
        if not replica.leads or replica.paused_until > self._clock.monotonic():
            raise self.not_leader(copy)
        if acks == -1:
            self._check_isr(copy, ErrorCode.NOT_ENOUGH_REPLICAS)
        return replica.epoch

    def _check_isr(self, copy: Copy, code: ErrorCode) -> None:
        wanted, isr = copy.log.config.min_insync_replicas, copy.replica.isr
        if len(isr) < wanted:
            raise BrokerError(
                code,
                f"min.insync.replicas of {copy.tp.topic!r} is {wanted}; in sync: "
                f"{', '.join(map(str, sorted(isr))) or 'none'}.",
                isr=sorted(isr),
                min_insync_replicas=wanted,
            )

    def not_leader(self, copy: Copy) -> BrokerError:
        """Return the error of a call that only a leader serves; `leader` in its details is −1 if none is known."""
        leader = copy.replica.leader
        where = (
            f"broker {leader} does" if leader not in (-1, copy.replica.broker_id) else "no broker does now"
        )
        return BrokerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"This broker does not lead {copy.tp}; {where}.",
            leader=leader,
            leader_epoch=copy.replica.epoch,
        )

    def appended(self, copy: Copy) -> None:
        """The leader's log has grown."""
        if copy.replica.advance(copy.log.offsets.log_end_offset, self.needed(copy)):
            self.moved(copy)

    def progress(self, copy: Copy, broker_id: int, end: int) -> None:
        """A follower has everything below `end`."""
        replica = copy.replica
        self.took(
            copy,
            replica.progress(
                broker_id,
                end,
                copy.log.offsets.log_end_offset,
                self._clock.monotonic(),
                self.needed(copy),
            ),
        )

    def expire(self) -> None:
        """Take slow followers out of the in-sync sets."""
        now = self._clock.monotonic()
        for copy in self:
            if copy.replica.source:
                end = copy.log.offsets.log_end_offset
                self.took(copy, copy.replica.expire(end, now, self.needed(copy)))

    def took(self, copy: Copy, moved: Moved) -> None:
        """Wake the requests that wait for the changes of a step."""
        if moved.isr:
            self._changes.answers_changed()
            try:
                self._check_isr(copy, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            except BrokerError as error:
                self._fail(copy.tp, error.code, error.message)
        if moved.high_watermark:
            self.moved(copy)

    def moved(self, copy: Copy) -> None:
        """The high watermark moved: consumers see more, and acks=all is answered."""
        committed = copy.replica.high_watermark
        copy.log.visible = committed
        tp = copy.tp
        self._purgatory.notify(tp)
        if tp != METADATA:
            self._changes.touch(tp.topic)
        else:
            self._metadata_moved()
        waiting = self._acks.get(tp)
        if waiting:
            for ack in [ack for ack in waiting if ack.flushed and ack.end <= committed]:
                self._done(waiting, ack)

    # --- acks=all ------------------------------------------------------------------------------------------

    def committed(
        self, copy: Copy, end: int, flushed: asyncio.Future[None] | None, timeout: float
    ) -> asyncio.Future[None]:
        """A future that is done once everything below `end` is fsynced here and committed.

        It fails with REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        # A follower may stop before it fails.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        tp = copy.tp
        ack = _Ack(end, future)
        waiting = self._acks.setdefault(tp, [])
        waiting.append(ack)
        ack.timer = loop.call_later(timeout, self._late, copy, ack)
        if flushed is None:
            self._flushed(copy, ack, None)
        else:
            flushed.add_done_callback(lambda done: self._flushed(copy, ack, done))
        return future

    def _flushed(self, copy: Copy, ack: _Ack, done: asyncio.Future[None] | None) -> None:
        waiting = self._acks.get(copy.tp, [])
        error = None if done is None or done.cancelled() else done.exception()
        if error is not None:
            self._done(waiting, ack, error)
            return
        ack.flushed = True
        if ack.end <= copy.replica.high_watermark:
            self._done(waiting, ack)

    def _late(self, copy: Copy, ack: _Ack) -> None:
        isr = ", ".join(map(str, sorted(copy.replica.isr)))
        self._done(
            self._acks.get(copy.tp, []),
            ack,
            BrokerError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Not all in-sync replicas ({isr}) have the records yet; they are in the leader's log.",
            ),
        )

    def _done(self, waiting: list[_Ack], ack: _Ack, error: BaseException | None = None) -> None:
        if ack in waiting:
            waiting.remove(ack)
        if ack.timer is not None:
            ack.timer.cancel()
        if ack.future.done():
            return
        if error is None:
            ack.future.set_result(None)
        else:
            ack.future.set_exception(error)

    def _fail(self, tp: TopicPartition, code: ErrorCode, message: str) -> None:
        waiting = self._acks.pop(tp, [])
        for ack in list(waiting):
            self._done(waiting, ack, BrokerError(code, message))

    def deposed(self, copy: Copy) -> None:
        """Refuse the acknowledgements that wait: the role of this broker has changed, their epoch is over."""
        error = self.not_leader(copy)
        self._fail(copy.tp, error.code, error.message)
        self._changes.answers_changed()
        self._purgatory.notify(copy.tp)
