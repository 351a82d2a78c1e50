"""Records on their way out: the batches of a read, opened."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from core.batches.open_batches import OpenBatches
from core.errors import BrokerError, ErrorCode
from core.records.aborted import AbortedRecords
from core.records.batch import batches
from core.records.header import BatchHeader
from core.records.record import Record
from core.types import AbortedTransaction, LogOffsets, TopicPartition
from core.vocabulary.records import ReadResult

logger = logging.getLogger(__name__)


class Decoder:
    """Opens the batches of reads; keeps large ones open between two reads (`OpenBatches`)."""

    def __init__(self, open_batches: OpenBatches) -> None:
        self._open_batches = open_batches

    def decode(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        data: bytes,
        offset: int,
        max_records: int,
        offsets: LogOffsets,
        *,
        aborted: Sequence[AbortedTransaction] = (),
        event: int = -1,
    ) -> ReadResult:
        """Return the first `max_records` records from `offset` on of whole batches, without those of `aborted`.

        Batches may begin below the offset. Raises CORRUPT_MESSAGE if the first batch is broken.
        """
        records: list[Record] = []
        next_offset = offset
        hidden = AbortedRecords(aborted)
        for position, header in batches(data):
            if header.next_offset <= offset:
                continue
            next_offset = header.next_offset
            if hidden.hides(header):
                continue
            room = max_records - len(records)
            wanted = self._open(tp, topic_id, data, position, header, offset, room + 1)
            if wanted is None:
                if records:
                    next_offset = header.base_offset
                    break
                raise _unreadable(header, tp)
            if len(wanted) > room:
                next_offset = wanted[room].offset
                records += wanted[:room]
                break
            records += wanted
        return ReadResult(records, offsets, next_offset, event)

    def _open(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        data: bytes,
        position: int,
        header: BatchHeader,
        offset: int,
        limit: int,
    ) -> list[Record] | None:
        """Return the first `limit` records of one batch from `offset` on; None if the batch is broken inside."""
        try:
            whose = topic_id.int, tp.partition
            return self._open_batches.read(whose, data, position, header, offset, limit)
        except BrokerError as error:
            logger.warning("%s: the batch at offset %d: %s", tp, header.base_offset, error.message)
            return None


def _unreadable(header: BatchHeader, tp: TopicPartition) -> BrokerError:
    """A client can store garbage in a batch with a right checksum. The error names the offset to continue at."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch at offset {header.base_offset} of {tp} cannot be read; continue at offset "
        f"{header.next_offset}.",
        next_offset=header.next_offset,
    )
