"""Following: one loop per leader that copies all partitions it leads, as Kafka's replica fetchers do.

For each partition in each epoch, the follower first joins its log to the leader's. It asks where its newest epoch
ended on the leader (OffsetForLeaderEpoch, KIP-101) and truncates its log there. If the leader does not know that
epoch, the follower asks for the one before (KIP-279). Then it fetches from its log end offset. The leader takes the
offset of a fetch as stored by the follower, so the follower fsyncs before it fetches (`replica_fsync`).

There is one fetch at a time, over all partitions. Records that arrive for an older epoch are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from core.clock import Clock
from core.config import Config, Peer
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.protocol.apis import FETCH
from core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from core.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.records.batch import batches, check_crc
from core.replication.copies import Copy
from core.replication.peer import PeerConnection, PeerError
from core.types import TopicPartition

logger = logging.getLogger(__name__)

# Topic ids, and no sessions: every fetch names all its partitions, and the high watermark that is known of each, so
# that the leader answers as soon as it has a newer one (KIP-1166).
_FETCH_VERSION = 18
_EPOCH_KEY, _EPOCH_VERSION = 23, 4
# Seconds before a topic that the leader does not know is asked for again; doubled each time, to `replica_retry_ms`.
_FIRST_BACKOFF = 0.005
# Seconds between two log lines about a leader that cannot be reached.
_COMPLAIN_SECONDS = 30.0


class Keeper(Protocol):
    """What the broker does for its followers."""

    def followed(self, leader: int) -> Sequence[Copy]:
        """The partitions to be copied from this broker now."""
        ...

    async def flush(self, log: Log) -> None:
        """Return once all of the log is on the disk. Raises KAFKA_STORAGE_ERROR."""
        ...

    async def cut(self, copy: Copy, offset: int) -> None:
        """Cut the log at `offset`, crash-safe. Raises KAFKA_STORAGE_ERROR."""
        ...

    async def start_at(self, copy: Copy, offset: int) -> None:
        """Drop the whole log and begin again at `offset`, crash-safe. Raises KAFKA_STORAGE_ERROR."""
        ...

    async def remember(self, copies: Sequence[Copy]) -> None:
        """Store what the replicas must not forget. Raises KAFKA_STORAGE_ERROR."""
        ...

    def moved(self, copy: Copy) -> None:
        """The high watermark of a copy has moved, or its log has grown."""
        ...

    def disowned(self, copy: Copy, leader: int) -> None:
        """The broker that was asked does not lead the partition in this epoch."""
        ...


class Follower:
    """Copies from one leader, for as long as `run` runs."""

    def __init__(self, peer: Peer, config: Config, clock: Clock, keeper: Keeper) -> None:
        self._peer = peer
        self._config = config
        self._retry = config.replica_retry_ms / 1000
        self._clock = clock
        self._keeper = keeper
        self._connection = PeerConnection(peer, config)
        self._news = asyncio.Event()
        self._complained = -_COMPLAIN_SECONDS
        # The fetch under way and the partitions that it names; whether `_interrupt` is due.
        self._fetching: asyncio.Task[FetchResponse] | None = None
        self._named: frozenset[Copy] = frozenset()
        self._interrupting = False

    def wake(self) -> None:
        """There may be something to follow now."""
        self._news.set()
        if self._fetching is not None:
            self._interrupt_soon()

    def _interrupt_soon(self) -> None:
        if not self._interrupting:
            self._interrupting = True
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        """Give up a fetch that may wait long without naming all that is to be followed: acks=all waits for it."""
        self._interrupting = False
        if self._fetching is not None and not self._named.issuperset(self._to_follow()):
            self._fetching.cancel()

    def _to_follow(self) -> list[Copy]:
        return [c for c in self._keeper.followed(self._peer.broker_id) if c.resting != c.replica.epoch]

    async def run(self) -> None:
        """Copy until cancelled."""
        pause = self._retry
        try:
            while True:
                self._news.clear()
                copies = self._to_follow()
                if not copies:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._news.wait()
                    continue
                try:
                    await self._round(copies)
                except PeerError as error:
                    self._complain(error)
                    await asyncio.sleep(pause)
                except Exception:
                    # After any error the loop must continue: no other task copies these partitions.
                    logger.exception("following broker %d", self._peer.broker_id)
                    await asyncio.sleep(pause)
        finally:
            self._connection.close()

    def _complain(self, error: PeerError) -> None:
        now = self._clock.monotonic()
        if now - self._complained >= _COMPLAIN_SECONDS:
            self._complained = now
            logger.warning("cannot follow: %s", error)

    async def _round(self, copies: Sequence[Copy]) -> None:
        apart = [c for c in copies if c.joined != c.replica.epoch]
        if apart:
            await self._join(apart)
        ready = [c for c in copies if c.joined == c.replica.epoch and c.replica.follows]
        if ready:
            await self._fetch(ready)

    # --- joining histories ---------------------------------------------------------------------------------

    async def _join(self, copies: Sequence[Copy]) -> None:
        """Cut the logs where their histories part from the leader's."""
        asked = {c: (c.replica.epoch, c.log.leader_epoch) for c in copies}
        for copy, (epoch, newest) in asked.items():
            if newest < 0:  # an empty log has no history
                copy.joined = epoch
        open_ = [c for c in copies if c.joined != c.replica.epoch]
        # Each answer is older by at least one epoch, so the loop ends.
        while open_:
            ends = await self._ask_ends([(c, asked[c][0], asked[c][1]) for c in open_])
            again = []
            for copy in open_:
                epoch, newest = asked[copy]
                end = ends.get(copy)
                if copy.replica.epoch != epoch or end is None:
                    continue
                if end.error_code:
                    self._refused(copy, ErrorCode(end.error_code))
                    continue
                earlier = await self._cut_at(copy, epoch, newest, end)
                if earlier is not None:
                    asked[copy] = (epoch, earlier)
                    again.append(copy)
            open_ = again

    async def _cut_at(self, copy: Copy, epoch: int, newest: int, end: EpochEndOffset) -> int | None:
        """Cut by one answer; the epoch to ask for next, or None if the histories are joined now."""
        log = copy.log
        earlier: int | None = None
        if end.leader_epoch < 0 or end.end_offset < 0:
            # The leader knows no epoch that old: no record here is known to be in its log.
            offset = log.offsets.log_start_offset
        elif end.leader_epoch == newest:
            offset = min(end.end_offset, log.end_offset_for_epoch(newest)[1])
        else:
            # It ended that epoch, or never had it; what we have of a later one is not in its history.
            known, ours = log.end_offset_for_epoch(end.leader_epoch)
            offset = min(end.end_offset, ours) if known >= 0 else log.offsets.log_start_offset
            earlier = known if 0 <= known < end.leader_epoch else None
        if offset < log.offsets.log_end_offset:
            before = log.offsets
            try:
                await self._keeper.cut(copy, offset)
            except BrokerError as error:
                logger.error("%s: %s", copy.tp, error.message)
                self._later(copy, self._retry)
                return None
            logger.warning(
                "%s: cut at %d in leader epoch %d; it ended at %d, committed up to %d",
                copy.tp, log.offsets.log_end_offset, epoch, before.log_end_offset, before.high_watermark,
            )  # fmt: skip
        if earlier is not None:
            return earlier
        if copy.replica.epoch == epoch:
            copy.joined = epoch
        return None

    async def _ask_ends(self, asked: Sequence[tuple[Copy, int, int]]) -> dict[Copy, EpochEndOffset]:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for copy, epoch, newest in asked:
            tp = copy.tp
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(tp.topic, []))
            topic.partitions.append(OffsetForLeaderPartition(tp.partition, epoch, newest))
        response: OffsetForLeaderEpochResponse = await self._connection.request(
            _EPOCH_KEY,
            _EPOCH_VERSION,
            OffsetForLeaderEpochRequest(self._config.broker_id, list(topics.values())),
        )
        found = {
            TopicPartition(topic.topic, end.partition): end
            for topic in response.topics
            for end in topic.partitions
        }
        return {c: found[c.tp] for c, _, _ in asked if c.tp in found}

    # --- fetching ------------------------------------------------------------------------------------------

    async def _fetch(self, copies: Sequence[Copy]) -> None:
        config = self._config
        topics: dict[UUID, FetchTopic] = {}
        epochs = {}
        for copy in copies:
            epochs[copy] = copy.replica.epoch
            topic = topics.setdefault(copy.topic_id, FetchTopic("", copy.topic_id, []))
            topic.partitions.append(
                FetchPartition(
                    copy.tp.partition,
                    copy.replica.epoch,
                    copy.log.offsets.log_end_offset,
                    copy.log.leader_epoch,
                    copy.log.offsets.log_start_offset,
                    config.replica_fetch_partition_max_bytes,
                    high_watermark=copy.replica.high_watermark,
                )
            )
        request = FetchRequest(
            replica_state=ReplicaState(config.broker_id),
            max_wait_ms=config.replica_fetch_wait_ms,
            min_bytes=1,
            max_bytes=config.replica_fetch_max_bytes,
            topics=list(topics.values()),
        )
        response = await self._ask_for(request, copies)
        if response is None:
            return
        if response.error_code:
            raise PeerError(f"broker {self._peer.broker_id} refused a fetch: error {response.error_code}")
        by_id = {(c.topic_id, c.tp.partition): c for c in copies}
        fetched = []
        for answered in response.responses:
            for data in answered.partitions:
                found = by_id.get((answered.topic_id, data.partition_index))
                if found is not None and found.replica.epoch == epochs[found] and found.replica.follows:
                    fetched.append((found, data))
        await self._take_all(fetched, epochs)

    async def _ask_for(self, request: FetchRequest, copies: Sequence[Copy]) -> FetchResponse | None:
        """The answer to a fetch of these partitions; None if there are others to be followed meanwhile."""
        wait_ms = self._config.replica_fetch_wait_ms
        asking = self._connection.request(FETCH, _FETCH_VERSION, request, wait_ms=wait_ms)
        self._named = frozenset(copies)
        self._fetching = task = asyncio.create_task(asking)
        if self._news.is_set():  # since these were chosen
            self._interrupt_soon()
        try:
            await asyncio.wait([task])
        finally:
            self._fetching = None
            task.cancel()
        return None if task.cancelled() else task.result()

    async def _take_all(self, fetched: Sequence[tuple[Copy, PartitionData]], epochs: dict[Copy, int]) -> None:
        taken = []
        for copy, data in fetched:
            try:
                if data.error_code:
                    await self._failed(copy, data)
                else:
                    self._take(copy, data)
                    taken.append((copy, data))
            except BrokerError as error:
                logger.error("%s: %s", copy.tp, error.message)
                self._later(copy, self._retry)
        completed = []
        for copy, data in taken:
            replica = copy.replica
            completes = replica.complete < replica.epoch
            if copy.log.unflushed and (self._config.replica_fsync or completes):
                await self._keeper.flush(copy.log)
            if replica.epoch != epochs[copy] or not replica.follows:
                continue
            moved, complete = replica.copied(copy.log.offsets.log_end_offset, data.high_watermark)
            if complete:
                completed.append(copy)
            if moved or data.records:
                self._keeper.moved(copy)
        if completed:
            # Before the next fetch, which lets the leader count on it.
            await self._keeper.remember(completed)

    def _take(self, copy: Copy, data: PartitionData) -> None:
        records = data.records
        copy.backoff = 0.0
        if records:
            assert isinstance(records, memoryview)
            headers = []
            for position, header in batches(records):
                if not check_crc(records, position, header):
                    raise BrokerError(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"The leader sent a batch at offset {header.base_offset} with a wrong checksum.",
                    )
                headers.append(header)
            copy.log.append_copy(records, headers)
        log = copy.log
        start = min(data.log_start_offset, copy.replica.high_watermark, log.offsets.log_end_offset)
        if start > log.offsets.log_start_offset:
            log.truncate_prefix(start)

    async def _failed(self, copy: Copy, data: PartitionData) -> None:
        code = ErrorCode(data.error_code)
        log = copy.log
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if data.log_start_offset > log.offsets.log_end_offset:
                logger.warning(
                    "%s: the leader has nothing before offset %d; the copy starts again at that offset",
                    copy.tp, data.log_start_offset,
                )  # fmt: skip
                await self._keeper.start_at(copy, data.log_start_offset)
                return
            copy.joined = -1
        self._refused(copy, code)

    def _refused(self, copy: Copy, code: ErrorCode) -> None:
        """The leader refuses: it may not lead any more, or not know of the partition yet."""
        if code is ErrorCode.UNKNOWN_TOPIC_ID and copy.backoff < self._retry:
            # All brokers learn of a new topic at the same time, and this one was faster.
            copy.backoff = copy.backoff * 2 or _FIRST_BACKOFF
            self._later(copy, copy.backoff)
            return
        self._later(copy, self._retry)
        self._keeper.disowned(copy, self._peer.broker_id)
        logger.info("%s: broker %d answers %s", copy.tp, self._peer.broker_id, code.name)

    def _later(self, copy: Copy, seconds: float) -> None:
        copy.resting = copy.replica.epoch
        asyncio.get_running_loop().call_later(seconds, self._resume, copy)

    def _resume(self, copy: Copy) -> None:
        copy.resting = -1
        self.wake()
