"""What a reader of committed records makes of an answer of Fetch: the broker sends all, the client drops some."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from core.protocol.messages.fetch import PartitionData
from core.records.batch import batches, read_records
from core.records.control import read_marker

_MAX_BATCH_BYTES = 1 << 20


class Committed(NamedTuple):
    """Offsets and values of committed records, and where to read on."""

    values: list[tuple[int, bytes]]
    position: int


def committed_values(found: PartitionData, position: int) -> Committed:
    """Drop records of aborted transactions, as clients do: from their first offset to the marker that aborts them."""
    data = memoryview(bytes(found.records or b""))
    begins: dict[int, list[int]] = defaultdict(list)
    for one in found.aborted_transactions or ():
        begins[one.producer_id].append(one.first_offset)
    dropping: set[int] = set()
    values: list[tuple[int, bytes]] = []
    asked = position
    for at, header in batches(data):
        producer = header.producer_id
        while begins[producer] and begins[producer][0] <= header.base_offset + header.last_offset_delta:
            begins[producer].pop(0)
            dropping.add(producer)
        position = max(position, header.base_offset + header.last_offset_delta + 1)
        marker = read_marker(bytes(data[at : at + header.size]), header)
        if marker is not None and not marker.commit:
            dropping.discard(producer)
        if header.is_control or (header.is_transactional and producer in dropping):
            continue
        records = read_records(data, at, header, max_bytes=_MAX_BATCH_BYTES)
        values += [(record.offset, record.value or b"") for record in records if record.offset >= asked]
    return Committed(values, position)
