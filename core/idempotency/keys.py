"""Writes under an idempotency key: appended once, however often the client sends them and whenever the process dies.

Theory. The client names its request by a key. The life of a key:

    (none)  → bound      one commit of SQLite, before anything is appended: the plan (see `plan`)
    bound   → answered   all batches are appended, as durable as the acks ask for; the answer is stored
    bound   → (none)     every batch was refused for good, no log has any of them: the client may try again
    bound   → bound      the process died, or a disk refused a write; some batches may be in their logs

A request whose key is

    answered   gets the stored answer
    running    is refused (CONCURRENT_TRANSACTIONS), for the answer is not known yet
    bound      carries out the stored plan again. The log recognizes a batch that it has by producer id and sequence;
               it counts with its offset. The others are appended with the same numbers
    of another fingerprint   is refused (INVALID_REQUEST, reason "key-reused"): the key belongs to another request

A log remembers a bounded number of producers, each for a day. So a start looks at once for the batches of all keys
that are bound and not answered, and stores what it finds. A write that ends half-way stores it too. A batch that is
not found then cannot be in the log later: no other producer has these ids.

The client gets its answer before the answer is stored: if the process dies in between, the key is bound and its
batches are found.

A stored answer names records that are on disk. With acks=1 the client is answered before they are, and the key stays
bound until they are: a batch that a power loss takes from the log is not found, and the retry appends it again. The
same holds for stored places: a start forgets those beyond the recovered end of a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.idempotency.plan import Places, Plan, decode_places, decode_plan, draft, make_plan
from core.idempotency.plan_writer import Writer
from core.idempotency.producer_pool import LentProducer, ProducerIds, ProducerPool
from core.idempotency.store import KeyStore
from core.metadata.store import Effect, Store
from core.records.record import NewRecord
from core.vocabulary.idempotency import KEY_IN_USE, KEY_REUSED, KeyedAnswer, KeyedRequest
from core.vocabulary.one_shot import Keep
from core.vocabulary.records import ProduceResult

logger = logging.getLogger(__name__)

# Topics whose limit of a batch is remembered.
_MAX_LIMITS = 10_000


class _Work(NamedTuple):
    """The write that a request asks for."""

    digest: bytes
    topic: str
    records: Sequence[NewRecord]
    acks: int
    render: Callable[[Sequence[ProduceResult]], bytes]


class _KeptAnswer:
    """The change that stores a key with its answer in a decision."""

    def __init__(self, store: KeyStore, request: KeyedRequest, answer: bytes) -> None:
        self._store = store
        self._answer = answer
        self.effects = store.answered(request.digest, request.fingerprint, answer)

    def apply(self) -> None:
        """Count the key."""
        self._store.count_answered(self._answer)


class IdempotencyKeys:
    """The idempotency keys of one broker, as `broker.idempotency`."""

    def __init__(
        self,
        broker: Logs,
        store: Store,
        producer_ids: ProducerIds,
        writer: Writer,
    ) -> None:
        self._broker = broker
        self._store = KeyStore(broker.config, broker.clock, store)
        self._pool = ProducerPool(producer_ids, broker.config.idempotency_max_producers)
        self._writer = writer
        # The most bytes of a batch, for topics that have refused larger ones.
        self._limits: dict[UUID, int] = {}
        # Digest → fingerprint of the requests that are under way.
        self._running: dict[bytes, bytes] = {}
        # Answers that are stored once their records are on disk.
        self._waiting: set[asyncio.Future[list[None]]] = set()

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Look in the logs for the batches of writes that the last run did not finish, and store what is found."""
        found = []
        for key in await self._store.unanswered():
            await self._writer.find_after_crash(key.plan, key.places)
            if any(key.places) or key.places_known:
                found.append((key.digest, key.places))
        if found:
            await self._store.put_places(found)
            logger.info("%d unfinished writes with an idempotency key were found in the logs", len(found))

    async def expire(self) -> None:
        """Delete keys that are too old, and the oldest answered ones if there are too many."""
        await self._store.expire()

    # --- answers of decisions ------------------------------------------------------------------------------

    def keep(self, request: KeyedRequest, answer: bytes) -> list[Effect]:
        """Return what stores the answer of a request with the decision that it asked for."""
        self._store.count_answered(answer)
        return self._store.answered(request.digest, request.fingerprint, answer)

    async def hold(self, request: KeyedRequest) -> None:
        """Keep the key of a request that is a part of an open transaction until `release`. No other may use it.

        Raises INVALID_REQUEST (reason "key-reused") if another request has it, CONCURRENT_TRANSACTIONS if this one
        has it already.
        """
        self._check_free(request)
        self._running[request.digest] = request.fingerprint
        try:
            row = await self._store.find(request.digest)
            if row is not None:
                _check_fingerprint(row.fingerprint, request)
        except BaseException:
            self.release(request)
            raise

    def release(self, request: KeyedRequest) -> None:
        """Let others use a key that was held."""
        self._running.pop(request.digest, None)

    def _check_free(self, request: KeyedRequest) -> None:
        running = self._running.get(request.digest)
        if running is not None:
            _check_fingerprint(running, request)
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                "A request with this idempotency key is still under way.",
                reason=KEY_IN_USE,
            )

    async def kept(self, request: KeyedRequest) -> bytes | None:
        """Return the stored answer of a request; None if there is none, or if it has expired.

        Raises INVALID_REQUEST (reason "key-reused") if the key belongs to another request.
        """
        row = await self._store.find(request.digest)
        if row is None:
            return None
        _check_fingerprint(row.fingerprint, request)
        return row.answer

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
        """Append records once for all requests with this key. `render` makes the answer that is stored.

        Raises CONCURRENT_TRANSACTIONS while another request with the key is under way, INVALID_REQUEST (details:
        reason "key-reused") if the key belongs to another request, THROTTLING_QUOTA_EXCEEDED, KAFKA_STORAGE_ERROR if
        the key cannot be stored (nothing is appended then), and the errors of a write without a key.
        """
        with self._alone(request) as digest:
            return await self._produce(request, _Work(digest, topic, records, acks, render))

    async def decide(
        self, request: KeyedRequest, work: Callable[[Keep], Coroutine[Any, Any, bytes]]
    ) -> KeyedAnswer:
        """Have `work` decide something once for all requests with this key, and return its answer.

        There is no plan: the answer is stored in the decision itself, so that after a crash both are there or
        neither. `work` gets the function that makes the change of storing its answer. Raises as `produce`, and what
        `work` raises; the key is free then.
        """
        with self._alone(request) as digest:
            row = await self._store.find(digest)
            if row is not None and row.answer is not None:
                _check_fingerprint(row.fingerprint, request)
                return KeyedAnswer(row.answer, [], True)
            answer = await work(lambda answer: _KeptAnswer(self._store, request, answer))
            return KeyedAnswer(answer, [], False)

    @contextmanager
    def _alone(self, request: KeyedRequest) -> Iterator[bytes]:
        """Keep other requests with the same key away; the digest of the key is its value."""
        digest = request.digest
        self._check_free(request)
        self._running[digest] = request.fingerprint
        try:
            yield digest
        finally:
            del self._running[digest]

    async def _produce(self, request: KeyedRequest, work: _Work) -> KeyedAnswer:
        broker, digest, topic = self._broker, work.digest, work.topic
        if (stored := await self._answer_of_deleted_topic(request, work)) is not None:
            return stored
        info = await broker.topics.get_or_create(topic)
        drafted = draft(broker, topic, work.records, self._limits.get(info.topic_id))
        producers = await self._pool.borrow(drafted.producers_needed)
        try:
            plan = await self._writer.prepare(topic, make_plan(info.topic_id, drafted, producers))
            row = await self._store.bind(digest, request.fingerprint, plan)
        except BaseException:
            # A commit that failed may have reached the disk all the same.
            self._pool.retire(producers)
            raise
        if row is None:
            answer = await self._carry_out(work, plan, [None] * len(plan.parts), producers)
            if not _is_too_large(answer, plan):
                return answer
            # A cluster may have a lower limit than it tells. The key is free again, and smaller batches may fit.
            if len(self._limits) >= _MAX_LIMITS:
                self._limits.clear()
            self._limits[info.topic_id] = drafted.largest // 2
            return await self._produce(request, work)
        self._pool.give_back(producers)
        _check_fingerprint(row.fingerprint, request)
        if row.answer is not None:
            return KeyedAnswer(row.answer, [], True)
        plan = decode_plan(row.plan)
        if plan.topic_id == info.topic_id.bytes:
            places = decode_places(row.places, plan)
            await self._writer.find(topic, plan, places)
            return await self._carry_out(work, plan, places, [])
        # The plan was for a topic that is deleted; another topic has its name now.
        await self._store.remove(digest)
        return await self._produce(request, work)

    async def _answer_of_deleted_topic(self, request: KeyedRequest, work: _Work) -> KeyedAnswer | None:
        """Return the stored answer if the topic is missing, so that a replay does not create the topic again."""
        await self._broker.look((work.topic,))
        try:
            self._broker.topics.get(work.topic)
        except BrokerError:
            row = await self._store.find(work.digest)
            if row is not None and row.answer is not None:
                _check_fingerprint(row.fingerprint, request)
                return KeyedAnswer(row.answer, [], True)
        return None

    # --- a plan --------------------------------------------------------------------------------------------

    async def _carry_out(
        self, work: _Work, plan: Plan, places: Places, lent: Sequence[LentProducer]
    ) -> KeyedAnswer:
        """Append the batches that have no place yet, and store the outcome. `lent`: the producers of a new plan."""
        try:
            run = await self._writer.append(work.topic, work.records, work.acks, plan, places)
        except BaseException:
            self._pool.retire(lent)
            raise
        taken = any(places)
        answer = work.render(run.results) if run.settled and taken else None
        if lent:
            _advance(lent, plan, places)
            for producer in lent:
                if producer.producer_id in run.spent:
                    producer.spend()
        if answer is not None and run.undurable:
            self._store_when_durable(work.digest, answer, lent, run.undurable)
        else:
            self._store_outcome(work.digest, answer, None if run.settled else places, lent)
        return KeyedAnswer(answer, run.results, taken and not run.appended)

    def _store_when_durable(
        self,
        digest: bytes,
        answer: bytes,
        lent: Sequence[LentProducer],
        waits: Sequence[asyncio.Future[None]],
    ) -> None:
        """Store an answer once all records that it names are on disk and in sync; on failure the key stays bound."""

        def durable(done: asyncio.Future[list[None]]) -> None:
            self._waiting.discard(done)
            if done.cancelled() or done.exception() is not None:
                self._pool.retire(lent)
            else:
                self._store_outcome(digest, answer, None, lent)

        waiting = asyncio.gather(*waits)
        self._waiting.add(waiting)
        waiting.add_done_callback(durable)

    def _store_outcome(
        self, digest: bytes, answer: bytes | None, places: Places | None, lent: Sequence[LentProducer]
    ) -> None:
        """Store the answer; or the `places` of a write that ended half-way; or delete the key if there is neither.

        The producers are lent again once no retry can need them.
        """

        def stored(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None or places is not None:
                self._pool.retire(lent)
            else:
                self._pool.give_back(lent)

        try:
            if places is not None:
                storing = self._store.put_places([(digest, places)])
            elif answer is not None:
                storing = self._store.put_answer(digest, answer)
            else:
                storing = self._store.remove(digest)
            storing.add_done_callback(stored)
        except BrokerError as error:
            logger.warning("an idempotency key stays open: %s", error.message)
            self._pool.retire(lent)


def _is_too_large(answer: KeyedAnswer, plan: Plan) -> bool:
    """Return whether all batches were refused for their size, and one of them has more than one record."""
    if answer.answer is not None or all(part.count == 1 for part in plan.parts):
        return False
    codes = {None if one.error is None else one.error.code for one in answer.results}
    return codes == {ErrorCode.MESSAGE_TOO_LARGE}


def _advance(lent: Sequence[LentProducer], plan: Plan, places: Places) -> None:
    """Move the next sequence numbers of the producers past what was appended."""
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
