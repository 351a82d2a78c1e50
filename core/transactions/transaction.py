"""The state machine of one transactional id: no clock, no disk, no waits.

The states are Kafka's. A transaction is ONGOING from the first partition or group that joins it. Its end is decided
in PREPARE_*, in which the coordinator holds all other requests of the id; it is over in COMPLETE_*.

Epochs. A producer gets its epoch from InitProducerId, which raises it. An epoch that was raised is fenced: nothing is
written under it any more. How a transaction ends decides what comes next:

    first kind (before KIP-890)    the epoch stays, and the markers carry it
    second kind (KIP-890)          the end raises the epoch, and the markers carry the raised one
    fenced                         the coordinator itself aborts, because of a timeout or a new InitProducerId; the
                                   epoch is raised as well

A request is told to be a retry by the producer id and epoch from before the last raise (`previous`, KIP-360).

Sources: KIP-98, KIP-360, KIP-890; the tables of Kafka 4.1's coordinator.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.transactions import (
    MAX_EPOCH,
    NO_PRODUCER,
    Outcome,
    ProducerIdAndEpoch,
    TransactionInfo,
    TransactionState,
)

_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


class Part(NamedTuple):
    """The records of a transaction in one partition: from the first offset of it on."""

    topic_id: UUID
    first_offset: int


class Decision(NamedTuple):
    """How a transaction ends, and what its producer continues with.

    `producer` wrote the records. The markers carry its id and `marker_epoch`. `next` is the producer of the next
    transaction. `previous` is what marks a retry of this end; `NO_PRODUCER` if no client may repeat it. `fenced` says
    how the coordinator aborts it, if it is not its client that ends it.
    """

    commit: bool
    producer: ProducerIdAndEpoch
    marker_epoch: int
    next: ProducerIdAndEpoch
    previous: ProducerIdAndEpoch
    fenced: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """Return how the transaction ends, for the metrics."""
        return self.fenced or (Outcome.COMMITTED if self.commit else Outcome.ABORTED)


@dataclass(slots=True)
class Transaction:
    """One transactional id.

    `parts` are the partitions with records, `named` those that AddPartitionsToTxn has named: None without such a
    request, because an empty set takes 216 bytes.

    `deadline` is monotonic seconds.

    `records` are those of the open transaction; −1 if they are not known, because it was open at the start.

    `start_ms` is when the last transaction began, as in Kafka also after its end; −1 if that is not known.

    `resumed`: it comes from the store, and no client has used it since. Its producer may have opened a transaction
    before the broker ended, of which no record was kept; so it may continue with one. No late request of an ended
    transaction can come now, because it would need a connection from before the start.

    `connection`, `group_connection`: the newest ones that have asked something of the id, or of a group for it.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    previous: ProducerIdAndEpoch = NO_PRODUCER
    state: TransactionState = TransactionState.EMPTY
    parts: dict[TopicPartition, Part] = field(default_factory=dict)
    named: set[TopicPartition] | None = None
    start_ms: int = -1
    updated_ms: int = 0
    deadline: float = 0.0
    resumed: bool = False
    connection: int = -1
    group_connection: int = -1
    records: int = 0

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def ongoing(self) -> bool:
        """Return whether a transaction is open."""
        return self.state is TransactionState.ONGOING

    @property
    def ending(self) -> bool:
        """Return whether the end is being decided; all requests of the id wait for it."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def exhausted(self) -> bool:
        """Return whether the next raise of the epoch needs a new producer id."""
        return self.producer.producer_epoch >= MAX_EPOCH

    def is_late(self, now: float) -> bool:
        """Return whether a transaction is open for too long; `now` is monotonic seconds."""
        return self.ongoing and self.deadline <= now

    def info(self) -> TransactionInfo:
        """Return what callers see of it."""
        return TransactionInfo(
            self.transactional_id,
            self.state,
            self.producer,
            self.timeout_ms,
            self.start_ms,
            tuple({**dict.fromkeys(self.parts), **dict.fromkeys(self.named or ())}),
            {tp: part.first_offset for tp, part in self.parts.items()},
        )

    # --- InitProducerId ------------------------------------------------------------------------------------

    def repeats_init(self, known: ProducerIdAndEpoch) -> bool:
        """Return whether InitProducerId with what the client knows is a retry, answered with the same producer again.

        Raises PRODUCER_FENCED if the client knows neither the newest epoch nor the one before.
        """
        if known in (NO_PRODUCER, self.producer):
            return False
        if known == self.previous:
            return True
        raise fenced(self.transactional_id)

    def initialize(self, known: ProducerIdAndEpoch, timeout_ms: int, new_id: int, *, raised: bool) -> None:
        """Take a client that begins, under a raised epoch.

        `new_id` is the producer id that follows an exhausted epoch. `raised`: the transaction that was open has been
        fenced for this client a moment ago, and that has raised the epoch.
        """
        if not raised:
            self.producer = self._raised(new_id)
        self.previous = known
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY

    def _raised(self, new_id: int) -> ProducerIdAndEpoch:
        producer_id, epoch = self.producer
        return ProducerIdAndEpoch(new_id, 0) if self.exhausted else ProducerIdAndEpoch(producer_id, epoch + 1)

    # --- records and offsets -------------------------------------------------------------------------------

    def check(self, producer: ProducerIdAndEpoch) -> None:
        """Raise INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another epoch."""
        if producer.producer_id != self.producer.producer_id:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"The transactional id {self.transactional_id!r} belongs to another producer than "
                f"{producer.producer_id}.",
            )
        if producer != self.producer:
            raise fenced(self.transactional_id)

    def begin(self, *, now_ms: int, now: float) -> None:
        """Open a transaction, if none is open. `now` is monotonic seconds."""
        self.resumed = False
        if self.ongoing:
            return
        self.state = TransactionState.ONGOING
        self.start_ms, self.deadline = now_ms, now + self.timeout_ms / 1000
        self.records = 0

    def check_written(self, partitions: Collection[TopicPartition] | None, records: int | None) -> None:
        """Raise INVALID_TXN_STATE unless these are the partitions and the number of records; None: any are."""
        if partitions is not None and set(partitions) != self.parts.keys():
            raise self._other_content(f"has written to {_names(self.parts)}, not to {_names(partitions)}")
        if records is not None and records != self.records:
            known = f"{self.records} records" if self.records >= 0 else "records that a start has not counted"
            raise self._other_content(f"has {known}, not {records}")

    def _other_content(self, what: str) -> BrokerError:
        return BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"The transaction of {self.transactional_id!r} {what}.",
            transactional_id=self.transactional_id,
        )

    # --- EndTxn --------------------------------------------------------------------------------------------

    def end(
        self, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool, new_id: int = -1
    ) -> Decision | None:
        """Return how the transaction ends; None if it is a retry of an end that is over.

        `raises`: the second kind (EndTxn from version 5 on). Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE.
        """
        if raises and producer == self.previous != NO_PRODUCER:
            self._check_repeated_end(commit)
            return None
        self.check(producer)
        if raises:
            if not self.ongoing and (commit or self.state not in _MAY_ABORT):
                raise self._wrong_state(commit)
            after = self._raised(new_id)
            return Decision(commit, producer, producer.producer_epoch + 1, after, producer)
        if self.state is _COMPLETED[commit]:
            return None
        if not self.ongoing and not self.resumed:
            raise self._wrong_state(commit)
        return Decision(commit, producer, producer.producer_epoch, producer, self.previous)

    def _check_repeated_end(self, commit: bool) -> None:
        if self.state is _COMPLETED[commit]:
            return
        if self.state in (TransactionState.EMPTY, TransactionState.ONGOING):
            raise fenced(self.transactional_id)
        raise self._wrong_state(commit)

    def fence(self, new_id: int, outcome: Outcome = Outcome.TIMED_OUT) -> Decision:
        """Return the abort of an ongoing transaction by the coordinator: its producer may write nothing more.

        Until another client takes the id, that producer gets the raised epoch by InitProducerId (KIP-588).
        """
        after = self._raised(new_id)
        epoch = self.producer.producer_epoch + 1
        return Decision(False, self.producer, epoch, after, self.producer, outcome)

    def prepare(self, decision: Decision) -> TransactionState:
        """Close the transaction while its end is being stored; return the state before."""
        before, self.state = self.state, _PREPARED[decision.commit]
        return before

    def complete(self, decision: Decision) -> None:
        """Take the end, which is stored."""
        self.producer, self.previous = decision.next, decision.previous
        self.state = _COMPLETED[decision.commit]
        self.parts, self.named = {}, None
        self.resumed = False

    def _wrong_state(self, commit: bool) -> BrokerError:
        return BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"The transaction of {self.transactional_id!r} cannot be {'committed' if commit else 'aborted'}: "
            f"its state is {self.state.kafka_name}.",
        )


# States in which an abort by the second kind ends nothing and raises the epoch: a client does so after a first
# Produce that failed, because it cannot know whether it has begun a transaction.
_MAY_ABORT = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _names(partitions: Collection[TopicPartition]) -> str:
    """Return how a message names some partitions."""
    return (
        ", ".join(str(tp) for tp in sorted(partitions)[:5]) + (", …" if len(partitions) > 5 else "") or "none"
    )


def fenced(transactional_id: str) -> BrokerError:
    """Return the refusal of a producer that another one with the same transactional id has replaced."""
    return BrokerError(
        ErrorCode.PRODUCER_FENCED,
        f"A newer producer has the transactional id {transactional_id!r}, or its transaction has timed out.",
    )
