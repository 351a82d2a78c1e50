"""Records on their way in and out: results of produce, of reads and of fetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from core.errors import BrokerError
from core.records.record import NewRecord, Record
from core.types import AppendResult, LogOffsets, LogRead, TopicPartition


class ProduceResult(msgspec.Struct, gc=False):
    """The result of one record. `timestamp` (ms) is the broker's with LogAppendTime, else the record's own.

    Never changed after it was made. Each record of a request has one, and a struct takes a third of the time of a
    tuple.
    """

    partition: int
    offset: int
    timestamp: int
    error: BrokerError | None = None


AppendRecords = Callable[[TopicPartition, Sequence[NewRecord], int], AppendResult]
"""Appends records as one batch. The last argument is the time in ms of records without one."""

UNDONE = ProduceResult(-1, -1, -1)
"""The result of a record that has none yet."""


def refuse_batch(
    results: list[ProduceResult], chunk: Sequence[int], partition: int, error: BrokerError
) -> None:
    """Set the result of each record of a refused batch; `chunk` holds their indexes in `results`.

    A record at fault gets its own reason. The others learn that another record of the batch was refused.
    """
    at_fault = dict(error.details.get("record_errors") or ())  # type: ignore[call-overload]
    for position, index in enumerate(chunk):
        reason = error
        if at_fault and position in at_fault:
            reason = BrokerError(error.code, at_fault[position])
        elif at_fault:
            reason = BrokerError(
                error.code, "Another record of the same batch was refused; send this one again."
            )
        results[index] = ProduceResult(partition, -1, -1, reason)


class ReadResult(NamedTuple):
    """Decoded records, the bounds of the partition, and the offset of the next read.

    `event` is as in `FetchedAll`; −1 after a wait.
    """

    records: list[Record]
    offsets: LogOffsets
    next_offset: int
    event: int = -1


class FetchRead(NamedTuple):
    """One partition of a fetch: the offset, the most bytes, and the leader epoch that the client knows (−1: none).

    `committed` reads as read_committed does: up to the last stable offset.
    """

    tp: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    committed: bool = False


class Fetched(NamedTuple):
    """The answer for one partition of a fetch: batches in a file, or the error."""

    tp: TopicPartition
    read: LogRead | None
    error: BrokerError | None = None


class FetchedAll(NamedTuple):
    """The answers of a fetch in the order of its reads, their bytes, and whether any is an error.

    `event` is the number of the newest event on any topic at that moment (`TopicChanges.event`).
    """

    answers: list[Fetched]
    size: int
    refused: bool
    event: int
