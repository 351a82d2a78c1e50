"""A transactional id as the row that the store keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.metadata.transactions import StoredPart, TransactionalIdRow
from core.transactions.transaction import Decision, Part, Transaction
from core.types import TopicPartition
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionState


def row_of(one: Transaction, new: Mapping[TopicPartition, Part] = MappingProxyType({})) -> TransactionalIdRow:
    """Return the row of a transaction; `new` are partitions that it is about to have."""
    parts = {**one.parts, **new}
    stored = [
        StoredPart(tp.topic, part.topic_id, tp.partition, part.first_offset) for tp, part in parts.items()
    ]
    return TransactionalIdRow(
        one.transactional_id, *one.producer, *one.previous, one.timeout_ms, one.state, one.updated_ms, stored
    )


def row_after(one: Transaction, decision: Decision) -> TransactionalIdRow:
    """Return the row of a transaction as `Transaction.complete` will leave it."""
    after = Transaction(one.transactional_id, one.producer, one.timeout_ms, updated_ms=one.updated_ms)
    after.complete(decision)
    return row_of(after)


def loaded(row: TransactionalIdRow, now: float) -> Transaction:
    """Return a transactional id as it is stored. `now` is monotonic seconds."""
    transaction = Transaction(
        row.transactional_id,
        ProducerIdAndEpoch(row.producer_id, row.epoch),
        row.timeout_ms,
        ProducerIdAndEpoch(row.previous_id, row.previous_epoch),
        TransactionState(row.state),
        updated_ms=row.updated_ms,
        resumed=True,
    )
    if transaction.state is not TransactionState.EMPTY:
        # The row has no other time.
        transaction.start_ms = row.updated_ms
    if transaction.ongoing:
        # Its time begins again: it is not known for how long the broker was stopped.
        transaction.deadline = now + row.timeout_ms / 1000
        transaction.records = -1
        transaction.parts = {
            TopicPartition(part.topic, part.partition): Part(part.topic_id, part.first_offset)
            for part in row.parts
        }
    return transaction
