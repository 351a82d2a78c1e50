"""Decisions whose markers are not known to be safe: a coordinator appends them until they are, then forgets them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.metadata.transactions import DecisionRow, StoredPart
from core.records.control import EndMarker
from core.transactions.ports import PartitionLogs
from core.transactions.transaction import Decision, Part
from core.types import TopicPartition

logger = logging.getLogger(__name__)


class _Unmarked(NamedTuple):
    """A decision with offsets up to which its markers are; −1 where one could not be appended yet."""

    row: DecisionRow
    offsets: list[int]


class Decisions:
    """The decisions of a coordinator, oldest first. The markers that it appends have `coordinator_epoch`."""

    def __init__(self, logs: PartitionLogs, coordinator_epoch: int) -> None:
        self._logs = logs
        self._coordinator_epoch = coordinator_epoch
        self._unmarked: list[_Unmarked] = []
        # Those of which the disk has refused a marker.
        self._refused: list[_Unmarked] = []
        self._next = 0
        # Partitions of committed transactions whose records were not there, as an unclean promotion leaves it.
        self.lost = 0

    def __len__(self) -> int:
        return len(self._unmarked)

    def load(self, rows: Iterable[DecisionRow]) -> None:
        """Take over what the store has, and append what is missing."""
        for row in rows:
            self._next = row.number + 1
            self._unmarked.append(_Unmarked(row, [-1] * len(row.parts)))
        self._refused = [one for one in self._unmarked if not self._mark(one)]

    def row(self, decision: Decision, parts: Sequence[tuple[TopicPartition, Part]]) -> DecisionRow:
        """Return the row of a new decision over these partitions."""
        number = self._next
        self._next += 1
        stored = [StoredPart(tp.topic, part.topic_id, tp.partition, part.first_offset) for tp, part in parts]
        producer_id, epoch = decision.producer
        return DecisionRow(
            number,
            producer_id,
            epoch,
            decision.marker_epoch,
            self._coordinator_epoch,
            decision.commit,
            stored,
        )

    def carry_out(self, row: DecisionRow) -> None:
        """Append the markers of a decision that is stored. Those that cannot be are tried again."""
        unmarked = _Unmarked(row, [-1] * len(row.parts))
        if not self._mark(unmarked, self._report_lost):
            logger.error("some markers of producer %d are missing; they are tried again", row.producer_id)
            self._refused.append(unmarked)
        self._unmarked.append(unmarked)

    def _report_lost(self, row: DecisionRow, part: StoredPart, tp: TopicPartition) -> None:
        """Tell of a partition without the records that are being committed: the rest of the transaction stands."""
        with contextlib.suppress(BrokerError):
            if row.commit and part.first_offset >= 0 and self._logs.topic_id(tp) == part.topic_id:
                self.lost += 1
                logger.error(
                    "%s: the records of producer %d from offset %d on are lost; the rest of its transaction is "
                    "committed",
                    tp,
                    row.producer_id,
                    part.first_offset,
                )

    def decide(self, tp: TopicPartition, producer_id: int, first_offset: int = -1) -> bool:
        """Return whether one of them ends the transaction from that offset on; −1: any of that producer there."""
        return any(
            unmarked.row.producer_id == producer_id
            and (part.topic, part.partition) == tp
            and (first_offset in (-1, part.first_offset) or part.first_offset == -1)
            for unmarked in self._unmarked
            for part in unmarked.row.parts
        )

    def require_markers(self, tp: TopicPartition, producer_id: int) -> None:
        """Append what the disk has refused; KAFKA_STORAGE_ERROR if a marker of a producer is missing in a partition.

        Without it the next records of that producer would belong to the transaction that it ends.
        """
        if not self._refused:
            return
        self._refused = [one for one in self._refused if not self._mark(one)]
        if self.lack(tp, producer_id):
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{tp}: the disk refuses the marker of the last transaction; no other can begin before it.",
            )

    def lack(self, tp: TopicPartition, producer_id: int) -> bool:
        """Return whether a marker of that producer could not be appended in a partition yet."""
        return any(
            unmarked.row.producer_id == producer_id and (part.topic, part.partition) == tp and offset < 0
            for unmarked in self._unmarked
            for part, offset in zip(unmarked.row.parts, unmarked.offsets, strict=True)
        )

    def repeat(self, tp: TopicPartition) -> None:
        """Look for the markers of a partition again, because its log may have been cut."""
        for unmarked in self._unmarked:
            for i, part in enumerate(unmarked.row.parts):
                if (part.topic, part.partition) == tp:
                    unmarked.offsets[i] = -1
            self._mark(unmarked)

    def safe(self) -> list[int]:
        """Return the numbers of those whose markers no failure can take; append what is missing of the others."""
        done: list[int] = []
        for unmarked in self._unmarked:
            try:
                if self._mark(unmarked) and self._on_disk(unmarked):
                    done.append(unmarked.row.number)
            except BrokerError as error:
                logger.debug("decision %d stays: %s", unmarked.row.number, error.message)
        return done

    def forget(self, numbers: Collection[int]) -> None:
        """Drop decisions that are deleted from the store."""
        self._unmarked = [one for one in self._unmarked if one.row.number not in numbers]

    def _mark(
        self,
        unmarked: _Unmarked,
        closed: Callable[[DecisionRow, StoredPart, TopicPartition], None] | None = None,
    ) -> bool:
        """Append the markers of a decision that are missing; False if some still are.

        `closed` is called with each partition in which the transaction is not open.
        """
        row = unmarked.row
        marker = EndMarker(row.commit, max(row.coordinator_epoch, self._coordinator_epoch))
        complete = True
        for i, part in enumerate(row.parts):
            if unmarked.offsets[i] >= 0:
                continue
            tp = TopicPartition(part.topic, part.partition)
            try:
                offset = -1
                if self._logs.is_open(tp, part.topic_id, row.producer_id, part.first_offset):
                    offset = self._logs.append_marker(
                        tp, part.topic_id, row.producer_id, row.marker_epoch, marker,
                        raised=row.marker_epoch != row.epoch,
                    )  # fmt: skip
                elif closed is not None:
                    closed(row, part, tp)
                # A marker that a start has found may not be on the disk either: it is at the end, or before it.
                unmarked.offsets[i] = offset if offset >= 0 else self._logs.last_offset(tp, part.topic_id)
            except BrokerError as error:
                elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                level = logging.DEBUG if elsewhere else logging.ERROR
                logger.log(level, "%s: a marker cannot be appended: %s", tp, error.message)
                complete = False
        return complete

    def _on_disk(self, unmarked: _Unmarked) -> bool:
        return all(
            self._logs.is_durable(TopicPartition(part.topic, part.partition), part.topic_id, offset)
            for part, offset in zip(unmarked.row.parts, unmarked.offsets, strict=True)
        )
