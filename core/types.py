"""What all packages share: where records are, and what a read or an append returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID


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


class _NoFile:
    """The file of bytes that are in memory."""

    def fileno(self) -> int:
        raise ValueError("these bytes are in memory, not in a file")


_NO_FILE = _NoFile()


class MemorySlice(FileSlice):
    """Bytes in memory in the place of a file's; `read` returns them, and they cannot be moved by a descriptor."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(_NO_FILE, 0, len(data))
        object.__setattr__(self, "_data", data)

    def read(self) -> bytes:
        """All bytes of the slice."""
        return self._data  # type: ignore[no-any-return, attr-defined]


class LogOffsets(NamedTuple):
    """The bounds of a partition: first offset kept, first not readable yet, next to be written.

    Below the last stable offset no transaction is open. It is the high watermark if none is open at all.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    last_stable_offset: int

    def end(self, *, committed: bool) -> int:
        """Return where reads end: read_committed at the last stable offset, others at the high watermark."""
        return self.last_stable_offset if committed else self.high_watermark


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


class AbortedTransaction(NamedTuple):
    """An aborted transaction of one log: offsets of its first record and of its marker, and the LSO after that."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LogRead(NamedTuple):
    """What a log gives for a read: whole batches, from the one that holds the offset asked for.

    `slice` is None when there is nothing to read. Batches may begin below the offset asked for. A read of committed
    records ends at the last stable offset; `aborted` are the transactions whose records must be dropped.
    """

    slice: FileSlice | None
    offsets: LogOffsets
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()


class ApiSupport(NamedTuple):
    """One API of the binary protocol, as the draft of KIP-35 describes it.

    Versions stand in reverse order of preference, the most preferred last; the deprecated ones, which work as
    well, stand by themselves.
    """

    api_key: int
    api_name: str
    versions: tuple[int, ...]
    deprecated_versions: tuple[int, ...]


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet, in one log. `first_offset` is that of its first record."""

    tp: TopicPartition
    topic_id: UUID
    producer_id: int
    epoch: int
    first_offset: int


class ProducerState(NamedTuple):
    """An idempotent producer, as DescribeProducers shows it. Offsets and numbers are −1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
