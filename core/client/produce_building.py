"""Batches out of the records of several callers, and the errors of one batch back to each of them."""

from __future__ import annotations

from collections.abc import Sequence

from core.client.produce_batches import Entry, Identity
from core.errors import BrokerError
from core.records.batch import BatchHeader, build_batch, encode_batch
from core.records.header import MAGIC
from core.records.record import NewRecord
from core.records.record_codec import RecordFields

Faults = Sequence[tuple[int, str]]
"""Positions of records, and why each was refused."""


def build(entries: Sequence[Entry], identity: Identity, sequence: int) -> tuple[bytearray, int]:
    """Return a batch of the records of all entries, and how many they are.

    A record without a time gets that of its own entry. Raises as `build_batch`.
    """
    producer_id, epoch = identity
    if len(entries) == 1:
        records = entries[0].records
    elif len({entry.now_ms for entry in entries}) == 1:
        merged: list[NewRecord] = []
        for entry in entries:
            merged += entry.records
        records = merged
    else:
        return _of_several_times(entries, identity, sequence)
    data = build_batch(
        records,
        now_ms=entries[0].now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence if producer_id >= 0 else -1,
    )
    return data, len(records)


def _of_several_times(entries: Sequence[Entry], identity: Identity, sequence: int) -> tuple[bytearray, int]:
    fields: list[RecordFields] = []
    for entry in entries:
        now_ms = entry.now_ms
        fields += [
            (
                delta,
                now_ms if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for delta, record in enumerate(entry.records, len(fields))
        ]
    producer_id, epoch = identity
    count = len(fields)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=fields[0][1],
        max_timestamp=max([one[1] for one in fields]),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence if producer_id >= 0 else -1,
        record_count=count,
    )
    return encode_batch(header, fields, 0), count


def named_records(error: BrokerError, faults: Faults) -> BrokerError:
    """Return the error with the records at fault in its details, as `core.records.validation` does."""
    if not faults:
        return error
    return BrokerError(error.code, error.message, record_errors=list(faults))


def innocent_and_blamed(
    entries: Sequence[Entry], error: BrokerError, faults: Faults
) -> tuple[list[Entry], list[tuple[Entry, BrokerError]]]:
    """Return the entries without a record at fault, and the others with an error that counts from their own start."""
    innocent: list[Entry] = []
    blamed: list[tuple[Entry, BrokerError]] = []
    start = 0
    for entry in entries:
        end = start + len(entry.records)
        own = [(at - start, why) for at, why in faults if start <= at < end]
        if own:
            blamed.append((entry, named_records(error, own)))
        else:
            innocent.append(entry)
        start = end
    return innocent, blamed
