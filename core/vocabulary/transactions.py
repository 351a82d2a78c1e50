"""Transactions as callers name and see them (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.records.header import BatchHeader
from core.types import TopicPartition

T = TypeVar("T")

# Kafka keeps the last number for fencing: no producer gets it.
MAX_EPOCH = 32_766
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class TransactionState(IntEnum):
    """The state of a transactional id, with Kafka's numbers. DEAD ones are forgotten."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """Return the name that DescribeTransactions and ListTransactions say."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Outcome(StrEnum):
    """How a transaction has ended: by its client, or by the coordinator, which fences the client."""

    COMMITTED = "committed"
    # By its client.
    ABORTED = "aborted"
    # Aborted because it was open for longer than its timeout.
    TIMED_OUT = "timed_out"
    # Aborted because another client took the transactional id.
    FENCED = "fenced"
    # Aborted by an administrator.
    TERMINATED = "terminated"


class ProducerIdAndEpoch(NamedTuple):
    """What a producer writes under: an id that is given once, and an epoch that only rises."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def check_known(known: ProducerIdAndEpoch) -> None:
    """Raise INVALID_REQUEST unless a request of InitProducerId has both id and epoch, or neither."""
    if (known.producer_id == NO_PRODUCER_ID) != (known.producer_epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "producer_id and producer_epoch are given together or not at all",
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )


class TransactionInfo(NamedTuple):
    """One transactional id. `start_ms` is when its last transaction began (Unix epoch); −1 if that is not known.

    While a transaction is open, `expires_ms` is when the coordinator aborts it (Unix epoch), `groups` are those whose
    offsets it holds, and `first_offsets` has the offset of its first record in each partition that it has written to.
    """

    transactional_id: str
    state: TransactionState
    producer: ProducerIdAndEpoch
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    first_offsets: Mapping[TopicPartition, int]
    expires_ms: int = -1
    groups: tuple[str, ...] = ()

    def age_ms(self, now_ms: int) -> int | None:
        """Return for how long the transaction is open; None if none is open. `now_ms` is wall time."""
        return max(0, now_ms - self.start_ms) if self.expires_ms >= 0 else None


class TransactionTotals(NamedTuple):
    """The transactions of a broker in numbers. `ended` and `hanging` count since the start of the process.

    `oldest_ms` is the age of the oldest open transaction, 0 without one. `late` are open for longer than any may be.
    `unmarked` are decisions whose markers are not known to be on the disk. `hanging` are open transactions in logs
    that belong to no transactional id and were aborted, one for each partition.
    """

    ids: int
    open: int
    oldest_ms: int
    late: int
    unmarked: int
    ended: Mapping[Outcome, int]
    hanging: int


class Participant(NamedTuple):
    """A transaction that ends together with others, and the producer that has written it.

    `partitions` are all that it must have written to, `records` the number of records that it must have; None if that
    is not compared. The transactional id of an `ephemeral` one is forgotten with the end.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition] | None = None
    records: int | None = None
    ephemeral: bool = False


class Settlement(Protocol):
    """What the end of a transaction changes elsewhere: `effects` for the store, then `apply` in memory."""

    @property
    def effects(self) -> Sequence[Any]:
        """What is stored with the decision: effects of the metadata store.

        Read once, in the turn of the loop in which they are handed to the store; the end is decided then.
        """
        ...

    def apply(self) -> None:
        """Make it visible. Called in the turn of the loop in which the transaction becomes visible."""
        ...


class OwnTransaction(Protocol):
    """A transaction that the broker begins and ends itself, within one request. It has no transactional id."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer to write its batches under; their sequences begin at 0 in each partition."""

    def wrote(self, tp: TopicPartition, offset: int) -> None:
        """Take a batch that was appended in this turn of the loop."""

    async def commit(self, also: Callable[[], Sequence[Settlement]]) -> None:
        """Commit it with other changes; see `Transactions.commit_together`. What is raised is not decided."""

    def abandon(self) -> None:
        """Abort it, unless it is committed."""


class TransactionalWrite(Protocol):
    """The transaction that the batches of one Produce request belong to."""

    @property
    def begins(self) -> bool:
        """Whether a first batch opens the transaction, without a request before it (KIP-890)."""

    def unregistered(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return the partitions that must be added by `register` before a batch is appended to them."""

    async def register(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction, durably. It raises nothing: if it fails, `check` raises."""

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """Raise unless a batch may be appended to the transaction now.

        INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; CONCURRENT_TRANSACTIONS or
        NOT_ENOUGH_REPLICAS while its end is under way; POLICY_VIOLATION for a partition too many.
        """

    def appended(self, tp: TopicPartition, topic_id: UUID, offset: int, records: int) -> None:
        """Take a batch with this number of records, in the turn of the loop in which `check` has passed."""


class Transactions(Protocol):
    """Transactional ids and their transactions, as `broker.transactions`.

    A call raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an id that the caller may not write under, and
    CONCURRENT_TRANSACTIONS if another request of that id has been under way for `transaction_hold_ms`.
    """

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """InitProducerId: return the producer to write under; every earlier one of this id is fenced.

        An open transaction is aborted first. `known` is the producer that the client has (KIP-360). Raises
        INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, COORDINATOR_LOAD_IN_PROGRESS,
        KAFKA_STORAGE_ERROR.
        """

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        """Note that a connection asks something of an id; False if a newer one has done so before.

        Then the request is a late copy of one that was sent again. `connection` rises with each connection.
        `producer` asks, if the request names one. `of_group`: it went to the coordinator of a group, for
        which clients have a connection of its own.
        """

    async def join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """Open a transaction for partitions or a group that are named before they are used (before KIP-890).

        Raises INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        """TxnOffsetCommit: have `work` stage offsets while the transaction is open, and return what it returns.

        `begins` opens the transaction if none is open (KIP-890). Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE.
        """

    def writing(self, transactional_id: str, *, begins: bool) -> TransactionalWrite:
        """Return what `Partitions.append` needs for the batches of a transaction; `begins` as there."""

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool
    ) -> ProducerIdAndEpoch:
        """EndTxn: commit or abort; return the producer of the next transaction. `raises`: EndTxn from version 5 on.

        Durable and visible in all partitions and groups when it returns. Raises INVALID_REQUEST,
        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, COORDINATOR_NOT_AVAILABLE.
        """

    async def commit_together(
        self, participants: Sequence[Participant], also: Callable[[], Sequence[Settlement]]
    ) -> list[ProducerIdAndEpoch]:
        """Commit several transactions and other changes by one decision; return each one's next producer.

        `also` is called when nothing but the store can refuse any more, in the turn in which the store is handed
        the decision: it checks what must hold and returns the other changes. What it raises is raised, and nothing is
        decided then: the transactions stay open. There may be no participant at all. Raises as `end` of the second
        kind; INVALID_TXN_STATE also if a participant has ended before, or has not written what it names.
        """

    async def abort_leftovers(
        self, prefix: str, keep: Collection[str] = (), *, forget: bool = False
    ) -> list[str]:
        """Abort the open transactions of all ids with a prefix but for `keep`; return the ids of those.

        Their producers are fenced. `forget`: the ids are forgotten, also those without an open transaction. Raises
        CONCURRENT_TRANSACTIONS, COORDINATOR_NOT_AVAILABLE; what was aborted until then stays so.
        """

    async def begin_own(self) -> OwnTransaction:
        """Begin a transaction without a transactional id, which one request writes and ends.

        Raises THROTTLING_QUOTA_EXCEEDED, KAFKA_STORAGE_ERROR.
        """

    async def abort(self, producer: ProducerIdAndEpoch, tp: TopicPartition) -> None:
        """Abort the transaction that a producer has open in a partition, in all of them; the producer is fenced.

        Nothing happens if none is open there. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH for an epoch
        that is over, KAFKA_STORAGE_ERROR.
        """

    async def terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of an id for an administrator; its producer is fenced.

        Raises TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE if none is open, CONCURRENT_TRANSACTIONS,
        COORDINATOR_NOT_AVAILABLE.
        """

    def get(self, transactional_id: str) -> TransactionInfo:
        """Return one transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""

    def all(self) -> Collection[TransactionInfo]:
        """Return all transactional ids that the caller may describe, in no order."""
