"""Cache large batches that are read in several steps, so that each is decompressed once.

A batch may hold half a million records in a megabyte, and one read returns some hundred of them. To check the
batch, decompress it and skip the records read before would cost more with every step: forty times the cost of the
records themselves, in batches as usual producers write them. So the rest of a large batch is kept as an iterator,
under its next offset. The reader of that offset takes it; two readers at the same offset open the batch twice.

The cache is bounded in bytes. The oldest batch is dropped first; a batch above the limit is not kept at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.records.batch import check_crc, record_bytes
from core.records.header import BatchHeader
from core.records.record import Record
from core.records.record_codec import decode_records

# Batches with fewer records are opened again: that costs less than their records.
MANY_RECORDS = 500
_NO_LIMIT = 2**31


class _Opened(NamedTuple):
    rest: Iterator[Record]
    size: int


class OpenBatches:
    """The batches that are open at the moment. `max_bytes` bounds what one may decompress to."""

    def __init__(self, max_bytes: int, limit: int) -> None:
        self._max_bytes = max_bytes
        self._limit = limit
        self._kept: OrderedDict[Hashable, _Opened] = OrderedDict()
        self.size = 0

    def read(
        self, log: Hashable, data: bytes, position: int, header: BatchHeader, offset: int, limit: int
    ) -> list[Record]:
        """The first `limit` records from `offset` on of the batch at `position`; `log` says whose it is.

        Raises BrokerError CORRUPT_MESSAGE or INVALID_RECORD for a batch that cannot be read.
        """
        batch = (log, header.base_offset, header.batch_length, header.crc)
        found = self._kept.pop((batch, offset), None)
        if found is not None:
            self.size -= found.size
        else:
            found = self._open(data, position, header, offset)
        records = list(islice(found.rest, limit))
        if len(records) == limit and header.record_count >= MANY_RECORDS:
            # The last one is what the caller looks ahead to; it is where the next go begins.
            self._keep((batch, records[-1].offset), _Opened(chain(records[-1:], found.rest), found.size))
        return records

    def _open(self, data: bytes, position: int, header: BatchHeader, offset: int) -> _Opened:
        if not check_crc(data, position, header):
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "its checksum is wrong, the disk has changed it")
        body = record_bytes(data, position, header, max_bytes=self._max_bytes)
        # The reader holds a copy of decompressed records; uncompressed ones keep the bytes of their batch alive.
        size = len(body) + (len(body) if header.codec else len(data))
        return _Opened(decode_records(header, body, offset, _NO_LIMIT), size)

    def _keep(self, key: Hashable, opened: _Opened) -> None:
        if opened.size > self._limit or key in self._kept:
            return
        self._kept[key] = opened
        self.size += opened.size
        while self.size > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self.size -= dropped.size
