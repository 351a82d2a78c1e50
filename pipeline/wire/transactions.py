"""Transactions of the Kafka protocol, as far as a sink needs them: begin one and abort it (KIP-98, KIP-890).

The first batch of Produce 12 adds its partition to the transaction. So no partition is named before, and there is no
transaction without a record.
"""

from __future__ import annotations

from typing import NamedTuple

from core.errors import ErrorCode
from core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pipeline.wire.cluster import Cluster
from pipeline.wire.coordinator import TRANSACTIONAL_ID, coordinator
from pipeline.wire.errors import KafkaError, refuse

INIT_PRODUCER_ID, END_TXN = 22, 26
ENDED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Errors that say that a transaction is over: its time was, or another producer has taken its id."""


class Transaction(NamedTuple):
    """A transactional id, and the one producer that may write under it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Transaction:
    """Take over a transactional id, patiently: what it has open is aborted, its older producers are fenced.

    The broker aborts a transaction that is open for longer than `timeout_ms`. Raises KafkaError, for instance
    INVALID_TRANSACTION_TIMEOUT where the broker allows less.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask() -> Transaction:
        connection = coordinator(cluster, transactional_id, TRANSACTIONAL_ID)
        answer = connection.request(INIT_PRODUCER_ID, request, InitProducerIdResponse)
        refuse(answer.error_code, f"InitProducerId of {transactional_id}")
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)

    return cluster.patiently(ask)


def abort(cluster: Cluster, transaction: Transaction) -> None:
    """Abort a transaction, if it is not over. One try: what is left open ends by its timeout. Raises WireError."""
    request = EndTxnRequest(*transaction, committed=False)
    connection = coordinator(cluster, transaction.transactional_id, TRANSACTIONAL_ID)
    answer = connection.request(END_TXN, request, EndTxnResponse)
    try:
        refuse(answer.error_code, f"EndTxn of {transaction.transactional_id}")
    except KafkaError as error:
        if error.code not in ENDED:
            raise
