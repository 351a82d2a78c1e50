"""What all packages share: where records are, and what a read or an append returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """The address of one partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OpenFile(Protocol):
    """An open descriptor that stays valid as long as this object is referred to."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes that lie in a file: where they are, not what they are.

    The edge chooses how to move them: sendfile, or `read`. Holding the slice keeps the descriptor open, also
    when the file has been deleted meanwhile.
    """

    file: OpenFile
    position: int
    length: int

    def read(self) -> bytes:
        """All bytes of the slice, by one pread. Fewer than `length` only if the file was cut meanwhile."""
        return os.pread(self.file.fileno(), self.length, self.position)


class LogOffsets(NamedTuple):
    """The bounds of a partition: first offset kept, first not readable yet, next to be written."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class AppendResult(NamedTuple):
    """What an append answers.

    `log_append_time` is −1 with CreateTime. `duplicate` says that an idempotent producer's retry was
    recognised; the offsets are then those of the first append.
    """

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class TimestampOffset(NamedTuple):
    """An answer of a search by time: the first offset whose timestamp is not before the one asked for."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogRead(NamedTuple):
    """What a log gives for a read: whole batches, from the one that holds the offset asked for.

    `slice` is None when there is nothing to read. Batches may begin below the offset asked for.
    """

    slice: FileSlice | None
    offsets: LogOffsets


class ApiSupport(NamedTuple):
    """One API of the binary protocol, as the draft of KIP-35 describes it.

    Versions stand in reverse order of preference, the most preferred last; the deprecated ones, which work as
    well, stand by themselves.
    """

    api_key: int
    api_name: str
    versions: tuple[int, ...]
    deprecated_versions: tuple[int, ...]


class ProducerState(NamedTuple):
    """An idempotent producer, as DescribeProducers shows it. Offsets and numbers are −1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
