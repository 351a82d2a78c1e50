"""Writes under an idempotency key: appended once, however often they are sent and whenever we die.

Theory. A key is what a client names its request by. Its life:

    (none)  → bound      one commit of SQLite, before anything is appended: the plan (`idempotency_plan`)
    bound   → answered   all batches are appended, as durable as the acks ask for; the answer is stored
    bound   → (none)     every batch was refused for good, nothing is in a log: the client may try again
    bound   → bound      the process died, or a disk refused; some batches may be in their logs, some not

A request that finds its key

    answered   gets the stored answer
    running    is refused (CONCURRENT_TRANSACTIONS), for the answer is not known yet
    bound      carries the stored plan out again: a batch that its log has is found there by producer id and
               sequence and counts with the offset that it has; the others are appended with the same numbers
    with another fingerprint   is refused (INVALID_REQUEST, reason "key-reused"): the key names another request

What a log knows of producers is bounded, and forgotten after a day of silence. So a start looks at once for the
batches of all keys that are bound and not answered, and stores what it finds, and a write that ends half-way
stores it too; what is not found then will not be there later, for no one else has those producer ids.

The answer is not waited for until it is stored: if we die before it is, the key is bound and its batches are found.

A stored answer names records that are on the disk. With acks=1 the client is answered before they are, and the key
stays bound until they are: what a loss of power takes from the log is not found there, and the retry writes it again.
The same goes for places that were stored: those beyond the recovered end of a log are forgotten at the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.idempotency.plan import (
    EPOCH,
    Part,
    Place,
    Places,
    Plan,
    decode_places,
    decode_plan,
    draft,
    encode,
    indexes_of,
    make_plan,
)
from core.idempotency.producer_pool import LentProducer, NewProducerIds, ProducerPool
from core.log.replica_log import ReplicaLog
from core.log.retention import SettledTime
from core.metadata.idempotency import (
    ROW_BYTES,
    KeyRow,
    bind,
    find,
    load_open,
    put_answer,
    put_places,
    remove,
    remove_oldest,
    totals,
)
from core.metadata.store import Effect, Store
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.idempotency import KEY_REUSED, KeyedAnswer, KeyedRequest
from core.vocabulary.records import UNDONE, ProduceResult, refuse_batch

logger = logging.getLogger(__name__)

# Refusals that may pass: the key stays bound, so that the same request can go on where it was stopped.
_PASSING = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class _Work(NamedTuple):
    """What a request wants."""

    digest: bytes
    topic: str
    records: Sequence[NewRecord]
    acks: int
    render: Callable[[Sequence[ProduceResult]], bytes]


class _Run(NamedTuple):
    """What carrying a plan out came to: whether anything was appended now, and whether trying again is idle.

    `undurable`: what was taken may not be on the disk before these are done; the client does not wait for them.
    """

    results: list[ProduceResult]
    appended: bool
    settled: bool
    undurable: list[asyncio.Future[None]]


class IdempotencyKeys:
    """The keys of one broker."""

    def __init__(
        self,
        broker: Logs,
        store: Store,
        producer_ids: NewProducerIds,
        log: Callable[[TopicPartition], ReplicaLog],
    ) -> None:
        self._broker = broker
        self._database = store
        self._log = log
        self._pool = ProducerPool(producer_ids, broker.config.idempotency_max_producers)
        # A clock that jumps a day ahead must not forget all keys at once.
        self._time = SettledTime(broker.clock)
        # Digest → fingerprint of the requests that are under way.
        self._running: dict[bytes, bytes] = {}
        # How many keys there are, and how many bytes at most: answers shrink when they are stored.
        self._keys = 0
        self._size = 0
        self._counted = False
        self._expiring = False
        self._early: asyncio.Future[None] | None = None
        # Answers that are not stored before their records are on the disk.
        self._waiting: set[asyncio.Future[list[None]]] = set()

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find out what became of the writes that the last run did not finish."""
        found = []
        for digest, plan_data, places_data in await self._database.read(load_open):
            plan = decode_plan(plan_data)
            places = decode_places(places_data, plan)
            await self._find_after_crash(plan, places)
            if any(places) or places_data:
                found.append((digest, encode(places)))
        if found:
            await self._database.submit([put_places(found)])
            logger.info("%d unfinished writes with an idempotency key were found in the logs", len(found))

    async def expire(self) -> None:
        """Remove keys that are too old, and the oldest answered ones where there are too many."""
        if self._expiring:
            return
        self._expiring = True
        try:
            await self._expire()
        finally:
            self._expiring = False

    async def _expire(self) -> None:
        store, config = self._database, self._broker.config
        now = self._time.now_ms()
        expired = now - config.idempotency_ttl_ms
        while removed := await store.read(remove_oldest(before_ms=expired, expired_ms=expired)):
            self._keys -= removed
        if not self._counted or self._size > config.idempotency_max_bytes:
            # A third of a second with a million keys, during which nobody commits: only when it is necessary.
            self._keys, self._size = await store.read(totals)
            self._counted = True
        too_many = self._keys - config.idempotency_max_keys
        if (too_large := self._size - config.idempotency_max_bytes) > 0:
            too_many = max(too_many, 1 + too_large * self._keys // self._size)
        while too_many > 0:
            query = remove_oldest(before_ms=now, expired_ms=expired, limit=too_many)
            if not (removed := await store.read(query)):
                return
            self._size -= self._size * removed // self._keys
            self._keys -= removed
            too_many -= removed

    def _count(self, keys: int, size: int) -> None:
        """There are more keys, or larger ones; what is far beyond the limits is not left to the next check."""
        self._keys += keys
        self._size += size
        config = self._broker.config
        if not self._expiring and (
            self._keys > 1.1 * config.idempotency_max_keys or self._size > 1.1 * config.idempotency_max_bytes
        ):
            self._early = asyncio.ensure_future(self.expire())
            self._early.add_done_callback(lambda done: done.cancelled() or done.exception())

    # --- a request -----------------------------------------------------------------------------------------

    async def produce(
        self,
        request: KeyedRequest,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int,
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        """Append records once for all requests of that key. `render` makes the answer that is stored.

        Raises CONCURRENT_TRANSACTIONS while another request with the key is under way, INVALID_REQUEST (details:
        reason "key-reused") if the key names another request, THROTTLING_QUOTA_EXCEEDED, KAFKA_STORAGE_ERROR if
        the key cannot be stored (nothing is appended then), and what `Records.produce` raises.
        """
        digest = request.digest
        running = self._running.get(digest)
        if running is not None:
            _check_fingerprint(running, request)
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS, "A request with this idempotency key is still under way."
            )
        self._running[digest] = request.fingerprint
        try:
            return await self._produce(digest, request, topic, records, acks, render)
        finally:
            del self._running[digest]

    async def _produce(
        self,
        digest: bytes,
        request: KeyedRequest,
        topic: str,
        records: Sequence[NewRecord],
        acks: int,
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        broker = self._broker
        if (row := await self._of_missing_topic(digest, topic)) is not None and row.answer is not None:
            _check_fingerprint(row.fingerprint, request)
            return KeyedAnswer(row.answer, [], True)
        info = await broker.topics.get_or_create(topic)
        drafted = draft(broker, topic, records)
        producers = await self._pool.borrow(drafted.producers_needed)
        plan = make_plan(info.topic_id, drafted, producers)
        try:
            row = await self._bind(digest, request.fingerprint, plan)
        except BaseException:
            # A commit that failed may have reached the disk all the same.
            self._pool.retire(producers)
            raise
        work = _Work(digest, topic, records, acks, render)
        if row is None:
            self._count(1, ROW_BYTES + 50 * len(plan.parts))
            return await self._carry_out(work, plan, [None] * len(plan.parts), producers)
        self._pool.give_back(producers)
        _check_fingerprint(row.fingerprint, request)
        if row.answer is not None:
            return KeyedAnswer(row.answer, [], True)
        plan = decode_plan(row.plan)
        if plan.topic_id == info.topic_id.bytes:
            places = decode_places(row.places, plan)
            self._look_for(topic, plan, places)
            return await self._carry_out(work, plan, places, [])
        # The plan was for a topic that is deleted; another one has its name now.
        await self._database.submit([remove(digest)])
        return await self._produce(digest, request, topic, records, acks, render)

    async def _of_missing_topic(self, digest: bytes, topic: str) -> KeyRow | None:
        """The row of a key if its topic is not there: it shall not be created for what was answered before."""
        try:
            self._broker.topics.get(topic)
        except BrokerError:
            expired = self._time.now_ms() - self._broker.config.idempotency_ttl_ms
            return await self._database.read(find(digest, expired_ms=expired))
        return None

    async def _bind(self, digest: bytes, fingerprint: bytes, plan: Plan) -> KeyRow | None:
        now = self._time.now_ms()
        expired = now - self._broker.config.idempotency_ttl_ms
        query = bind(digest, fingerprint, encode(plan), now_ms=now, expired_ms=expired)
        return await self._database.read(query)

    # --- a plan --------------------------------------------------------------------------------------------

    async def _carry_out(
        self, work: _Work, plan: Plan, places: Places, lent: Sequence[LentProducer]
    ) -> KeyedAnswer:
        """Append what has no place yet, and store what came of it. `lent` are the producers of a new plan."""
        try:
            run = await self._append(work, plan, places)
        except BaseException:
            self._pool.retire(lent)
            raise
        answer: bytes | None = None
        effect: Effect
        taken = any(places)
        if not run.settled:
            effect = put_places([(work.digest, encode(places))])
        elif taken:
            answer = work.render(run.results)
            self._count(0, len(answer))
            effect = put_answer(work.digest, answer)
        else:
            effect = remove(work.digest)
            self._keys -= 1
        if lent:
            _advance(lent, plan, places)
        if answer is not None and run.undurable:
            self._store_when_durable(effect, lent, run.undurable)
        else:
            self._store(effect, lent, run.settled)
        return KeyedAnswer(answer, run.results, taken and not run.appended)

    def _store_when_durable(
        self, effect: Effect, lent: Sequence[LentProducer], waits: Sequence[asyncio.Future[None]]
    ) -> None:
        """Store an answer once all that it names is on the disk, and in sync; else the key stays bound."""

        def durable(done: asyncio.Future[list[None]]) -> None:
            self._waiting.discard(done)
            if done.cancelled() or done.exception() is not None:
                self._pool.retire(lent)
            else:
                self._store(effect, lent, True)

        waiting = asyncio.gather(*waits)
        self._waiting.add(waiting)
        waiting.add_done_callback(durable)

    def _store(self, effect: Effect, lent: Sequence[LentProducer], settled: bool) -> None:
        """Store what a request came to. Its producers are lent again once nothing can ask for them any more."""

        def stored(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None or not settled:
                self._pool.retire(lent)
            else:
                self._pool.give_back(lent)

        try:
            self._database.submit([effect]).add_done_callback(stored)
        except BrokerError as error:
            logger.warning("an idempotency key stays open: %s", error.message)
            self._pool.retire(lent)

    async def _append(self, work: _Work, plan: Plan, places: Places) -> _Run:
        broker, records = self._broker, work.records
        results: list[ProduceResult] = [UNDONE] * len(records)
        waits: list[tuple[asyncio.Future[None], int, Sequence[int]]] = []
        undurable: list[asyncio.Future[None]] = []
        appended, settled = False, True
        for number, (part, indexes) in enumerate(indexes_of(broker, work.topic, plan, records)):
            address = TopicPartition(work.topic, part.partition)
            try:
                place = places[number]
                if place is None:
                    place = places[number] = self._append_part(address, plan, part, work, indexes)
                    appended = True
                waiting = broker.partitions.durable(address, work.acks)
            except BrokerError as error:
                refuse_batch(results, indexes, part.partition, error)
                settled = settled and error.code not in _PASSING
                continue
            _fill(results, part, place, plan.now_ms, records, indexes)
            if waiting is not None:
                waits.append((waiting, number, indexes))
            elif work.acks != -1 and (later := broker.partitions.durable(address, -1)) is not None:
                undurable.append(later)
        for waiting, number, indexes in waits:
            try:
                await waiting
            except BrokerError as error:
                # It may be there or not: only a restart, which reads the disk, will know.
                refuse_batch(results, indexes, plan.parts[number].partition, error)
                places[number] = None
                settled = False
        return _Run(results, appended, settled, undurable)

    def _append_part(
        self, address: TopicPartition, plan: Plan, part: Part, work: _Work, indexes: Sequence[int]
    ) -> Place:
        batch = build_batch(
            [work.records[index] for index in indexes],
            now_ms=plan.now_ms,
            producer_id=part.producer_id,
            producer_epoch=EPOCH,
            base_sequence=part.base_sequence,
        )
        done = self._broker.partitions.append(address, memoryview(batch), acks=work.acks)
        return Place(done.base_offset, done.log_append_time)

    def _look_for(self, topic: str, plan: Plan, places: Places) -> set[int]:
        """Note the places of batches that the logs know; the partitions where any was found."""
        found = set()
        for number, part in enumerate(plan.parts):
            if places[number] is not None:
                continue
            try:
                log = self._log(TopicPartition(topic, part.partition))
                known = log.producers.check(part.header)
            except BrokerError:
                continue
            if known is not None:
                by_broker = log.config.message_timestamp_type == "LogAppendTime"
                places[number] = Place(known.base_offset, known.timestamp if by_broker else -1)
                found.add(part.partition)
        return found

    async def _find_after_crash(self, plan: Plan, places: Places) -> None:
        """Note the places of the batches that the logs know, once these are on the disk; forget those beyond the end.

        Where this broker does not hold the log, nothing is found, and what is known stays.
        """
        try:
            topic = self._broker.topics.name_of(UUID(bytes=plan.topic_id))
        except BrokerError:
            return
        self._forget_lost(topic, plan, places)
        for partition in self._look_for(topic, plan, places):
            try:
                if (
                    waiting := self._broker.partitions.durable(TopicPartition(topic, partition), -1)
                ) is not None:
                    await waiting
            except BrokerError:
                for number, part in enumerate(plan.parts):
                    if part.partition == partition:
                        places[number] = None

    def _forget_lost(self, topic: str, plan: Plan, places: Places) -> None:
        """Forget places that a loss of power has taken from the end of a log."""
        for number, part in enumerate(plan.parts):
            place = places[number]
            if place is None:
                continue
            with contextlib.suppress(BrokerError):
                end = self._log(TopicPartition(topic, part.partition)).offsets.log_end_offset
                if place.base_offset + part.count > end:
                    places[number] = None


def _advance(lent: Sequence[LentProducer], plan: Plan, places: Places) -> None:
    """The producers go on behind what was appended."""
    by_id = {producer.producer_id: producer for producer in lent}
    topic_id = UUID(bytes=plan.topic_id)
    for part, place in zip(plan.parts, places, strict=True):
        if place is not None:
            by_id[part.producer_id].advance(topic_id, part.partition, part.base_sequence + part.count)


def _check_fingerprint(known: bytes, request: KeyedRequest) -> None:
    if known != request.fingerprint:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "This idempotency key belongs to another request, with another body or query.",
            reason=KEY_REUSED,
        )


def _fill(
    results: list[ProduceResult],
    part: Part,
    place: Place,
    now_ms: int,
    records: Sequence[NewRecord],
    indexes: Sequence[int],
) -> None:
    """The results of the records of one batch."""
    offset, append_time = place
    for index in indexes:
        timestamp = append_time
        if append_time < 0:
            own = records[index].timestamp
            timestamp = now_ms if own is None else own
        results[index] = ProduceResult(part.partition, offset, timestamp)
        offset += 1
