"""The coordinator of transactions (KIP-98, KIP-890), of a broker that holds all partitions.

The order of an end, and what a crash leaves:

    1. the transaction is closed: no request of its id is served until 4
    2. a commit only: the records are on the disk in all partitions
    3. one commit of the store: the decision, the group offsets, what the producer continues with
    4. in one turn of the loop: the markers in all partitions, the offsets in memory, the new state
    5. the answer
    6. markers reach the disk with their logs, some time later; then the decision is deleted

Before 3 nothing has ended: the transaction stays open, or is aborted. After 3 it has: a start appends the markers
that a crash has left out, found by producer id and first offset. So a reader sees all of a transaction or nothing, in
all partitions at once, and a client that was answered keeps what it was told, also after a power loss.

Kafka answers at 3 and writes the markers later; clients that continue at once meet CONCURRENT_TRANSACTIONS. Here a
request of an id that is being ended waits. Markers need no protection against older ones of the same producer either,
because the records of a transaction are checked against its state in the turn in which they are appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from core.clock import Clock
from core.config import Config
from core.counters import Tally
from core.errors import BrokerError, ErrorCode
from core.metadata.store import Effect, Store
from core.metadata.transactions import (
    delete_decisions,
    delete_transactional_ids,
    load_transactions,
    put_decision,
    put_transactional_id,
)
from core.records.control import EndMarker
from core.records.header import BatchHeader
from core.transactions.batches import TransactionalBatches
from core.transactions.decisions import Decisions
from core.transactions.own import OwnTransaction, OwnTransactions
from core.transactions.ports import GroupOffsets, PartitionLogs
from core.transactions.refusals import check_init, check_number, not_open, said, unknown_producer
from core.transactions.rows import loaded, row_after, row_of
from core.transactions.totals import totals
from core.transactions.transaction import Decision, Part, Transaction
from core.types import OpenTransaction, TopicPartition
from core.vocabulary.transactions import (
    NO_PRODUCER,
    Outcome,
    Participant,
    ProducerIdAndEpoch,
    Settlement,
    TransactionInfo,
    TransactionState,
    TransactionTotals,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long until something that the disk has refused is tried again.
_AGAIN_SECONDS = 1.0
# Leftovers that one decision aborts: their markers are appended in one turn of the loop.
_TOGETHER = 200


class Transactions:
    """The transactional ids of one broker, as `broker.transactions`. Call `open` before anything else."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: Store,
        logs: PartitionLogs,
        offsets: GroupOffsets,
        new_producer_id: Callable[[], Coroutine[Any, Any, int]],
        *,
        coordinator_epoch: int = 0,
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._logs = logs
        self._offsets = offsets
        self._new_producer_id = new_producer_id
        # The one that was used least recently is the first.
        self._ids: dict[str, Transaction] = {}
        # Transactional id → the change that all its other requests wait for.
        self._changing: dict[str, asyncio.Task[Any]] = {}
        # Those of them that stage offsets: records may be written meanwhile.
        self._staging: set[str] = set()
        self._own = OwnTransactions(logs, new_producer_id, config.idempotency_max_producers)
        # How transactions have ended since the start; and how many in logs belonged to no transactional id.
        self._ended: Tally[Outcome] = Tally()
        self._hanging = 0
        # Markers have it. Without replicas there is one coordinator.
        self._coordinator_epoch = coordinator_epoch
        self._decisions = Decisions(logs, coordinator_epoch)

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take over what the store and the logs know: end what was decided, and continue with what is open.

        Open transactions in logs whose producer no transactional id has are aborted.
        """
        ids, decisions = await self._store.read(load_transactions)
        now = self._clock.monotonic()
        for row in ids:
            self._ids[row.transactional_id] = loaded(row, now)
        self._decisions.load(decisions)
        by_producer = {one.producer: one for one in self._ids.values()}
        await self._resume_offsets(by_producer, now)
        for found in list(self._logs.open_transactions()):
            self._resume(found, by_producer.get(ProducerIdAndEpoch(found.producer_id, found.epoch)))
        # After a clean stop logs are opened when they are first asked for.
        self._logs.watch(self._take_over)

    def _resume(self, found: OpenTransaction, owner: Transaction | None) -> None:
        """Continue a transaction that is open in a log."""
        if owner is None:
            self._take_over(found)
        elif not owner.ending and not self._decisions.decide(found.tp, found.producer_id, found.first_offset):
            owner.begin(now_ms=self._clock.wall_ms(), now=self._clock.monotonic())
            owner.parts[found.tp] = Part(found.topic_id, found.first_offset)
            owner.records = -1

    def _take_over(self, found: OpenTransaction) -> None:
        """Abort a transaction that is open in a log, unless it is known here: a transactional id's, or decided."""
        producer_id = found.producer_id
        ours = any(
            one.producer.producer_id == producer_id and found.tp in one.parts for one in self._ids.values()
        )
        decided = self._decisions.decide(found.tp, producer_id, found.first_offset)
        if not ours and not decided and not self._own.has(producer_id):
            self._abort_unknown(found)

    async def _resume_offsets(
        self, by_producer: Mapping[ProducerIdAndEpoch, Transaction], now: float
    ) -> None:
        """Continue transactions that hold group offsets; drop offsets that no transactional id can ever end."""
        staging = self._offsets.staging_producers()
        held = {producer.producer_id for producer in staging if producer in by_producer}
        for producer in staging:
            if producer in by_producer:
                by_producer[producer].begin(now_ms=self._clock.wall_ms(), now=now)
            elif producer.producer_id not in held:
                logger.warning("producer %d has group offsets and no transactional id", producer.producer_id)
                settlement = self._offsets.settle_transaction(*producer, False)
                await self._store.submit(settlement.effects)
                settlement.apply()

    def _abort_unknown(self, found: OpenTransaction) -> None:
        """Abort a transaction in a log of which no transactional id is known: no client could ever end it."""
        logger.warning(
            "%s: the transaction of producer %d from offset %d on belongs to no transactional id and is aborted",
            found.tp,
            found.producer_id,
            found.first_offset,
        )
        marker = EndMarker(commit=False, coordinator_epoch=self._coordinator_epoch)
        try:
            self._logs.append_marker(
                found.tp, found.topic_id, found.producer_id, found.epoch, marker, raised=False
            )
            self._hanging += 1
        except BrokerError as error:
            logger.error("%s: it cannot be aborted: %s", found.tp, error.message)

    async def finish(self) -> bool:
        """Wait until the ends under way are over, for `drain_timeout_ms` at most; return whether they are."""
        late: set[asyncio.Task[Any]] = set()
        if changing := [*self._changing.values(), *self._own.ending]:
            _, late = await asyncio.wait(changing, timeout=self._config.drain_timeout_ms / 1000)
            self.abandon()
        return not late

    def abandon(self) -> None:
        """End all changes where they are. What is stored of them counts; no calls come afterwards."""
        for task in [*self._changing.values(), *self._own.ending]:
            task.cancel()

    async def close(self) -> bool:
        """Finish the ends under way, and store where transactions are open. No calls come afterwards.

        Return False if the store does not tell all of that: then the next start has to find it in the logs.
        """
        finished = await self.finish()
        effects = [put_transactional_id(row_of(one)) for one in self._ids.values() if one.ongoing]
        try:
            if effects:
                await self._store.submit(effects)
        except BrokerError as error:
            logger.error("where transactions are open cannot be stored: %s", error.message)
            return False
        return finished

    # --- a producer ----------------------------------------------------------------------------------------

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """InitProducerId: return the producer to write under; every earlier one of this id is fenced.

        An open transaction is aborted first. `known` is the producer that the client has (KIP-360). Raises
        INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, KAFKA_STORAGE_ERROR.
        """
        check_init(transactional_id, timeout_ms, known, self._config)
        await self._free(transactional_id)
        return await self._change(transactional_id, self._init(transactional_id, timeout_ms, known))

    async def _init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch
    ) -> ProducerIdAndEpoch:
        transaction = self._ids.get(transactional_id)
        raised = False
        if transaction is None:
            if known != NO_PRODUCER:
                # As in Kafka: an id that has expired begins again, whatever the client remembers.
                known = NO_PRODUCER
            await self._limit_ids()
            producer = ProducerIdAndEpoch(await self._new_producer_id(), 0)
            changed = Transaction(transactional_id, producer, timeout_ms)
        else:
            if transaction.repeats_init(known):
                return transaction.producer
            if transaction.ongoing:
                await self._fence(transaction, Outcome.FENCED)
                raised = True
            spare = -1 if raised else await self._spare_id(transaction)
            changed = Transaction(
                transactional_id, transaction.producer, timeout_ms, transaction.previous, transaction.state
            )
            changed.connection, changed.group_connection = (
                transaction.connection,
                transaction.group_connection,
            )
            changed.initialize(known, timeout_ms, spare, raised=raised)
        changed.updated_ms = self._clock.wall_ms()
        # What the client is not told must not hold: so the state changes once it is stored.
        await self._store.submit([put_transactional_id(row_of(changed))])
        self._ids.pop(transactional_id, None)
        self._ids[transactional_id] = changed
        return changed.producer

    async def _spare_id(self, transaction: Transaction) -> int:
        """Return a new producer id if the epoch of the old one cannot be raised."""
        return await self._new_producer_id() if transaction.exhausted else -1

    async def _limit_ids(self) -> None:
        """Forget the id that was used least recently if there are too many. One with an open transaction stays."""
        if len(self._ids) < self._config.max_transactional_ids:
            return
        for transactional_id, one in self._ids.items():
            if not one.ongoing and transactional_id not in self._changing:
                await self._store.submit([delete_transactional_ids([transactional_id])])
                self._ids.pop(transactional_id, None)
                return
        raise BrokerError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"{len(self._ids)} transactions are open already; try again.",
        )

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        """Note that a connection asks something of an id; False if a newer one has done so before.

        A client uses one connection at a time to each coordinator, of transactions and of a group (`of_group`). It
        opens a new one when an answer fails to come, and sends the request again. Should the first one arrive after
        that, an EndTxn would end the next transaction: before KIP-890 nothing tells the two apart (KAFKA-17754).
        `connection` rises with each connection that is accepted.

        A `producer` that has been fenced is told so instead, over whichever connection, and counts for nothing.
        """
        transaction = self._ids.get(transactional_id)
        if transaction is None or producer not in (None, transaction.producer):
            return True
        if of_group:
            newest = transaction.group_connection = max(transaction.group_connection, connection)
        else:
            newest = transaction.connection = max(transaction.connection, connection)
        return connection == newest

    # --- what joins a transaction --------------------------------------------------------------------------

    async def join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """Open a transaction for partitions or a group that are named before they are used (before KIP-890).

        Raises INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        await self._free(transactional_id)
        self._checked(transactional_id, producer)
        transaction = self._ids[transactional_id]
        self._begin(transaction)
        if transaction.named is None:
            transaction.named = set()
        transaction.named.update(partitions)

    async def register(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Like `join`, and the partitions are stored: another coordinator must know them, not only their leaders.

        Raises what `join` does, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION for too many partitions, and what
        `Store.submit` raises.
        """
        await self._free(transactional_id)
        transaction = self._checked(transactional_id, producer)
        parts = {tp: Part(self._logs.topic_id(tp), -1) for tp in partitions}
        check_number({**transaction.parts, **parts}, self._config)
        known = transaction.parts
        new = {
            tp: part for tp, part in parts.items() if tp not in known or known[tp].topic_id != part.topic_id
        }
        if new:
            await self._change(
                transactional_id, self._stage(transactional_id, self._register(transaction, new))
            )
        else:
            self._begin(transaction)

    async def _register(self, transaction: Transaction, new: Mapping[TopicPartition, Part]) -> None:
        row = row_of(transaction, new)
        now_ms = self._clock.wall_ms()
        await self._store.submit(
            [put_transactional_id(row._replace(state=TransactionState.ONGOING, updated_ms=now_ms))]
        )
        self._begin(transaction)
        transaction.parts.update(new)

    def is_registered(self, transactional_id: str, tp: TopicPartition) -> bool:
        """Return whether a partition is in the open transaction of an id."""
        transaction = self._ids.get(transactional_id)
        return transaction is not None and transaction.ongoing and tp in transaction.parts

    def lacks_marker(self, tp: TopicPartition, producer_id: int) -> bool:
        """Return whether the end of an earlier transaction of that producer is still missing in a partition."""
        return self._decisions.lack(tp, producer_id)

    def look_again(self, tp: TopicPartition, found: Iterable[OpenTransaction]) -> None:
        """Append the markers that a log lacks, and continue what was `found` open in it: it has another leader now.

        The log may have been cut since it was looked at last.
        """
        self._decisions.repeat(tp)
        for one in found:
            producer = ProducerIdAndEpoch(one.producer_id, one.epoch)
            owner = next((known for known in self._ids.values() if known.producer == producer), None)
            if self._logs.is_open(tp, one.topic_id, one.producer_id, one.first_offset):
                self._resume(one, owner)

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        """TxnOffsetCommit: have `work` stage offsets while nothing can end the transaction; return what it returns.

        `begins` opens the transaction if none is open (KIP-890). Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
        """
        await self._free(transactional_id)
        transaction = self._checked(transactional_id, producer)
        if not (begins or transaction.ongoing or transaction.resumed):
            raise not_open(transaction)
        self._begin(transaction)
        return await self._change(transactional_id, self._stage(transactional_id, work()))

    async def _stage(self, transactional_id: str, work: Coroutine[Any, Any, T]) -> T:
        self._staging.add(transactional_id)
        try:
            return await work
        finally:
            self._staging.discard(transactional_id)

    def writing(self, transactional_id: str, *, begins: bool) -> TransactionalBatches:
        """Return what an append of batches asks and tells; `begins`: Produce from version 12 on (KIP-890)."""
        return TransactionalBatches(self, transactional_id, begins)

    def check_records(
        self, transactional_id: str, tp: TopicPartition, header: BatchHeader, *, begins: bool
    ) -> None:
        """Raise unless a batch belongs to the open transaction of its producer; `begins` opens one (KIP-890).

        Raises INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; CONCURRENT_TRANSACTIONS or
        NOT_ENOUGH_REPLICAS while its end is under way. Call `note_records` in the same turn, once the batch is
        appended.
        """
        transaction = self._named(
            transactional_id, ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        )
        if transaction.producer.producer_id != header.producer_id:
            raise unknown_producer(transactional_id, header.producer_id)
        if transaction.producer.producer_epoch != header.producer_epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {transaction.producer.producer_epoch} by now; "
                f"{header.producer_epoch} is over.",
            )
        if transactional_id in self._changing and transactional_id not in self._staging:
            # Clients before KIP-890 take the second one alone for something to try again.
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS if begins else ErrorCode.NOT_ENOUGH_REPLICAS,
                f"Another request for {transactional_id!r} is still under way; try again.",
            )
        if not (begins or transaction.ongoing or transaction.resumed):
            raise not_open(transaction)
        self._decisions.require_markers(tp, header.producer_id)
        if tp not in transaction.parts:
            check_number((*transaction.parts, tp), self._config)

    def note_records(
        self, transactional_id: str, tp: TopicPartition, topic_id: UUID, offset: int, records: int
    ) -> None:
        """Take a batch that was appended at an offset, with its number of records, into the transaction."""
        transaction = self._ids[transactional_id]
        self._begin(transaction)
        if transaction.records >= 0:
            transaction.records += records
        known = transaction.parts.get(tp)
        if known is None or known.topic_id != topic_id or known.first_offset < 0:
            transaction.parts[tp] = Part(topic_id, offset)

    def _begin(self, transaction: Transaction) -> None:
        """Open a transaction. Nothing is stored: after a crash the logs tell what is open, after a stop the rows."""
        transaction.updated_ms = self._clock.wall_ms()
        if not transaction.ongoing:
            # It is the one that was used last.
            self._ids[transaction.transactional_id] = self._ids.pop(transaction.transactional_id)
        transaction.begin(now_ms=transaction.updated_ms, now=self._clock.monotonic())

    # --- the end -------------------------------------------------------------------------------------------

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool
    ) -> ProducerIdAndEpoch:
        """EndTxn: commit or abort; return the producer of the next transaction. `raises`: EndTxn from version 5 on.

        Durable and visible in all partitions when it returns. Raises INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING,
        PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, COORDINATOR_NOT_AVAILABLE.
        """
        await self._free(transactional_id)
        transaction = self._named(transactional_id, producer)
        spare = -1
        if raises and transaction.exhausted:
            spare = await self._new_producer_id()
            await self._free(transactional_id)
            transaction = self._named(transactional_id, producer)
        decision = transaction.end(producer, commit=commit, raises=raises, new_id=spare)
        if decision is None:
            return transaction.producer
        await self._change(transactional_id, self._finish(transaction, decision))
        return transaction.producer

    async def commit_together(
        self, participants: Sequence[Participant], also: Callable[[], Sequence[Settlement]]
    ) -> list[ProducerIdAndEpoch]:
        """Commit several transactions and other changes by one decision; see `vocabulary.Transactions`."""
        ids = [one.transactional_id for one in participants]
        if len(set(ids)) < len(ids):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "The request has a transactional id more than once.")
        await self._free(*ids)
        owned = [self._checked(one.transactional_id, one.producer) for one in participants]
        spares = [await self._spare_id(one) for one in owned]
        await self._free(*ids)
        ends = []
        for one, spare in zip(participants, spares, strict=True):
            transaction = self._named(one.transactional_id, one.producer)
            decision = transaction.end(one.producer, commit=True, raises=True, new_id=spare)
            if decision is None:
                raise BrokerError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"The transaction of {one.transactional_id!r} has ended before.",
                    transactional_id=one.transactional_id,
                )
            transaction.check_written(one.partitions, one.records)
            ends.append((transaction, decision))
        forget = {one.transactional_id for one in participants if one.ephemeral}
        await self._change(ids, self._finish_all(ends, also, forget))
        return [transaction.producer for transaction, _ in ends]

    async def begin_own(self) -> OwnTransaction:
        """Begin a transaction without a transactional id; see `vocabulary.Transactions`."""
        return await self._own.begin(self._finish_all)

    async def _finish(self, transaction: Transaction, decision: Decision) -> None:
        """End a transaction in the order that the module names. COORDINATOR_NOT_AVAILABLE: it is still open."""
        await self._finish_all([(transaction, decision)], tuple)

    async def abort_leftovers(
        self, prefix: str, keep: Collection[str] = (), *, forget: bool = False
    ) -> list[str]:
        """Abort open transactions of all ids with a prefix but for `keep`; see `vocabulary.Transactions`."""
        kept = set(keep)
        found = [one for one in self._ids if one.startswith(prefix) and one not in kept]
        aborted: list[str] = []
        for i in range(0, len(found), _TOGETHER):
            ids = found[i : i + _TOGETHER]
            await self._free(*ids)
            spares = {one: await self._spare_id(self._ids[one]) for one in ids if one in self._ids}
            await self._free(*ids)
            left = [self._ids[one] for one in ids if one in self._ids]
            ongoing = [one for one in left if one.ongoing]
            ends = [
                (one, one.fence(spares.get(one.transactional_id, -1), Outcome.ABORTED)) for one in ongoing
            ]
            aborted += [one.transactional_id for one, _ in ends]
            await self._change(ids, self._clear(ends, [one.transactional_id for one in left], forget=forget))
        return aborted

    async def _clear(
        self, ends: Sequence[tuple[Transaction, Decision]], ids: Collection[str], *, forget: bool
    ) -> None:
        if ends:
            await self._finish_all(ends, tuple)
        if forget and ids:
            await self._store.submit([delete_transactional_ids(ids)])
            for transactional_id in ids:
                self._ids.pop(transactional_id, None)

    async def _finish_all(
        self,
        ends: Sequence[tuple[Transaction, Decision]],
        also: Callable[[], Sequence[Settlement]],
        forget: Collection[str] = (),
    ) -> None:
        """End transactions in the order that the module names, and forget some of the ids with that."""
        before = [transaction.prepare(decision) for transaction, decision in ends]
        try:
            settlements = await self._settle(ends, also)
        except BaseException:
            # Nothing is decided: the client may ask again.
            for (transaction, _), state in zip(ends, before, strict=True):
                transaction.state = state
            raise
        effects = [effect for settlement in settlements for effect in settlement.effects]
        if forget:
            effects.append(delete_transactional_ids(list(forget)))
        decided = []
        for transaction, decision in ends:
            transaction.updated_ms = self._clock.wall_ms()
            if transaction.transactional_id and transaction.transactional_id not in forget:
                effects.append(put_transactional_id(row_after(transaction, decision)))
            if parts := self._located(transaction):
                row = self._decisions.row(decision, parts)
                effects.append(put_decision(row))
                decided.append(row)
        await self._store_surely([transaction.transactional_id for transaction, _ in ends], effects)
        # From here on nothing waits: one turn of the loop makes all of it visible.
        for row in decided:
            self._decisions.carry_out(row)
        for settlement in settlements:
            settlement.apply()
        for (transaction, decision), state in zip(ends, before, strict=True):
            transaction.complete(decision)
            if state is TransactionState.ONGOING:
                self._ended[decision.outcome] += 1
            if transaction.transactional_id in forget:
                self._ids.pop(transaction.transactional_id, None)

    async def _settle(
        self, ends: Sequence[tuple[Transaction, Decision]], also: Callable[[], Sequence[Settlement]]
    ) -> list[Settlement]:
        """Return what the end of these transactions changes elsewhere, once their records are on the disk."""
        try:
            for transaction, decision in ends:
                if decision.commit:
                    await self._flush(self._located(transaction))
            settled = [
                self._offsets.settle_transaction(*decision.producer, decision.commit)
                for one, decision in ends
                if one.transactional_id
            ]
        except BrokerError as error:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The transaction cannot be ended now: {error.message}",
            ) from error
        return [*settled, *also()]

    def _located(self, transaction: Transaction) -> list[tuple[TopicPartition, Part]]:
        """Return the partitions in which a transaction has records, or may have."""
        return list(self._logs.located(transaction.parts, transaction.producer.producer_id).items())

    async def _flush(self, parts: Sequence[tuple[TopicPartition, Part]]) -> None:
        waiting = [done for tp, part in parts if (done := self._logs.durable(tp, part.topic_id)) is not None]
        if waiting:
            await asyncio.gather(*waiting)

    async def _store_surely(self, ids: Sequence[str], effects: Sequence[Effect]) -> None:
        """Store a decision, however long it takes.

        When the store fails it is not known whether a restart will find the decision. So it is neither taken back nor
        replaced by another one; the same rows are stored again until that succeeds.
        """
        while True:
            try:
                await self._store.submit(effects)
                return
            except BrokerError as error:
                logger.error("the end of %s cannot be stored yet: %s", said(ids), error.message)
            await asyncio.sleep(_AGAIN_SECONDS)

    # --- the rhythm ----------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Abort transactions that are open for too long, and tidy up decisions whose markers are on the disk."""
        now = self._clock.monotonic()
        late = [one for one in self._ids.values() if one.is_late(now)]
        for transaction in late:
            transactional_id = transaction.transactional_id
            # While another one was aborted, this one may have ended, or its client may have begun again.
            current = self._ids.get(transactional_id) is transaction
            if transactional_id in self._changing or not current or not transaction.is_late(now):
                continue
            logger.info(
                "the transaction of %r is aborted after %d ms", transactional_id, transaction.timeout_ms
            )
            await self._change(transactional_id, self._fence(transaction, Outcome.TIMED_OUT))
        await self._forget_marked()

    async def _fence(self, transaction: Transaction, outcome: Outcome) -> None:
        """Abort an open transaction without its client, which is fenced."""
        spare = await self._spare_id(transaction)
        await self._finish(transaction, transaction.fence(spare, outcome))

    async def _forget_marked(self) -> None:
        done = self._decisions.safe()
        if done:
            await self._store.submit([delete_decisions(done)])
            self._decisions.forget(done)

    async def abort(self, producer: ProducerIdAndEpoch, tp: TopicPartition) -> None:
        """Abort the transaction that a producer has open in a partition, in all of them; the producer is fenced.

        Nothing happens if none is open there. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH,
        KAFKA_STORAGE_ERROR, CONCURRENT_TRANSACTIONS.
        """
        topic_id = self._logs.topic_id(tp)
        if not self._logs.is_open(tp, topic_id, producer.producer_id, -1):
            return
        self._own.require_free(producer.producer_id)
        owner = next(
            (one for one in self._ids.values() if one.producer.producer_id == producer.producer_id), None
        )
        if owner is None:
            marker = EndMarker(commit=False, coordinator_epoch=self._coordinator_epoch)
            self._logs.append_marker(tp, topic_id, *producer, marker, raised=False)
            return
        await self._free(owner.transactional_id)
        if owner.producer != producer:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer.producer_id} has epoch {owner.producer.producer_epoch} by now.",
            )
        if owner.ongoing:
            await self._change(owner.transactional_id, self._fence(owner, Outcome.TERMINATED))

    async def terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of an id for an administrator; see `vocabulary.Transactions`."""
        await self._free(transactional_id)
        transaction = self._found(transactional_id)
        if not transaction.ongoing:
            raise not_open(transaction)
        await self._change(transactional_id, self._fence(transaction, Outcome.TERMINATED))

    async def expire(self) -> None:
        """Forget the ids that were not used for `transactional_id_expiration_ms`."""
        before = self._clock.wall_ms() - self._config.transactional_id_expiration_ms
        old = [
            transactional_id
            for transactional_id, one in self._ids.items()
            if one.updated_ms < before and not one.ongoing and transactional_id not in self._changing
        ]
        if old:
            await self._store.submit([delete_transactional_ids(old)])
            for transactional_id in old:
                self._ids.pop(transactional_id, None)

    # --- what there is -------------------------------------------------------------------------------------

    def all(self) -> Collection[TransactionInfo]:
        """Return all transactional ids."""
        return [self._info(one) for one in self._ids.values()]

    def get(self, transactional_id: str) -> TransactionInfo:
        """Return one transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        return self._info(self._found(transactional_id))

    def totals(self) -> TransactionTotals:
        """Return all of them in numbers."""
        return totals(
            self._ids.values(),
            now_ms=self._clock.wall_ms(),
            longest_ms=self._config.transaction_max_timeout_ms,
            unmarked=len(self._decisions),
            ended=self._ended,
            hanging=self._hanging,
        )

    def _info(self, one: Transaction) -> TransactionInfo:
        if not one.ongoing and not one.ending:
            return one.info()
        left_ms = round(1000 * (one.deadline - self._clock.monotonic()))
        groups = tuple(self._offsets.groups_of(one.producer.producer_id))
        return one.info()._replace(expires_ms=self._clock.wall_ms() + left_ms, groups=groups)

    def _found(self, transactional_id: str) -> Transaction:
        transaction = self._ids.get(transactional_id)
        if transaction is None:
            raise BrokerError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"There is no transactional id {transactional_id!r}."
            )
        return transaction

    # --- one change of an id at a time ---------------------------------------------------------------------

    async def _free(self, *ids: str) -> None:
        """Wait until nothing changes some ids. Raises CONCURRENT_TRANSACTIONS after `transaction_hold_ms`."""
        deadline = self._clock.monotonic() + self._config.transaction_hold_ms / 1000
        while changing := [self._changing[one] for one in ids if one in self._changing]:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise BrokerError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"Another request for {said(ids)} is still under way; try again.",
                )
            await asyncio.wait(changing, timeout=left)

    async def _change(self, ids: str | Sequence[str], work: Coroutine[Any, Any, T]) -> T:
        """Run a change of some ids that nothing else changes. It continues if its client disconnects."""
        ids = [ids] if isinstance(ids, str) else ids
        task = asyncio.get_running_loop().create_task(work)
        self._changing.update(dict.fromkeys(ids, task))
        task.add_done_callback(lambda _: [self._changing.pop(one) for one in ids])
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait([task], timeout=self._config.transaction_hold_ms / 1000)
        if not done:
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"The end of {said(ids)} takes long; ask again for its outcome.",
            )
        return task.result()

    def _checked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        transaction = self._named(transactional_id, producer)
        transaction.check(producer)
        return transaction

    def _named(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A transactional id cannot be empty.")
        transaction = self._ids.get(transactional_id)
        if transaction is None:
            raise unknown_producer(transactional_id, producer.producer_id)
        return transaction
