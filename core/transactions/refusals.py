"""Checks of requests about transactions, and their refusals, with messages for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.transactions.transaction import Transaction
from core.types import TopicPartition
from core.vocabulary.transactions import ProducerIdAndEpoch, check_known


def unknown_producer(transactional_id: str, producer_id: int) -> BrokerError:
    """Return the refusal of a producer that a transactional id does not have."""
    return BrokerError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"Producer {producer_id} does not have the transactional id {transactional_id!r}.",
    )


def said(ids: Sequence[str]) -> str:
    """Return how a message names some transactional ids."""
    return ", ".join(repr(one) for one in ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def not_open(one: Transaction) -> BrokerError:
    """Return the refusal of a request that needs an open transaction."""
    return BrokerError(
        ErrorCode.INVALID_TXN_STATE,
        f"No transaction of {one.transactional_id!r} is open: its state is {one.state.kafka_name}.",
        abortable=True,
    )


def check_init(transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch, config: Config) -> None:
    """Raise INVALID_REQUEST or INVALID_TRANSACTION_TIMEOUT unless InitProducerId may be asked so."""
    if not transactional_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "A transactional id cannot be empty.")
    check_known(known)
    limit = config.transaction_max_timeout_ms
    if not 0 < timeout_ms <= limit:
        raise BrokerError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"A transaction may stay open for 1 to {limit} ms (transaction.max.timeout.ms), not {timeout_ms}.",
        )


def check_number(parts: Collection[TopicPartition], config: Config) -> None:
    """Raise POLICY_VIOLATION for a transaction of too many partitions."""
    limit = config.max_transaction_partitions
    if len(parts) > limit:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION, f"A transaction may write to {limit} partitions; abort this one."
        )
