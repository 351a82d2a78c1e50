"""The verbs on roles: who leads a partition, how far its followers are, and what brokers ask each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from core.broker.merged import MergedVerbs
from core.broker.state import PartitionInfo, TopicInfo
from core.config import Endpoint
from core.errors import BrokerError, ErrorCode
from core.replication.copies import Copy
from core.replication.epochs import next_epoch
from core.replication.peer import PEER_CLIENT_ID
from core.replication.replicas import METADATA, METADATA_ID
from core.types import LogRead, TopicPartition

Role = Literal["leader", "follower"]
# The high watermark of a follower that does not say which one it knows: it waits for records alone.
UNSAID = 0x7FFF_FFFF_FFFF_FFFF
# Seconds for which a newer high watermark waits for records to go with it. Without it each record that is written
# alone would cost its follower two fetches, and the next record would find it between them.
_LINGER = 0.005


class Placement(NamedTuple):
    """The leader of a partition (−1: none), its epoch (−1: not known here), the replicas, and those in sync.

    Only the leader knows the last; elsewhere it is what was seen last, and the leader.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class FollowerRead(NamedTuple):
    """One partition of a follower's fetch, by topic id. What it asks for says that it has everything below.

    `high_watermark` is the one that the follower knows; a newer one is answered at once (KIP-1166).
    """

    topic_id: UUID
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    high_watermark: int = UNSAID


class FollowerFetched(NamedTuple):
    """The answer for one partition: batches up to the end of the log, or the refusal.

    `news`: a newer high watermark than the follower knows. `urgent`: records, or the refusal.
    """

    read: LogRead | None
    error: BrokerError | None = None
    news: bool = False

    @property
    def urgent(self) -> bool:
        """Whether the follower must not wait for the answer."""
        return self.read is None or self.read.slice is not None


class Voter(NamedTuple):
    """A broker that holds the metadata: the end of its log, and when it last fetched, and last had everything.

    Both are milliseconds of the wall clock; −1 where this is not known.
    """

    broker_id: int
    log_end_offset: int
    fetched_ms: int
    caught_up_ms: int


class Quorum(NamedTuple):
    """The brokers that hold the metadata, as their leader sees them."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[Voter]


class RoleVerbs(MergedVerbs):
    """Everything that doors and other brokers do with roles."""

    async def set_partition_role(
        self, topic_partition: TopicPartition, role: Role, *, unclean: bool = False
    ) -> PartitionInfo:
        """Let this broker lead a partition, or stop leading it.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where it holds no replica,
        ELIGIBLE_LEADERS_NOT_AVAILABLE where something acknowledged could get lost, unless `unclean`;
        KAFKA_STORAGE_ERROR.
        """
        copy = self._copy_of(topic_partition)
        replica = copy.replica
        if role == "follower":
            if replica.leads:
                replica.resign()
                self._role_changed(copy)
        elif not replica.leads:
            if self.cluster is not None and len(replica.replicas) > 1:
                await self.cluster.promote(copy, unclean=unclean)
            else:
                replica.promise(next_epoch(replica.epoch, self.config.broker_id))
                replica.lead(copy.log.offsets.log_end_offset, self.clock.monotonic())
                self.replicas.appended(copy)
                self._role_changed(copy)
        if len(replica.replicas) == 1 and replica.epoch > self.leader_epoch:
            # A restart forgets the role, but the epoch must not go back.
            await self.raise_leader_epoch(replica.epoch)
        return self.partition(topic_partition)

    def placed(self, topic: TopicInfo, partition: int) -> Placement:
        """Who leads a partition and who copies it, without opening its log."""
        copy = self.replicas.get(TopicPartition(topic.name, partition)) if self.replicas else None
        if copy is None:
            replicas = topic.replicas or (self.config.broker_id,)
            # The epoch of a broker that leads alone is known to itself only.
            epoch = self.leader_epoch if replicas[0] == self.config.broker_id else -1
            return Placement(replicas[0], epoch, replicas, replicas[:1])
        replica = copy.replica
        isr = tuple(r for r in replica.replicas if r in replica.isr or r == replica.leader)
        return Placement(replica.leader, replica.epoch, replica.replicas, isr)

    def peers(self) -> list[tuple[int, Endpoint]]:
        """(id, address for Kafka clients) of the other brokers of the cluster, by id."""
        cluster = self.cluster
        return [] if cluster is None else [(i, cluster.address(i)) for i in sorted(cluster.peers)]

    def quorum(self) -> Quorum | None:
        """The brokers that hold the metadata; None unless this broker leads them. One alone has an empty log."""
        now, wall = self.clock.monotonic(), self.clock.wall_ms()
        copy = self.replicas.get(METADATA)
        if copy is None:
            return Quorum(self.config.broker_id, 0, 0, [Voter(self.config.broker_id, 0, wall, wall)])
        replica = copy.replica
        if not replica.leads:
            return None
        voters = []
        for broker_id in replica.replicas:
            progress = replica.followers.get(broker_id)
            if progress is None:
                voters.append(Voter(broker_id, copy.log.offsets.log_end_offset, wall, wall))
            elif not progress.heard:
                voters.append(Voter(broker_id, progress.end, -1, -1))
            else:
                fetched, caught_up = (
                    wall - round((now - at) * 1000) for at in (progress.asked_at, progress.caught_up_at)
                )
                voters.append(Voter(broker_id, progress.end, fetched, caught_up))
        return Quorum(replica.leader, replica.epoch, replica.high_watermark, voters)

    async def ask_metadata_leader(self, client_id: str | None, key: int, version: int, request: Any) -> Any:
        """Forward a client's request of the Kafka protocol to the broker that keeps topics, groups and offsets.

        Raises NOT_LEADER_OR_FOLLOWER while no other broker is known to, or it does not answer, and for a request that
        was forwarded to this one: two brokers that take each other for the leader must not send it to and fro.
        """
        leader = self.metadata_leader
        forwarded = client_id is not None and client_id.startswith(PEER_CLIENT_ID)
        if self.cluster is None or leader not in self.cluster.peers or forwarded:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"No other broker is known to lead {METADATA}.",
                leader=leader,
            )
        return await self.cluster.forward(leader, key, version, request)

    async def lead_everything(self, *, unclean: bool = False) -> dict[TopicPartition, BrokerError | None]:
        """Let this broker lead all partitions of which it holds a replica; what became of each."""
        if self.cluster is None:
            return {}
        mine = [copy for copy in self.replicas if not copy.replica.leads]
        done = await self.cluster.promote_all(mine, unclean=unclean)
        return {copy.topic_partition: error for copy, error in done.items()}

    def _copy_of(self, topic_partition: TopicPartition) -> Copy:
        copy = self.replicas.get(topic_partition)
        if copy is None:
            log = self.log(topic_partition)
            copy = self.replicas.add(
                topic_partition,
                log.topic_id,
                (self.config.broker_id,),
                created=True,
                high_watermark=log.offsets.log_end_offset,
            )
            current = self.epoch_of(log)
            if copy.replica.epoch < current:
                copy.replica.promise(next_epoch(current - 1, self.config.broker_id))
                copy.replica.lead(log.offsets.log_end_offset, self.clock.monotonic())
        return copy

    def _role_changed(self, copy: Copy) -> None:
        if not copy.replica.leads:
            self.replicas.deposed(copy)
        self.metadata_version += 1
        if self.cluster is not None:
            self.cluster.changed(copy)

    # --- followers -------------------------------------------------------------------------------------------

    def report_progress(self, topic_partition: TopicPartition, replica: int, offset: int) -> PartitionInfo:
        """The follower on the broker `replica` has everything below `offset`.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST where that broker is no follower,
        OFFSET_OUT_OF_RANGE beyond the end of the log.
        """
        copy = self.replicas.get(topic_partition)
        if copy is None:
            self.log(topic_partition)
        if copy is None or replica not in copy.replica.replicas or replica == self.config.broker_id:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {replica} holds no copy of {topic_partition} to report of.",
            )
        self._progress(copy, replica, offset)
        return self.partition(topic_partition)

    def _progress(self, copy: Copy, replica: int, offset: int) -> None:
        if not copy.replica.source or replica not in copy.replica.followers:
            raise self.replicas.not_leader(copy)
        bounds = copy.log.offsets
        if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log of {copy.topic_partition} holds offsets from {bounds.log_start_offset} up to "
                f"{bounds.log_end_offset}, not {offset}.",
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
        self.replicas.progress(copy, replica, offset)

    async def follower_fetch(
        self, replica: int, reads: Sequence[FollowerRead], *, max_bytes: int, wait_ms: int
    ) -> list[FollowerFetched]:
        """The batches that a follower lacks, also those that are not committed; waits until there are any, or more of
        what it has is committed than it knows."""
        found = [self._begin_read(replica, read) for read in reads]
        copies = [one for one in found if isinstance(one, Copy)]
        answers = self._read_all(reads, found, max_bytes)
        keys = [copy.topic_partition for copy in copies]

        async def wait(seconds: float, enough: Callable[[FollowerFetched], bool]) -> None:
            def check() -> bool:
                nonlocal answers
                answers = self._read_all(reads, found, max_bytes)
                return any(map(enough, answers))

            if not any(map(enough, answers)) and not await self.purgatory.wait(keys, seconds, check):
                check()

        await wait(wait_ms / 1000, lambda answer: answer.urgent or answer.news)
        await wait(min(wait_ms / 1000, _LINGER), lambda answer: answer.urgent)
        return answers

    def _begin_read(self, replica: int, read: FollowerRead) -> Copy | BrokerError:
        copy = self.replicas.by_id(read.topic_id.bytes, read.partition)
        if copy is None:
            return BrokerError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"There is no copy of the topic with the id {read.topic_id} here."
            )
        try:
            if read.leader_epoch > copy.replica.epoch and self.cluster is not None:
                self.cluster.heard_of(copy, read.leader_epoch)
            self._check_follower(copy, read)
            self._progress(copy, replica, read.offset)
        except BrokerError as error:
            return error
        return copy

    def _check_follower(self, copy: Copy, read: FollowerRead) -> None:
        if not copy.replica.source:
            raise self.replicas.not_leader(copy)
        self.check_leader_epoch(copy.replica.epoch, read.leader_epoch)

    def _read_all(
        self, reads: Sequence[FollowerRead], found: Sequence[Copy | BrokerError], max_bytes: int
    ) -> list[FollowerFetched]:
        answers = []
        total = 0
        for read, one in zip(reads, found, strict=True):
            if isinstance(one, BrokerError):
                answers.append(FollowerFetched(None, one))
                continue
            try:
                self._check_follower(one, read)
                got = one.log.read(
                    read.offset,
                    min(max_bytes - total, read.max_bytes),
                    min_one=total == 0,
                    end_offset=one.log.offsets.log_end_offset,
                )
            except BrokerError as error:
                answers.append(FollowerFetched(None, error))
                continue
            total += got.slice.length if got.slice is not None else 0
            answers.append(FollowerFetched(got, None, got.offsets.high_watermark > read.high_watermark))
        return answers

    async def exchange(self, data: bytes) -> bytes:
        """Answer what another broker asks about roles. Raises ValueError; also if this broker has no peers."""
        if self.cluster is None:
            raise ValueError("there are no peers")
        return await self.cluster.answer(data)

    # --- start and checkpoint ----------------------------------------------------------------------------------

    def open_replicas(self, high_watermarks: dict[TopicPartition, int]) -> Copy:
        """Take the replicated partitions before anything is served; the one of metadata."""
        brokers = sorted({self.config.broker_id, *(peer.broker_id for peer in self.config.peers)})
        for topic in self._topics.values():
            if len(topic.replicas) > 1 and self.holds(topic):
                for partition in range(topic.partitions):
                    tp = TopicPartition(topic.name, partition)
                    known = high_watermarks.get(tp, 0)
                    self.replicas.add(tp, topic.topic_id, topic.replicas, created=False, high_watermark=known)
        known = high_watermarks.get(METADATA, 0)
        return self.replicas.add(METADATA, METADATA_ID, brokers, created=False, high_watermark=known)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What is committed of each replicated partition, for the checkpoint."""
        return {copy.topic_partition: copy.replica.high_watermark for copy in self.replicas}
