"""The partitions of the cluster, as `broker.partitions`: windows of batches that all readers share, and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from core.changes import TopicChanges
from core.client.cluster import ClusterClient
from core.client.fetcher import Fetcher, Stretch
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from core.records.validation import ProduceBatches
from core.types import (
    AppendResult,
    LogOffsets,
    LogRead,
    MemorySlice,
    ProducerState,
    TimestampOffset,
    TopicPartition,
)
from core.upstream.bounds import Bounds
from core.upstream.failures import NotAtHandError, about
from core.upstream.topics import Topics
from core.upstream.waiting import FollowingPurgatory
from core.vocabulary.capabilities import unsupported
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.records import Fetched, FetchedAll, FetchRead
from core.vocabulary.topic import TopicInfo, check_partition
from core.vocabulary.transactions import TransactionalWrite

# How long a read at the end waits for the records that ListOffsets has told of: the Fetch that brings them is under
# way.
_ARRIVAL_SECONDS = 2.0
# The same, if the reader has records of other partitions.
_SHORT_SECONDS = 0.25
# Attempts to bring batches to hand that are dropped at once.
_TRIES = 3
# A partition is followed for an isolation level this long after it was last read so. A stream that waits reads
# nothing; it must not lose its level before it ends.
_LEVEL_SECONDS = 3_600.0


class Partitions:
    """The partitions of the topics that the cluster shows to this gateway."""

    def __init__(
        self,
        config: Config,
        cluster: ClusterClient,
        fetcher: Fetcher,
        topics: Topics,
        bounds: Bounds,
        purgatory: FollowingPurgatory,
        changes: TopicChanges,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._fetcher = fetcher
        self._topics = topics
        self._bounds = bounds
        self._purgatory = purgatory
        self._changes = changes
        self._followers: dict[tuple[TopicPartition, bool], asyncio.Task[None]] = {}
        # The ends at which a reader has waited for batches in vain.
        self._late: dict[TopicPartition, int] = {}
        # When a partition was read last with an isolation level (committed or not): waits do not name one.
        self._read_at: dict[tuple[TopicPartition, bool], float] = {}

    # --- bounds --------------------------------------------------------------------------------------------

    def check(self, tp: TopicPartition) -> None:
        """Raise UNKNOWN_TOPIC_OR_PARTITION unless the partition is known."""
        topic = self._topics.get(tp.topic)
        if not 0 <= tp.partition < topic.partitions:
            check_partition(topic, tp.partition)

    def offsets(self, tp: TopicPartition) -> LogOffsets:
        """See `facade.Partitions.offsets`."""
        self.check(tp)
        return self._bounds.get(tp)

    def bounds(self, topic: str, partitions: Iterable[int]) -> list[LogOffsets]:
        """See `facade.Partitions.bounds`."""
        return [self.offsets(TopicPartition(topic, partition)) for partition in partitions]

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """See `facade.Partitions.info`. The cluster does not tell sizes; this process leads nothing."""
        offsets = self.offsets(tp)
        one = self._cluster.partition(tp)
        return PartitionInfo(
            tp, offsets, None, one.leader_epoch, one.leader, one.replicas, one.isr, leads=False
        )

    def offset_for_time(
        self, tp: TopicPartition, timestamp: int, leader_epoch: int = -1, *, committed: bool = False
    ) -> TimestampOffset:
        """See `facade.Partitions.offset_for_time`: what the last `look` with this moment has found."""
        self.check(tp)
        return self._bounds.at((tp, timestamp, committed))

    async def look(
        self, tps: Collection[TopicPartition], moment: int | None, *, committed: bool, fresh: bool
    ) -> None:
        """Bring the bounds of partitions to hand, or the answers of a search by time; without those that are not."""
        there = [tp for tp in tps if self._exists(tp)]
        if moment is not None:
            if there:
                await self._bounds.look_at_moment(there, moment, committed=committed)
            return
        await self._bounds.look([tp for tp in there if fresh or not self._is_followed(tp)])

    def _is_followed(self, tp: TopicPartition) -> bool:
        if self._bounds.find(tp) is None:
            return False
        bounds = self._fetcher.bounds
        return bounds(tp, committed=True) is not None or bounds(tp, committed=False) is not None

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._topics.find(tp.topic)
        return topic is not None and 0 <= tp.partition < topic.partitions

    def check_leader_epoch(self, current: int, epoch: int) -> None:
        """See `facade.Partitions.check_leader_epoch`: the leader checks it."""

    # --- read ----------------------------------------------------------------------------------------------

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> FetchedAll:
        """See `facade.Partitions.fetch_now`. A read that is not at hand has a `NotAtHandError`: `bring` it first."""
        fetched: list[Fetched] = []
        total, refused = 0, False
        left = min(max_bytes, self._config.fetch_max_bytes)
        for read in reads:
            if left <= 0 and total and not min_one_each:
                known = self._bounds.find(read.tp)
                if known is not None:
                    fetched.append(Fetched(read.tp, LogRead(None, known)))
                    continue
            try:
                got = self._at_hand(read, max(min(left, read.max_bytes), 1))
            except BrokerError as error:
                fetched.append(Fetched(read.tp, None, error))
                refused = True
                continue
            total += got.slice.length if got.slice is not None else 0
            left = max(min(max_bytes, self._config.fetch_max_bytes) - total, 0)
            fetched.append(Fetched(read.tp, got))
        return FetchedAll(fetched, total, refused, self._changes.event)

    def _at_hand(self, read: FetchRead, max_bytes: int) -> LogRead:
        tp = read.tp
        self.check(tp)
        try:
            found = self._fetcher.at_hand(tp, read.offset, max_bytes=max_bytes, committed=read.committed)
        except BrokerError as error:
            raise about(tp, error) from None
        known = self._bounds.find(tp)
        if known is not None and not known.log_start_offset <= read.offset <= known.high_watermark:
            # Also of batches that are at hand: they may be deleted by now.
            raise out_of_range(tp, read.offset, known)
        if found is not None and (len(found.data) or known is None):
            return _log_read(found, known or found.offsets)
        if known is not None and read.offset >= known.end(committed=read.committed):
            # Also above the last stable offset: that may be read once the transactions have ended.
            return LogRead(None, known)
        if (refused := self._bounds.refusal(tp)) is not None:
            raise refused
        raise NotAtHandError(f"The records of {tp} at offset {read.offset}")

    async def bring(self, reads: Sequence[FetchRead], *, max_bytes: int, fresh: bool) -> None:
        """See `facade.Logs.bring`."""
        missing: list[FetchRead] = []
        ended: list[FetchRead] = []
        short: list[FetchRead] = []
        have = 0
        now = self._cluster.clock.monotonic()
        sure = await self._make_sure(reads) if fresh else ()
        for read in reads:
            tp = read.tp
            if not self._exists(tp):
                continue
            self._read_at[tp, read.committed] = now
            known = self._bounds.find(tp)
            end = -1 if known is None else known.end(committed=read.committed)
            if read.offset >= end >= 0 and not fresh:
                continue
            found = self._try(read)
            if found is None:
                missing.append(read)
                have += read.max_bytes
            elif not len(found.data):
                ended.append(read)
            else:
                have += len(found.data)
                if found.next_offset < end and len(found.data) < read.max_bytes:
                    short.append(read._replace(offset=found.next_offset))
            if have >= max_bytes and not fresh:
                break
        if missing:
            await asyncio.gather(*(self._bring_one(read) for read in missing))
        if ended and not have and fresh:
            # There may be more by now.
            tps = [read.tp for read in ended if read.tp not in sure]
            await self._bounds.look_at_ends(tps, committed=ended[0].committed)
        if ended or short:
            # A piece that is at hand but not the last one is no reason to wait.
            short = [read for read in short if (at := self._try(read)) is not None and not len(at.data)]
            await self._wait_for_arrival(ended + short, have > 0)

    async def _make_sure(self, reads: Sequence[FetchRead]) -> Collection[TopicPartition]:
        """Ask for the last stable offsets of partitions that records were appended to since they were told.

        A read must have what was acknowledged before it. Without batches at hand the read itself asks the leader.
        Returns these partitions.
        """
        unsure = [
            read.tp
            for read in reads
            if read.committed and self._bounds.is_unsure(read.tp) and self._try(read) is not None
        ]
        if unsure:
            await self._bounds.look_at_ends(unsure, committed=True)
        return unsure

    def _try(self, read: FetchRead) -> Stretch | None:
        try:
            return self._fetcher.at_hand(
                read.tp, read.offset, max_bytes=read.max_bytes, committed=read.committed
            )
        except BrokerError:
            return None

    async def _bring_one(self, read: FetchRead) -> None:
        tp = read.tp
        try:
            for _ in range(_TRIES):
                found = await self._fetcher.bring(
                    tp, read.offset, max_bytes=read.max_bytes, committed=read.committed
                )
                # Batches are not kept if the leader has moved, or the topic is another one, in between.
                if not len(found.data) or self._try(read) is not None:
                    break
        except BrokerError as error:
            await self._refused(tp, error)
            return
        self._bounds.arrived(tp, found.offsets)

    async def _refused(self, tp: TopicPartition, error: BrokerError) -> None:
        """A read was refused: bring what the synchronous call needs to say why."""
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._bounds.look((tp,))
        elif error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            await self._topics.look((tp.topic,), configs=False)
            self._bounds.refuse(tp, error)
        else:
            self._bounds.refuse(tp, error)

    async def _wait_for_arrival(self, reads: Sequence[FetchRead], have: bool) -> None:
        """Wait for batches below the known ends that the long polls of followed partitions have not brought yet.

        They are under way, or late: the leader has moved, or was lost. A reader that did not wait would ask without a
        pause. One that has something else (`have`) waits for a short time, and once for each end.
        """

        def end_of(read: FetchRead) -> int:
            known = self._bounds.find(read.tp)
            return -1 if known is None else known.end(committed=read.committed)

        def arrived(read: FetchRead) -> bool:
            if read.offset >= end_of(read):
                return True
            found = self._try(read)
            return found is not None and len(found.data) > 0

        late = [
            read
            for read in reads
            if not arrived(read) and not (have and self._late.get(read.tp) == end_of(read))
        ]
        if not late:
            return
        seconds = _SHORT_SECONDS if have else _ARRIVAL_SECONDS
        await self._purgatory.wait([read.tp for read in late], seconds, lambda: all(map(arrived, late)))
        for read in late:
            if arrived(read):
                self._late.pop(read.tp, None)
            else:
                self._late[read.tp] = end_of(read)

    async def fetch(
        self,
        reads: Sequence[FetchRead],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        min_one_each: bool = False,
        first: FetchedAll | None = None,
    ) -> list[Fetched]:
        """See `facade.Partitions.fetch`."""
        clock = self._cluster.clock
        until = clock.monotonic() + min(wait_ms, self._config.max_wait_ms) / 1000
        if first is None or self._happened(reads, first.event):
            await self.bring(reads, max_bytes=max_bytes, fresh=first is None)
            first = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
        fetched = first

        def check() -> bool:
            nonlocal fetched
            fetched = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
            return fetched.refused or fetched.size >= min_bytes

        while True:
            if any(isinstance(one.error, NotAtHandError) for one in fetched.answers):
                # Batches that are on their way, or that other readers have pushed out of the window.
                await self.bring(reads, max_bytes=max_bytes, fresh=False)
                if check() and not any(isinstance(one.error, NotAtHandError) for one in fetched.answers):
                    break
            elif fetched.refused or fetched.size >= min_bytes:
                break
            left = until - clock.monotonic()
            if left <= 0:
                break
            if not await self._purgatory.wait([read.tp for read in reads], left, check):
                check()
                break
        return fetched.answers

    def _happened(self, reads: Sequence[FetchRead], event: int) -> bool:
        touched = self._changes.touched
        return event != self._changes.event and any(
            touched.get(read.tp.topic, event + 1) > event for read in reads
        )

    # --- follow --------------------------------------------------------------------------------------------

    def arrived(self, tp: TopicPartition) -> None:
        """Take the news of a followed partition; for the fetcher."""
        followed = False
        for committed in (True, False):
            found = self._fetcher.bounds(tp, committed=committed)
            if found is not None:
                followed = True
                self._bounds.arrived(tp, found)
        if not followed:
            # The log was cut, or the topic is another one: the end may have moved back.
            self._start(tp, committed=True, afresh=True)
        self._purgatory.notify(tp)

    def grown(self, topic: str, before: int, after: int) -> None:
        """Take new partitions of a topic: their logs begin at 0, and what waits for the topic waits for them."""
        for partition in range(before, after):
            self._bounds.begin(TopicPartition(topic, partition))
        if topic in self._purgatory.awaited():
            self.follow(topic)

    def follow(self, key: Hashable) -> None:
        """Follow what a wait names, a partition or a topic; for the purgatory. Also what keeps it followed."""
        if isinstance(key, TopicPartition):
            self._follow(key)
        elif isinstance(key, str):
            topic = self._topics.find(key)
            if topic is not None:
                # Keeps its metadata up to date.
                self._cluster.topic(key)
                for partition in range(topic.partitions):
                    self._follow(TopicPartition(key, partition))

    def _follow(self, tp: TopicPartition) -> None:
        """Follow a partition as it was read lately: committed, uncommitted, or both."""
        if not self._exists(tp):
            return
        if self._is_read(tp, committed=False):
            self._follow_level(tp, committed=False)
            if not self._is_read(tp, committed=True):
                return
        self._follow_level(tp, committed=True)

    def _is_read(self, tp: TopicPartition, *, committed: bool) -> bool:
        read_at = self._read_at.get((tp, committed))
        if read_at is None:
            return False
        if self._cluster.clock.monotonic() - read_at < _LEVEL_SECONDS:
            return True
        del self._read_at[tp, committed]
        return False

    def _follow_level(self, tp: TopicPartition, *, committed: bool) -> None:
        known = self._bounds.find(tp)
        end = 0 if known is None else known.end(committed=committed)
        try:
            if self._fetcher.at_hand(tp, end, max_bytes=1, committed=committed) is not None:
                return
        except BrokerError:
            pass
        self._start(tp, committed=committed)

    def _start(self, tp: TopicPartition, *, committed: bool, afresh: bool = False) -> None:
        """Begin to follow a partition; `afresh`: where it ends must be asked."""
        key = tp, committed
        if key in self._followers or not self._exists(tp):
            return
        task = asyncio.get_running_loop().create_task(self._begin_to_follow(tp, committed, afresh))
        self._followers[key] = task
        task.add_done_callback(lambda _: self._followers.pop(key, None))

    async def _begin_to_follow(self, tp: TopicPartition, committed: bool, afresh: bool) -> None:
        try:
            if afresh or self._bounds.find(tp) is None:
                await self._bounds.look((tp,))
            known = self._bounds.find(tp)
            if known is not None:
                await self._bring_one(FetchRead(tp, known.end(committed=committed), 1, committed=committed))
        except BrokerError as error:
            self._bounds.refuse(tp, error)
        # What the wait has missed until now.
        self._purgatory.notify(tp)

    def forget(self, topic: TopicInfo) -> None:
        """Forget a topic that is not shown any more."""
        self._bounds.forget(topic.name, topic.partitions)
        for partition in range(topic.partitions):
            tp = TopicPartition(topic.name, partition)
            self._late.pop(tp, None)
            self._read_at.pop((tp, True), None)
            self._read_at.pop((tp, False), None)

    async def close(self) -> None:
        """End the tasks of this object."""
        tasks = list(self._followers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- delete --------------------------------------------------------------------------------------------

    async def delete_records(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int | BrokerError]:
        """See `facade.Partitions.delete_records`."""
        await self._topics.look({tp.topic for tp, _ in asked})
        items: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, BrokerError] = {}
        for tp, before_offset in asked:
            try:
                self.check(tp)
                items[tp] = before_offset
            except BrokerError as error:
                refused[tp] = error
        timeout_ms = self._cluster.settings.request_timeout_ms

        def build(part: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
            topics: dict[str, DeleteRecordsTopic] = {}
            for tp, offset in part.items():
                topic = topics.setdefault(tp.topic, DeleteRecordsTopic(tp.topic, []))
                topic.partitions.append(DeleteRecordsPartition(tp.partition, offset))
            return DeleteRecordsRequest(list(topics.values()), timeout_ms)

        def answers(answer: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
            for topic in answer.topics:
                for one in topic.partitions:
                    yield TopicPartition(topic.name, one.partition_index), one.error_code, one.low_watermark

        results = await self._cluster.ask_leaders(items, build, answers) if items else {}
        done: list[int | BrokerError] = []
        for tp, before_offset in asked:
            result: int | BrokerError = refused[tp] if tp in refused else results[tp]
            if isinstance(result, BrokerError) and tp not in refused:
                result = self._deletion_refused(tp, before_offset, result)
            elif not isinstance(result, BrokerError):
                self._bounds.start_moved(tp, result)
            done.append(result)
        return done

    def _deletion_refused(self, tp: TopicPartition, before_offset: int, error: BrokerError) -> BrokerError:
        known = self._bounds.find(tp)
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and known is not None:
            return out_of_range(tp, before_offset, known)
        if error.code is ErrorCode.POLICY_VIOLATION:
            return BrokerError(
                error.code,
                f"Records of {tp} are kept by key (cleanup.policy=compact): they cannot be deleted by offset. "
                "Add 'delete' to the policy.",
            )
        return about(tp, error)

    # --- what only an embedded broker has ------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        records: memoryview,
        *,
        acks: int = 1,
        built: bool = False,
        converted: ProduceBatches | None = None,
        transaction: TransactionalWrite | None = None,
    ) -> AppendResult:
        """See `facade.Partitions.append`. A leader in the cluster appends, so that it cannot be done at once."""
        raise unsupported("A gateway cannot append to a partition at once; produce records instead.")

    def append_checked(self, tp: TopicPartition, checked: ProduceBatches) -> AppendResult:
        """See `append`."""
        raise unsupported("A gateway cannot append to a partition at once; produce records instead.")

    def durable(
        self, tp: TopicPartition, acks: int, timeout_ms: int | None = None
    ) -> asyncio.Future[None] | None:
        """See `facade.Partitions.durable`: records that a produce has returned are acknowledged already."""
        return None

    def end_offset_for_epoch(
        self, tp: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """See `facade.Partitions.end_offset_for_epoch`: only a leader knows it."""
        raise unsupported(
            "The leader of the partition in the cluster knows the ends of leader epochs; ask it."
        )

    def segment_offsets(self, tp: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """See `facade.Partitions.segment_offsets`: the cluster does not show its segments."""
        raise unsupported("The cluster does not show the segments of its logs.")

    def active_producers(self, tp: TopicPartition) -> Iterator[ProducerState]:
        """See `facade.Partitions.active_producers`."""
        raise unsupported(
            "Ask the leader of the partition in the cluster for its producers (DescribeProducers)."
        )

    def disk_space(self) -> tuple[int, int]:
        """See `facade.Partitions.disk_space`: the disks are those of other machines."""
        raise unsupported("The disks of the cluster's brokers are not visible here.")


def out_of_range(tp: TopicPartition, offset: int, known: LogOffsets) -> BrokerError:
    """Return the error for an offset outside of the bounds of a partition."""
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Offset {offset} of {tp} is out of range: the log holds {known.log_start_offset} up to "
        f"{known.high_watermark}.",
        log_start_offset=known.log_start_offset,
        high_watermark=known.high_watermark,
    )


def _log_read(found: Stretch, offsets: LogOffsets) -> LogRead:
    if not len(found.data):
        return LogRead(None, offsets, offsets.last_stable_offset)
    return LogRead(MemorySlice(found.data), offsets, offsets.last_stable_offset, found.aborted)
