"""Transactions of a broker with peers, as `broker.transactions`.

The broker that keeps the metadata coordinates all transactional ids. Another one answers NOT_COORDINATOR. A
transaction may hold partitions that the coordinator leads itself, so that its end is one turn of one event loop, and
group offsets, which are there too.

A partition is stored with the id before the first record of a transaction is appended to it. So the next coordinator
knows all partitions of an open transaction, also those that another broker leads by then; of the latter it could not
see the records. It commits only what it leads itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.records.header import BatchHeader
from core.transactions.batches import TransactionalBatches
from core.transactions.totals import totals
from core.transactions.transactions import Transactions
from core.types import OpenTransaction, TopicPartition
from core.vocabulary.transactions import (
    NO_PRODUCER,
    OwnTransaction,
    Participant,
    ProducerIdAndEpoch,
    Settlement,
    TransactionInfo,
    TransactionTotals,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Roles(Protocol):
    """Which broker leads; `core.broker.roles` knows it."""

    @property
    def metadata_leader(self) -> int:
        """The broker that keeps the metadata; −1 if none is known."""

    def leader(self, tp: TopicPartition) -> int:
        """Return the broker that leads a partition; −1 if none is known. Raises UNKNOWN_TOPIC_OR_PARTITION."""


class LedLogs(Protocol):
    """The logs that the coordinator leads; `core.broker.led_transaction_logs` has them."""

    def coordinates(self) -> bool:
        """Return whether their coordinator still is the one of the cluster, as far as known here."""

    def changed(self) -> Iterator[tuple[TopicPartition, list[OpenTransaction]]]:
        """Yield the partitions with another leader than when they were asked for, with what is open in them."""

    def look_at(self, tp: TopicPartition) -> list[OpenTransaction] | None:
        """Return what is open in a partition if it has another leader than at the last call; None if not."""


class _Served(NamedTuple):
    """What this broker has while it coordinates."""

    coordinator: Transactions
    logs: LedLogs

    def look_at(self, tp: TopicPartition) -> None:
        """Take over what is open in a partition that this broker has begun to lead."""
        found = self.logs.look_at(tp)
        if found is not None:
            self.coordinator.look_again(tp, found)

    def look_at_all(self) -> None:
        """See `look_at`, for all partitions."""
        for tp, found in self.logs.changed():
            self.coordinator.look_again(tp, found)


class _Apart(NamedTuple):
    """A partition's leader and the coordinator, which are two brokers; monotonic seconds since when that is known."""

    leader: int
    coordinator: int
    since: float
    told: bool = False


class ClusterTransactions:
    """The transactional ids of a cluster as one of its brokers serves them."""

    def __init__(self, config: Config, clock: Clock, roles: Roles) -> None:
        self._config = config
        self._clock = clock
        self._roles = roles
        self._served: _Served | None = None
        # Requests that the coordinator serves.
        self._requests: set[asyncio.Task[Any]] = set()
        # Partitions whose leader does not coordinate.
        self._apart: dict[TopicPartition, _Apart] = {}

    # --- the role ------------------------------------------------------------------------------------------

    def serve(self, coordinator: Transactions, logs: LedLogs) -> None:
        """Coordinate from now on. `coordinator` is open."""
        self._served = _Served(coordinator, logs)

    def leave(self) -> None:
        """Coordinate no more: another broker does. Requests that wait are answered NOT_COORDINATOR."""
        served, self._served = self._served, None
        if served is not None:
            served.coordinator.abandon()
        for request in self._requests:
            request.cancel()

    def _serving(self) -> _Served:
        """Return the coordinator. Raises NOT_COORDINATOR, and COORDINATOR_LOAD_IN_PROGRESS before it is loaded."""
        if self._roles.metadata_leader != self._config.broker_id:
            raise self._not_coordinator()
        if self._served is None or not self._served.logs.coordinates():
            raise BrokerError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The transactional ids are being loaded; try again."
            )
        return self._served

    def _not_coordinator(self) -> BrokerError:
        leader = self._roles.metadata_leader
        who = f"broker {leader} does" if leader not in (-1, self._config.broker_id) else "no broker does now"
        return BrokerError(
            ErrorCode.NOT_COORDINATOR, f"This broker does not coordinate transactions; {who}.", leader=leader
        )

    async def _run(self, work: Callable[[Transactions], Coroutine[Any, Any, T]]) -> T:
        """Have the coordinator serve a request, as long as it is one."""
        served = self._serving()
        task = asyncio.get_running_loop().create_task(work(served.coordinator))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if served is self._served:
                raise
            raise self._not_coordinator() from None
        except BrokerError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise self._not_coordinator() from error
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            raise

    # --- partitions ----------------------------------------------------------------------------------------

    def _check_together(self, tp: TopicPartition, code: ErrorCode) -> None:
        """Raise POLICY_VIOLATION if one broker leads a partition and another one coordinates.

        At first it is `code`, for `transaction_hold_ms`: brokers are promoted for one partition after the other.
        """
        leader, coordinator = self._roles.leader(tp), self._roles.metadata_leader
        if -1 in (leader, coordinator) or leader == coordinator:
            self._apart.pop(tp, None)
            return
        now = self._clock.monotonic()
        known = self._apart.get(tp)
        if known is None or (known.leader, known.coordinator) != (leader, coordinator):
            known = self._apart[tp] = _Apart(leader, coordinator, now)
        if now - known.since < self._config.transaction_hold_ms / 1000:
            raise BrokerError(
                code,
                f"Broker {leader} leads {tp} and broker {coordinator} coordinates transactions; try again.",
            )
        message = (
            f"Broker {leader} leads {tp}, and broker {coordinator} coordinates transactions: a transaction may write "
            f"to partitions that its coordinator leads. Promote broker {coordinator} for {tp}, or write to it "
            "without transactional.id."
        )
        if not known.told:
            # AddPartitionsToTxn has no place for words.
            self._apart[tp] = known._replace(told=True)
            logger.warning("%s", message)
        raise BrokerError(ErrorCode.POLICY_VIOLATION, message, leader=leader, coordinator=coordinator)

    def check_batch(
        self, transactional_id: str, tp: TopicPartition, header: BatchHeader, *, begins: bool
    ) -> None:
        """Check a batch as far as the cluster is concerned, unless the append will be refused anyway.

        Raises POLICY_VIOLATION if another broker than the coordinator leads the partition, NOT_ENOUGH_REPLICAS if
        that may change, CONCURRENT_TRANSACTIONS or INVALID_TXN_STATE if the partition is not registered.
        """
        if self._roles.leader(tp) != self._config.broker_id:
            return
        # Clients of all ages try this one again.
        again = ErrorCode.CONCURRENT_TRANSACTIONS if begins else ErrorCode.NOT_ENOUGH_REPLICAS
        self._check_together(tp, ErrorCode.NOT_ENOUGH_REPLICAS)
        served = self._served
        if served is None or not served.logs.coordinates():
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "The coordinator of transactions is changing; try again."
            )
        served.look_at(tp)
        registered = served.coordinator.is_registered(transactional_id, tp)
        if not registered and not begins:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE, f"{tp} is not in the transaction of {transactional_id!r}."
            )
        if not registered or served.coordinator.lacks_marker(tp, header.producer_id):
            raise BrokerError(
                again, f"{tp} cannot be written to by a transaction of {transactional_id!r} now; try again."
            )

    def is_registered(self, transactional_id: str, tp: TopicPartition) -> bool:
        """Return whether a batch needs no `register` before it: the partition has it, or the append is refused."""
        served = self._served
        return (
            served is None
            or served.coordinator.is_registered(transactional_id, tp)
            or self._roles.leader(tp) != self._config.broker_id
        )

    # --- a producer ----------------------------------------------------------------------------------------

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """See `Transactions.init`. Raises NOT_COORDINATOR."""
        return await self._run(lambda one: one.init(transactional_id, timeout_ms, known))

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        """See `Transactions.is_newest`. True if another broker coordinates: it refuses the request."""
        served = self._served
        return served is None or served.coordinator.is_newest(
            transactional_id, connection, producer, of_group=of_group
        )

    async def join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """See `Transactions.join`; the partitions are stored. Raises NOT_COORDINATOR.

        POLICY_VIOLATION for a partition that another broker leads.
        """
        if not partitions:
            await self._run(lambda one: one.join(transactional_id, producer))
            return
        served = self._serving()
        for tp in partitions:
            self._check_together(tp, ErrorCode.CONCURRENT_TRANSACTIONS)
            served.look_at(tp)
        await self._run(lambda one: one.register(transactional_id, producer, partitions))

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        """See `Transactions.stage`. Raises NOT_COORDINATOR."""
        return await self._run(lambda one: one.stage(transactional_id, producer, work, begins=begins))

    def writing(self, transactional_id: str, *, begins: bool) -> ClusterBatches:
        """See `Transactions.writing`."""
        served = self._served
        inner = None if served is None else served.coordinator.writing(transactional_id, begins=begins)
        return ClusterBatches(self, transactional_id, begins, inner)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool
    ) -> ProducerIdAndEpoch:
        """See `Transactions.end`. Raises NOT_COORDINATOR."""
        return await self._run(lambda one: one.end(transactional_id, producer, commit=commit, raises=raises))

    async def commit_together(
        self, participants: Sequence[Participant], also: Callable[[], Sequence[Settlement]]
    ) -> list[ProducerIdAndEpoch]:
        """See `Transactions.commit_together`. Raises NOT_COORDINATOR."""
        return await self._run(lambda one: one.commit_together(participants, also))

    async def begin_own(self) -> OwnTransaction:
        """Raise POLICY_VIOLATION: the partitions of a transaction are stored with a transactional id here."""
        raise not_over_http()

    async def abort_leftovers(
        self, prefix: str, keep: Collection[str] = (), *, forget: bool = False
    ) -> list[str]:
        """See `Transactions.abort_leftovers`. Raises NOT_COORDINATOR."""
        return await self._run(lambda one: one.abort_leftovers(prefix, keep, forget=forget))

    async def terminate(self, transactional_id: str) -> None:
        """See `Transactions.terminate`. Raises NOT_COORDINATOR."""
        await self._run(lambda one: one.terminate(transactional_id))

    async def abort(self, producer: ProducerIdAndEpoch, tp: TopicPartition) -> None:
        """See `Transactions.abort`. Raises NOT_COORDINATOR: the leader of a partition alone cannot know its end."""
        await self._run(lambda one: one.abort(producer, tp))

    # --- the rhythm ----------------------------------------------------------------------------------------

    async def step(self) -> None:
        """See `Transactions.step`; take over what is open in partitions that this broker has begun to lead."""
        if self._served is None or not self._served.logs.coordinates():
            return
        self._served.look_at_all()
        try:
            await self._run(lambda one: one.step())
        except BrokerError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise

    async def expire(self) -> None:
        """See `Transactions.expire`."""
        if self._served is not None:
            await self._run(lambda one: one.expire())

    async def close(self) -> bool:
        """Finish the ends under way; return whether they are over. Open transactions are stored already."""
        return self._served is None or await self._served.coordinator.finish()

    # --- what there is -------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionInfo:
        """See `Transactions.get`. Raises NOT_COORDINATOR."""
        return self._serving().coordinator.get(transactional_id)

    def totals(self) -> TransactionTotals:
        """See `Transactions.totals`: of those that this broker coordinates."""
        if self._served is None:
            return totals((), now_ms=0, longest_ms=0, unmarked=0, ended={}, hanging=0)
        return self._served.coordinator.totals()

    def all(self) -> Collection[TransactionInfo]:
        """Return the ids that this broker coordinates: all of the cluster, or none."""
        return () if self._served is None else self._served.coordinator.all()


class ClusterBatches:
    """The transaction that the batches of one Produce request belong to, on a broker of a cluster."""

    __slots__ = ("_inner", "_transactional_id", "_transactions", "begins")

    def __init__(
        self,
        transactions: ClusterTransactions,
        transactional_id: str,
        begins: bool,
        inner: TransactionalBatches | None,
    ) -> None:
        self._transactions = transactions
        self._transactional_id = transactional_id
        self._inner = inner
        self.begins = begins

    def unregistered(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that `register` must add before the append."""
        registered = self._transactions.is_registered
        return [
            tp
            for tp in partitions
            if self.begins and self._inner is not None and not registered(self._transactional_id, tp)
        ]

    async def register(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction, durably. If that fails, `check` raises."""
        with contextlib.suppress(BrokerError):
            await self._transactions.join(self._transactional_id, producer, partitions)

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """See `TransactionalBatches.check` and `ClusterTransactions.check_batch`."""
        if self._inner is not None:
            self._inner.check(tp, header)
        self._transactions.check_batch(self._transactional_id, tp, header, begins=self.begins)

    def appended(self, tp: TopicPartition, topic_id: UUID, offset: int, records: int) -> None:
        """See `TransactionalBatches.appended`."""
        assert self._inner is not None
        self._inner.appended(tp, topic_id, offset, records)


def not_over_http() -> BrokerError:
    """Return the refusal of transactions that are written over HTTP to brokers of a cluster."""
    return BrokerError(
        ErrorCode.POLICY_VIOLATION,
        "Brokers of a cluster serve transactions over the Kafka port alone; write without one, or use that port.",
    )
