"""Roles: which broker leads a partition, how far its followers are, and what brokers ask each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from core.broker.partitions import Partitions
from core.broker.topic_table import TopicTable
from core.broker.unclean_start import LeaderEpochs
from core.changes import TopicChanges
from core.clock import Clock
from core.config import Config, Endpoint
from core.errors import BrokerError, ErrorCode
from core.purgatory import Purgatory
from core.replication.controller import Controller
from core.replication.copies import Copy
from core.replication.epochs import next_epoch
from core.replication.peer import PEER_CLIENT_ID
from core.replication.replicas import Replicas
from core.types import TopicPartition
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.replicas import (
    METADATA,
    METADATA_ID,
    FollowerFetched,
    FollowerRead,
    Placement,
    Quorum,
    Role,
    Voter,
)
from core.vocabulary.topic import TopicInfo

if TYPE_CHECKING:
    # Loaded by a broker with peers alone.
    from core.replication.cluster import Cluster

# Seconds for which a newer high watermark waits for records to go with it. Without it each record that is written
# alone would cost its follower two fetches, and the next record would find it between them.
_LINGER = 0.005
# Seconds for which a follower's fetch waits if the broker has too many waiting requests.
_CROWDED = 0.1


class Roles:
    """The roles of one broker, as `broker.roles`."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        topics: TopicTable,
        partitions: Partitions,
        replicas: Replicas,
        cluster: Cluster | None,
        controller: Controller,
        leader_epochs: LeaderEpochs,
        purgatory: Purgatory,
        changes: TopicChanges,
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._replicas = replicas
        self._cluster = cluster
        self._controller = controller
        self._leader_epochs = leader_epochs
        self._purgatory = purgatory
        self._changes = changes

    @property
    def metadata_leader(self) -> int:
        """The id of the broker that keeps topics, groups and offsets; −1 if none is known."""
        return self._controller.leader

    @property
    def alone(self) -> Placement | None:
        """The placement of every partition, as long as this broker leads all of them without replicas; else None."""
        if self._cluster is not None or self._replicas:
            return None
        one = (self._config.broker_id,)
        return Placement(one[0], self._leader_epochs.current, one, one)

    def is_peer(self, broker_id: int) -> bool:
        """Whether this is the id of another broker of the cluster."""
        return self._cluster is not None and broker_id in self._cluster.peers

    def replicated(self) -> list[TopicPartition]:
        """Return the replicated partitions, with the one of metadata."""
        return [copy.tp for copy in self._replicas]

    def leads(self) -> int:
        """Return the number of replicated partitions that this broker leads."""
        return sum(copy.replica.leads for copy in self._replicas)

    async def set(self, tp: TopicPartition, role: Role, *, unclean: bool = False) -> PartitionInfo:
        """Let this broker lead a partition, or stop leading it.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where it holds no replica,
        ELIGIBLE_LEADERS_NOT_AVAILABLE where something acknowledged could get lost, unless `unclean`;
        KAFKA_STORAGE_ERROR.
        """
        copy = self._copy_of(tp)
        replica = copy.replica
        if role == "follower":
            if replica.leads:
                replica.resign()
                self._role_changed(copy)
        elif not replica.leads:
            if self._cluster is not None and len(replica.replicas) > 1:
                await self._cluster.promote(copy, unclean=unclean)
            else:
                replica.promise(next_epoch(replica.epoch, self._config.broker_id))
                replica.lead(copy.log.offsets.log_end_offset, self._clock.monotonic())
                self._replicas.appended(copy)
                self._role_changed(copy)
        if len(replica.replicas) == 1 and replica.epoch > self._leader_epochs.current:
            # A restart forgets the role, but the epoch must not go back.
            await self._leader_epochs.raise_to(replica.epoch)
        return self._partitions.info(tp)

    def leader(self, tp: TopicPartition) -> int:
        """Return the broker that leads a partition; −1 if none is known. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return self.placed(self._topics.get(tp.topic), tp.partition).leader

    def placed(self, topic: TopicInfo, partition: int) -> Placement:
        """Return the leader and the replicas of a partition, without opening its log."""
        copy = self._replicas.get(TopicPartition(topic.name, partition)) if self._replicas else None
        if copy is None:
            replicas = topic.replicas or (self._config.broker_id,)
            # The epoch of a broker that leads alone is known to itself only.
            epoch = self._leader_epochs.current if replicas[0] == self._config.broker_id else -1
            return Placement(replicas[0], epoch, replicas, replicas[:1])
        replica = copy.replica
        isr = tuple(r for r in replica.replicas if r in replica.isr or r == replica.leader)
        return Placement(replica.leader, replica.epoch, replica.replicas, isr)

    def peers(self) -> list[tuple[int, Endpoint]]:
        """(id, address for Kafka clients) of the other brokers of the cluster, by id."""
        cluster = self._cluster
        return [] if cluster is None else [(i, cluster.address(i)) for i in sorted(cluster.peers)]

    def broker_ids(self) -> list[int]:
        """Return the ids of all brokers of the cluster, sorted."""
        peers = () if self._cluster is None else self._cluster.peers
        return sorted([self._config.broker_id, *peers])

    def quorum(self) -> Quorum | None:
        """The brokers that hold the metadata; None unless this broker leads them. One alone has an empty log."""
        now, wall = self._clock.monotonic(), self._clock.wall_ms()
        copy = self._replicas.get(METADATA)
        if copy is None:
            return Quorum(self._config.broker_id, 0, 0, [Voter(self._config.broker_id, 0, wall, wall)])
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
        if self._cluster is None or leader not in self._cluster.peers or forwarded:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"No other broker is known to lead {METADATA}.",
                leader=leader,
            )
        return await self._cluster.forward(leader, key, version, request)

    async def lead_everything(self, *, unclean: bool = False) -> dict[TopicPartition, BrokerError | None]:
        """Let this broker lead all partitions of which it holds a replica; what became of each."""
        if self._cluster is None:
            return {}
        mine = [copy for copy in self._replicas if not copy.replica.leads]
        done = await self._cluster.promote_all(mine, unclean=unclean)
        return {copy.tp: error for copy, error in done.items()}

    def _copy_of(self, tp: TopicPartition) -> Copy:
        copy = self._replicas.get(tp)
        if copy is None:
            log = self._partitions.log(tp)
            copy = self._replicas.add(
                tp,
                log.topic_id,
                (self._config.broker_id,),
                created=True,
                high_watermark=log.offsets.log_end_offset,
            )
            current = self._leader_epochs.of(log)
            if copy.replica.epoch < current:
                copy.replica.promise(next_epoch(current - 1, self._config.broker_id))
                copy.replica.lead(log.offsets.log_end_offset, self._clock.monotonic())
        return copy

    def _role_changed(self, copy: Copy) -> None:
        if not copy.replica.leads:
            self._replicas.deposed(copy)
        self._changes.answers_changed()
        if self._cluster is not None:
            self._cluster.changed(copy)

    # --- followers -------------------------------------------------------------------------------------------

    def report_progress(self, tp: TopicPartition, replica: int, offset: int) -> PartitionInfo:
        """The follower on the broker `replica` has everything below `offset`.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST where that broker is no follower,
        OFFSET_OUT_OF_RANGE beyond the end of the log.
        """
        copy = self._replicas.get(tp)
        if copy is None:
            self._partitions.log(tp)
        if copy is None or replica not in copy.replica.replicas or replica == self._config.broker_id:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {replica} holds no copy of {tp} to report of.",
            )
        self._progress(copy, replica, offset)
        return self._partitions.info(tp)

    def _progress(self, copy: Copy, replica: int, offset: int) -> None:
        if not copy.replica.source or replica not in copy.replica.followers:
            raise self._replicas.not_leader(copy)
        bounds = copy.log.offsets
        if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log of {copy.tp} holds offsets from {bounds.log_start_offset} up to "
                f"{bounds.log_end_offset}, not {offset}.",
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
        self._replicas.progress(copy, replica, offset)

    async def follower_fetch(
        self, replica: int, reads: Sequence[FollowerRead], *, max_bytes: int, wait_ms: int
    ) -> list[FollowerFetched]:
        """Return the batches that a follower lacks, also uncommitted ones.

        Wait until there are any, or until the high watermark is above the one that it knows.
        """
        found = [self._begin_read(replica, read) for read in reads]
        copies = [one for one in found if isinstance(one, Copy)]
        answers = self._read_all(reads, found, max_bytes)
        keys = [copy.tp for copy in copies]

        async def wait(seconds: float, enough: Callable[[FollowerFetched], bool]) -> None:
            def check() -> bool:
                nonlocal answers
                answers = self._read_all(reads, found, max_bytes)
                return any(map(enough, answers))

            if any(map(enough, answers)):
                return
            try:
                satisfied = await self._purgatory.wait(keys, seconds, check)
            except BrokerError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise
                # Too many requests wait. A follower that got an empty answer at once would fetch again at once.
                await asyncio.sleep(min(seconds, _CROWDED))
                satisfied = False
            if not satisfied:
                check()

        await wait(wait_ms / 1000, lambda answer: answer.urgent or answer.news)
        await wait(min(wait_ms / 1000, _LINGER), lambda answer: answer.urgent)
        return answers

    def _begin_read(self, replica: int, read: FollowerRead) -> Copy | BrokerError:
        copy = self._replicas.by_id(read.topic_id.bytes, read.partition)
        if copy is None:
            return BrokerError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"There is no copy of the topic with the id {read.topic_id} here."
            )
        try:
            if read.leader_epoch > copy.replica.epoch and self._cluster is not None:
                self._cluster.note_newer_epoch(copy, read.leader_epoch)
            self._check_follower(copy, read)
            self._progress(copy, replica, read.offset)
        except BrokerError as error:
            return error
        return copy

    def _check_follower(self, copy: Copy, read: FollowerRead) -> None:
        if not copy.replica.source:
            raise self._replicas.not_leader(copy)
        self._partitions.check_leader_epoch(copy.replica.epoch, read.leader_epoch)

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

    def check_peer(self, broker_id: int) -> None:
        """See `facade.Roles.check_peer`. Without a caller there is nothing to check."""

    async def exchange(self, data: bytes, asked_by: int | None = None) -> bytes:
        """Answer what another broker asks about roles. See `facade.Roles.exchange`."""
        if self._cluster is None:
            raise ValueError("there are no peers")
        return await self._cluster.answer(data, asked_by)

    # --- start and checkpoint ----------------------------------------------------------------------------------

    def open_replicas(self, high_watermarks: dict[TopicPartition, int]) -> Copy:
        """Take the replicated partitions before anything is served; the one of metadata."""
        brokers = sorted({self._config.broker_id, *(peer.broker_id for peer in self._config.peers)})
        for topic in self._topics.all():
            if len(topic.replicas) > 1 and self._config.broker_id in topic.replicas:
                for partition in range(topic.partitions):
                    tp = TopicPartition(topic.name, partition)
                    known = high_watermarks.get(tp, 0)
                    self._replicas.add(
                        tp, topic.topic_id, topic.replicas, created=False, high_watermark=known
                    )
        known = high_watermarks.get(METADATA, 0)
        return self._replicas.add(METADATA, METADATA_ID, brokers, created=False, high_watermark=known)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What is committed of each replicated partition, for the checkpoint."""
        return {copy.tp: copy.replica.high_watermark for copy in self._replicas}
