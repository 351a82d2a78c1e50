"""What must happen between a start after a crash and the first append.

Theory. A record can be read before it is fsynced. A power loss can take it after a group has committed its offset, or
while it is outstanding at a managed consumer. The log then ends before the group's committed offset. Once the log has
grown past that offset, the broker cannot tell the difference any more, and the group never reads the records in
between. So while the logs still end where recovery has found their ends:

    1  the leader epoch rises. Clients with KIP-320 notice: their fetches are fenced, and OffsetForLeaderEpoch returns
       the end of the epoch that they have read last
    2  committed offsets of all groups, also those of v0, that are beyond the end of their log move back to it
    3  so do positions and outstanding batches of managed consumers
    4  what queues know of records from there on is forgotten, or new records would be settled before they are read

All of it is on the disk before listeners open. If the disk refuses, the broker starts for reading: appends are
refused until it is done. The broker cannot know whether power was lost or only the process died. In the latter case
the logs are as long as before, and nothing moves.

A partition with one replica has the broker's own epoch, one number for all of them: a start costs one write, not one
for each partition. The epoch list of a log notes it with the first append.

In a cluster offsets live with the broker that keeps groups, and partitions with their leaders. Positions are cut
back where one broker is both: when it begins to keep groups, and when it begins to lead a partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from core.changes import TopicChanges
from core.config import Config
from core.consumers.consumers import Consumers
from core.counters import Counters
from core.errors import BrokerError
from core.groups.groups import Groups
from core.idempotency.keys import IdempotencyKeys
from core.log.log import Log
from core.log.manager import LogManager
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import put_setting
from core.queues.queues import Queues
from core.replication.epochs import leader_of, next_epoch
from core.replication.replicas import Replicas
from core.types import TopicPartition
from core.vocabulary.groups import Cut
from core.vocabulary.replicas import METADATA

if TYPE_CHECKING:
    # Loaded by a broker with peers alone.
    from core.replication.metadata_log import MetadataLog

logger = logging.getLogger(__name__)

# The single value that holds `LeaderEpochs.current`; each broker's own.
LEADER_EPOCH = "local.leader.epoch"
# Positions that are named one by one; of more only the number is logged, by group.
MAX_LINES = 20


class LeaderEpochs:
    """The leader epoch of every partition with one replica: one number for all. It never decreases.

    One number, so that an unclean start raises it with one write.
    """

    def __init__(self, store: Store, changes: TopicChanges) -> None:
        self._store = store
        self._changes = changes
        self.current = 0

    def load(self, settings: Mapping[str, str]) -> None:
        """Take the epoch from the store at the start."""
        self.current = int(settings.get(LEADER_EPOCH, "0"))

    def of(self, log: Log) -> int:
        """Return the leader epoch in force of a partition with one replica.

        A log may know a newer epoch than this broker: from a time when it had peers, or of a role that was given by
        hand. Metadata names one epoch for all of them, without a look into logs, so all of them take it.
        """
        if log.leader_epoch > self.current:
            # If it cannot be stored, the next look into this log finds it again.
            self._lead_in(log.leader_epoch)
            with contextlib.suppress(BrokerError):
                self._stored(log.leader_epoch).add_done_callback(_seen)
        return self.current

    async def raise_to(self, epoch: int) -> None:
        """Let partitions with one replica be led in a newer epoch. Raises KAFKA_STORAGE_ERROR.

        No client learns the epoch before it is durable, or the next unclean start could use it again.
        """
        await self._stored(epoch)
        self._lead_in(epoch)

    def _lead_in(self, epoch: int) -> None:
        if epoch > self.current:
            self.current = epoch
            self._changes.topics_changed()

    def _stored(self, epoch: int) -> asyncio.Future[None]:
        return self._store.submit([put_setting(LEADER_EPOCH, str(epoch)), CARRY_OVER], local=True)


def _seen(storing: asyncio.Future[None]) -> None:
    if not storing.cancelled():
        storing.exception()


class UncleanStart:
    """What is left to do after an unclean stop. `metadata` is None on a broker without peers."""

    def __init__(
        self,
        config: Config,
        counters: Counters,
        logs: LogManager,
        leader_epochs: LeaderEpochs,
        replicas: Replicas,
        metadata: MetadataLog | None,
    ) -> None:
        self._config = config
        self._counters = counters
        self._logs = logs
        self._leader_epochs = leader_epochs
        self._replicas = replicas
        self._metadata = metadata
        # Whether the disk has refused a step without which nothing may be appended.
        self.unsettled = False
        # Where each log ended, until positions beyond that are cut back.
        self._recovered: dict[TopicPartition, int] = {}
        self._epoch_to_come = 0
        # In a cluster: the epoch of the metadata at the start, until this broker keeps it first.
        self._last_served = -1

    async def begin(self) -> None:
        """Note where the logs end, and raise the leader epoch, before anything can be appended."""
        self._recovered = self._logs.recovered_ends()
        self._epoch_to_come = max(self._leader_epochs.current, self._logs.newest_epoch) + 1
        try:
            await self._leader_epochs.raise_to(self._epoch_to_come)
        except BrokerError as error:
            self._refused(error)

    def served_before(self, epoch: int) -> None:
        """Note the epoch of the metadata partition as the last run left it."""
        self._last_served = epoch

    async def attempt(self, step: Awaitable[None]) -> None:
        """Carry out a step without which nothing may be appended; `settle` tries again if the disk refuses it."""
        try:
            await step
        except BrokerError as error:
            if self._metadata is None:
                self._refused(error)
            else:
                # In a cluster a step may fail because of the others, and positions are no reason to refuse records.
                _log_refusal(error)

    def _refused(self, error: BrokerError) -> None:
        _log_refusal(error)
        self.unsettled = True

    async def settle(
        self, groups: Groups, consumers: Consumers, queues: Queues, idempotency: IdempotencyKeys
    ) -> None:
        """Try again what the disk has refused at the start. Raises KAFKA_STORAGE_ERROR."""
        if self.unsettled:
            await self._leader_epochs.raise_to(self._epoch_to_come)
            if self._metadata is None:
                await self.cut_back_groups(groups, self._recovered)
                await self.cut_back_consumers(consumers, self._recovered)
                await self.cut_back_queues(queues, self._recovered)
                await idempotency.open()
            self.unsettled, self._recovered = False, {}
            logger.info("the disk has taken what had to be stored; records are taken again")

    def settled(self) -> None:
        """Forget where the logs ended, if every step was carried out."""
        if not self.unsettled:
            self._recovered = {}

    def ends_to_cut(self) -> Mapping[TopicPartition, int]:
        """Return the ends of logs beyond which no position may be, for the moment before groups are served.

        In a cluster: of the partitions that this broker leads. If it has kept the groups until it was restarted, so
        that nothing was committed since, the ends are those at which it began to lead.
        """
        if self._metadata is None:
            return self._recovered
        epoch, before, own_id = self._metadata.epoch, self._last_served, self._config.broker_id
        at_once = leader_of(before) == own_id and epoch == next_epoch(before, own_id)
        self._last_served = -1
        ends: dict[TopicPartition, int] = {}
        if at_once and not self._recovered:
            return ends
        if at_once:
            ends = {tp: end for tp, end in self._recovered.items() if self._replicas.get(tp) is None}
        for copy in self._replicas:
            if copy.replica.leads and copy.tp != METADATA:
                end = copy.log.offsets.log_end_offset
                ends[copy.tp] = copy.replica.start if at_once else end
        self._recovered = {}
        return ends

    async def cut_back_groups(self, groups: Groups, ends: Mapping[TopicPartition, int]) -> None:
        """Move committed offsets back to these ends of logs, durably, and log it. Raises KAFKA_STORAGE_ERROR."""
        _report("committed offset", await groups.cut_back(ends), self._counters)

    async def cut_back_consumers(self, consumers: Consumers, ends: Mapping[TopicPartition, int]) -> None:
        """Move positions and outstanding batches of managed consumers back to these ends, durably, and log it.

        Raises KAFKA_STORAGE_ERROR.
        """
        _report("position of a managed consumer", await consumers.cut_back(ends), self._counters)

    async def cut_back_queues(self, queues: Queues, ends: Mapping[TopicPartition, int]) -> None:
        """Forget what queues know of records from these ends on, durably, and log it. Raises KAFKA_STORAGE_ERROR."""
        _report("end of what a queue has settled or leased", await queues.cut_back(ends), self._counters)


def _log_refusal(error: BrokerError) -> None:
    logger.error("after the unclean stop: %s", error.message)


def _report(what: str, cuts: list[Cut], counters: Counters) -> None:
    counters.positions_cut_back += len(cuts)
    for cut in cuts[:MAX_LINES]:
        logger.warning(
            "group %r, %s-%d: the %s was %d; the log ends at %d now, and it is moved there",
            cut.group_id, cut.topic, cut.partition, what, cut.before, cut.after,
        )  # fmt: skip
    more = Counter(cut.group_id for cut in cuts[MAX_LINES:])
    if more:
        named = ", ".join(f"{group!r} {count}" for group, count in more.most_common(MAX_LINES))
        logger.warning(
            "%d more of %d groups (%s) were beyond the end of their log and are moved to it: %s%s",
            more.total(), len(more), what, named, " and others" if len(more) > MAX_LINES else "",
        )  # fmt: skip
