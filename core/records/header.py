"""The 61 bytes in front of every magic-2 record batch.

    offset size field
    0      8    base offset              the first record's; written by the broker
    8      4    batch length             of all that follows, so the batch has 12 bytes more
    12     4    partition leader epoch   written by the broker
    16     1    magic                    2; at the same place in magic 0 and 1
    17     4    CRC-32C                  of everything from the attributes to the end of the batch
    21     2    attributes               codec 0–2, timestamp type 3, transaction 4, control 5, horizon 6
    23     4    last offset delta        last offset − base offset; stays when compaction drops records
    27     8    base timestamp           record times count from here; the delete horizon if bit 6 is set
    35     8    max timestamp            with LogAppendTime the time of every record
    43     8    producer id              −1: not idempotent
    51     2    producer epoch
    53     4    base sequence            −1: not idempotent
    57     4    record count             0 in a batch that compaction has emptied
    61          records, compressed as a whole

What the broker writes at an append (base offset, leader epoch) lies in front of what the checksum covers, so
assigning offsets costs no second pass over the data. Sources: protocol guide, "Record Batch"; KIP-98, -534.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.records.record import LOG_APPEND_TIME

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
# Base offset and length itself, which `batch_length` does not count.
LENGTH_OVERHEAD = 12
MAGIC = 2
# Where the bytes that the checksum covers begin.
CHECKSUMMED_FROM = 21

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
INT32_MAX = 2**31 - 1


class BatchHeader(NamedTuple):
    """The header fields of one batch, in the order of the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset that the last record has, or had before compaction dropped it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; −1 without a producer. 0 follows 2³¹−1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def codec(self) -> int:
        """How the records are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5–7 mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop the tombstones, in ms since the Unix epoch; None if not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Nothing in it has been checked.

    Raises BrokerError CORRUPT_MESSAGE when fewer than 61 bytes are left.
    """
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except error:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"A batch header has {HEADER_SIZE} bytes, but {max(len(buffer) - position, 0)} are left.",
            position=position,
        ) from None
