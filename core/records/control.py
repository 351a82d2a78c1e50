"""Control batches: the markers that end a transaction in one partition (KIP-98).

A marker is a batch of one record, uncompressed, with the transactional and the control bit, without a sequence:

    key    version int16 = 0, type int16: 0 ABORT, 1 COMMIT
    value  version int16 = 0, coordinator epoch int32

It takes one offset. Consumers skip it. Other types (2 LEADER_CHANGE and later ones, KIP-595) end no transaction.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from core.records.batch import build_batch, read_records
from core.records.header import HEADER_SIZE, BatchHeader, Buffer, read_header
from core.records.record import NewRecord

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
# The record of a marker as all brokers write it: length 16, no attributes, deltas of 0, a key of 4 bytes; the key; a
# value of 6 bytes; the value; no headers.
_RECORD = Struct(">5shhBhiB")
_RECORD_BEGINS = b"\x20\0\0\0\x08"
_VALUE_OF_6 = 12
# A marker has about 78 bytes; nothing in it is compressed.
_MAX_BYTES = 64 * 1024


class EndMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that decided it."""

    commit: bool
    coordinator_epoch: int


def build_marker(producer_id: int, producer_epoch: int, marker: EndMarker, *, now_ms: int) -> bytearray:
    """Return the batch that ends the transaction of a producer in one partition, not numbered yet."""
    key = _KEY.pack(0, COMMIT if marker.commit else ABORT)
    return build_batch(
        [NewRecord(key, _VALUE.pack(0, marker.coordinator_epoch))],
        now_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer, header: BatchHeader | None = None) -> EndMarker | None:
    """Return the marker in a control batch; None if the batch ends no transaction, or compaction has emptied it.

    Raises BrokerError CORRUPT_MESSAGE if the batch cannot be read.
    """
    header = header or read_header(batch)
    if not header.is_control or not header.record_count:
        return None
    if len(batch) == HEADER_SIZE + _RECORD.size and not header.codec:
        # A start reads all markers after the last checkpoint; this is a tenth of the work.
        begins, _, kind, length, _, coordinator_epoch, end = _RECORD.unpack_from(batch, HEADER_SIZE)
        if begins == _RECORD_BEGINS and (length, end) == (_VALUE_OF_6, 0) and kind in (ABORT, COMMIT):
            return EndMarker(kind == COMMIT, coordinator_epoch)
    (record, *_) = read_records(batch, 0, header, max_bytes=_MAX_BYTES)
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except error:
        return None
    return EndMarker(kind == COMMIT, coordinator_epoch)
