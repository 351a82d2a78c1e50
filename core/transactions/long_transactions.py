"""Transactions that take several requests of an HTTP client: begin, write, acknowledge, commit or abort.

Theory. The client names its transaction by an id that it cannot guess and another one cannot use: it belongs to the
principal that has begun it. Everything else is a transaction of the coordinator, which this module opens as a Kafka
producer would. A client that names no transactional id gets one of its own, which is forgotten with the end.

    open → committed    one decision: the records, the group offsets, the acknowledgements, the answers of idempotency
                        keys, and the outcome, which a retry of the commit finds for as long as an idempotency key
    open → aborted      by the client, after its time without a request, or after the longest time of all
    open → fenced       another client has begun with the same transactional id, or an administrator has aborted it

What is open is known in memory only. A start aborts the transactions without a transactional id of their client.
Those with one end by their time or by the next begin. Their ids are unknown then: no commit is guessed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.metadata.store import Effect, Store
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.transactions.clustered import ClusterTransactions, not_over_http
from core.transactions.ports import KeptAnswers
from core.transactions.transactions import Transactions
from core.types import AppendResult, TopicPartition
from core.vocabulary.groups import CommitRequest, TransactionalCommit
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from core.vocabulary.records import ProduceResult
from core.vocabulary.settlements import StagedAck
from core.vocabulary.transactions import Participant, ProducerIdAndEpoch, Settlement
from core.vocabulary.transactions import Transactions as Coordinator

logger = logging.getLogger(__name__)

# Begins the transactional ids of clients that name none.
ANONYMOUS = "__http-"
# Outcomes that are kept in memory, beside those in the store: a client that asks again does so soon.
_MAX_ENDED = 10_000


class Outcome(StrEnum):
    """How a long transaction has ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    FENCED = "fenced"


class LongTransactionInfo(NamedTuple):
    """An open long transaction. `expires_ms` is wall time; a request in it moves it, up to the longest time."""

    id: str
    transactional_id: str
    timeout_ms: int
    expires_ms: int


@dataclass(slots=True, eq=False)
class _Keyed:
    """A request with an idempotency key, and its answer once it has one."""

    request: KeyedRequest
    answer: bytes | None = None


@dataclass(slots=True, eq=False)
class _Open:
    """One that is open. Times are monotonic seconds; `busy` counts its requests under way."""

    id: str
    principal: str
    transactional_id: str
    anonymous: bool
    producer: ProducerIdAndEpoch
    timeout: float
    last: float
    expires: float = 0.0
    busy: int = 0
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    acks: list[StagedAck] = field(default_factory=list)
    # Requests with an idempotency key, by the digest of it.
    keyed: dict[bytes, _Keyed] = field(default_factory=dict)
    ending: asyncio.Task[None] | None = None


class _Ended(NamedTuple):
    principal: str
    outcome: Outcome


class _Committed:
    """The part of the decision that says so: the outcome in the store, then in memory."""

    def __init__(self, effects: Sequence[Effect], apply: Callable[[], None]) -> None:
        self.effects = effects
        self.apply = apply


class LongTransactions:
    """All long transactions of one broker."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        store: Store,
        transactions: Callable[[], Transactions | ClusterTransactions],
        idempotency: Callable[[], KeptAnswers],
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._transactions = transactions
        self._idempotency = idempotency
        self._open: dict[str, _Open] = {}
        # Principal → how many of its transactions are about to be open.
        self._beginning: Counter[str] = Counter()
        self._ended: OrderedDict[str, _Ended] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def of(self, acting: Facade, principal: str) -> CallersTransactions:
        """Return them as one caller may use them; `acting` is the broker as that caller may use it."""
        return CallersTransactions(self, acting, principal)

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Abort what the last run has left open of clients without a transactional id."""
        await self._transactions().abort_leftovers(ANONYMOUS, forget=True)

    async def step(self) -> None:
        """Abort those whose time is over, and notice those that the coordinator has ended."""
        now = self._clock.monotonic()
        for one in list(self._open.values()):
            if one.ending is not None:
                continue
            if not self.is_ongoing(one):
                await self._over(one, Outcome.TIMED_OUT if one.last <= now else Outcome.FENCED)
            elif not one.busy and one.expires <= now:
                logger.info("the transaction of %r is aborted: no request came in time", one.transactional_id)
                await self.abort(one, Outcome.TIMED_OUT)

    def coordinator(self) -> Coordinator:
        """Return the transactions of the broker, for ids that are its own."""
        return self._transactions()

    def is_ongoing(self, one: _Open) -> bool:
        """Return whether the coordinator has it open, or is ending it for its client."""
        try:
            found = self._transactions().get(one.transactional_id)
        except BrokerError:
            return False
        return found.producer == one.producer

    # --- begin ---------------------------------------------------------------------------------------------

    async def begin(
        self, acting: Facade, principal: str, transactional_id: str | None, timeout_ms: int
    ) -> LongTransactionInfo:
        """Open a transaction; see `CallersTransactions.begin`."""
        self._check_begin(principal, transactional_id, timeout_ms)
        self._beginning[principal] += 1
        try:
            return await self._begin(acting, principal, transactional_id, timeout_ms)
        finally:
            self._beginning[principal] -= 1
            if not self._beginning[principal]:
                del self._beginning[principal]

    async def _begin(
        self, acting: Facade, principal: str, transactional_id: str | None, timeout_ms: int
    ) -> LongTransactionInfo:
        secret = urlsafe_b64encode(self._clock.secret_bytes(16)).rstrip(b"=").decode()
        name = transactional_id or ANONYMOUS + secret
        # A client needs no right for an id that it has not chosen.
        transactions = self.coordinator() if transactional_id is None else acting.transactions
        cap = min(self._config.long_transaction_max_ms, self._config.transaction_max_timeout_ms)
        producer = await transactions.init(name, cap)
        for old in [one for one in self._open.values() if one.transactional_id == name]:
            await self._over(old, Outcome.FENCED)
        await transactions.join(name, producer)
        # Paths and header lines have it, in which not every name is allowed.
        token = name if transactional_id is None else f"tx-{secret}"
        now = self._clock.monotonic()
        anonymous = transactional_id is None
        made = _Open(token, principal, name, anonymous, producer, timeout_ms / 1000, now + cap / 1000)
        self._open[token] = made
        self._touch(made)
        return self.info(made)

    def _check_begin(self, principal: str, transactional_id: str | None, timeout_ms: int) -> None:
        config = self._config
        if isinstance(self._transactions(), ClusterTransactions):
            raise not_over_http()
        if transactional_id is not None and transactional_id.startswith(ANONYMOUS):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Transactional ids that begin with {ANONYMOUS!r} are the broker's own.",
            )
        if not 0 < timeout_ms <= config.long_transaction_max_ms:
            raise BrokerError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"timeout_ms must be from 1 to {config.long_transaction_max_ms}, not {timeout_ms}.",
            )
        own = sum(one.principal == principal for one in self._open.values()) + self._beginning[principal]
        in_total = len(self._open) + self._beginning.total()
        for count, limit in (
            (own, config.max_long_transactions_per_client),
            (in_total, config.max_long_transactions),
        ):
            if count >= limit:
                raise BrokerError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"{count} transactions are open already.",
                    limit=limit,
                )

    def info(self, one: _Open) -> LongTransactionInfo:
        """Return what its client is told of it."""
        left_ms = max(0, round(1000 * (one.expires - self._clock.monotonic())))
        expires_ms = self._clock.wall_ms() + left_ms
        return LongTransactionInfo(one.id, one.transactional_id, round(one.timeout * 1000), expires_ms)

    # --- a request in it -----------------------------------------------------------------------------------

    def find(self, principal: str, token: str) -> _Open:
        """Return an open one of a principal, which lives on. Raises what `CallersTransactions` says."""
        one = self._open.get(token)
        if one is None or one.principal != principal:
            raise self.refusal(principal, token)
        if one.ending is None and not self.is_ongoing(one):
            raise _ended(token, Outcome.FENCED)
        self._touch(one)
        return one

    def refusal(self, principal: str, token: str) -> BrokerError:
        """Return the refusal of a request in a transaction that is not open."""
        ended = self._ended.get(token)
        if ended is None or ended.principal != principal:
            return BrokerError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"There is no open transaction {token[:60]!r}: it has ended, the broker has started since, or it "
                "never began.",
            )
        return _ended(token, ended.outcome)

    def _touch(self, one: _Open) -> None:
        one.expires = min(self._clock.monotonic() + one.timeout, one.last)

    @asynccontextmanager
    async def used(self, one: _Open) -> AsyncIterator[None]:
        """Keep one from expiring while a request in it is under way."""
        one.busy += 1
        try:
            yield
        finally:
            one.busy -= 1
            self._touch(one)

    async def once(
        self,
        one: _Open,
        request: KeyedRequest,
        write: Callable[[], Coroutine[Any, Any, list[ProduceResult]]],
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        """Write once for all requests with a key. The key is free again if the transaction aborts."""
        known = one.keyed.get(request.digest)
        if known is not None and known.answer is not None and known.request == request:
            return KeyedAnswer(known.answer, [], True)
        await self._idempotency().hold(request)
        if self._open.get(one.id) is not one:
            self._idempotency().release(request)
            raise self.refusal(one.principal, one.id)
        one.keyed[request.digest] = _Keyed(request)
        # It continues without its client: a retry must find what was written.
        task = asyncio.get_running_loop().create_task(self._write_once(one, request, write, render))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _write_once(
        self,
        one: _Open,
        request: KeyedRequest,
        write: Callable[[], Coroutine[Any, Any, list[ProduceResult]]],
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        answer = None
        try:
            results = await write()
            if any(result.error is None for result in results):
                answer = render(results)
            return KeyedAnswer(answer, results, False)
        finally:
            known = one.keyed.get(request.digest)
            if known is not None and answer is not None:
                known.answer = answer
            elif known is not None:
                # Nothing was taken: the key is not used up.
                del one.keyed[request.digest]
                self._idempotency().release(request)

    async def kept(self, request: KeyedRequest) -> bytes | None:
        """Return the answer of a request with a key in a transaction that is committed."""
        return await self._idempotency().kept(request)

    # --- the end -------------------------------------------------------------------------------------------

    async def commit(self, acting: Facade, one: _Open) -> None:
        """Commit one. Requests that ask for it at once share the decision."""
        if one.ending is None:
            one.ending = asyncio.get_running_loop().create_task(self._commit(acting, one))
            one.ending.add_done_callback(lambda done: done.cancelled() or done.exception())
        ending = one.ending
        try:
            await asyncio.shield(ending)
        finally:
            # A decision that was refused may be asked for again.
            if ending.done() and one.ending is ending:
                one.ending = None

    async def _commit(self, acting: Facade, one: _Open) -> None:
        participant = Participant(one.transactional_id, one.producer, ephemeral=one.anonymous)

        def also() -> list[Settlement]:
            keep = self._idempotency().keep
            kept = [*keep(_outcome_key(one), Outcome.COMMITTED.encode())]
            for each in one.keyed.values():
                if each.answer is not None:
                    kept += keep(each.request, each.answer)
            return [*(ack.settle() for ack in one.acks), _Committed(kept, committed)]

        def committed() -> None:
            self._forget(one, Outcome.COMMITTED)

        transactions = self.coordinator() if one.anonymous else acting.transactions
        try:
            await transactions.commit_together([participant], also)
        except BrokerError:
            # The decision may have been made after the longest time that a request waits for it.
            if self._open.get(one.id) is one:
                raise

    async def abort(self, one: _Open, outcome: Outcome = Outcome.ABORTED) -> None:
        """Abort one."""
        if not one.anonymous:
            await self._transactions().end(one.transactional_id, one.producer, commit=False, raises=True)
        await self._over(one, outcome)

    async def _over(self, one: _Open, outcome: Outcome) -> None:
        """Note an end without a commit."""
        if self._open.get(one.id) is not one:
            return
        self._forget(one, outcome)
        if one.anonymous:
            await self._transactions().abort_leftovers(one.transactional_id, forget=True)
        await self._store.submit(self._idempotency().keep(_outcome_key(one), outcome.encode()))

    def _forget(self, one: _Open, outcome: Outcome) -> None:
        self._open.pop(one.id, None)
        for ack in one.acks:
            ack.release()
        for each in one.keyed.values():
            self._idempotency().release(each.request)
        one.acks, one.keyed = [], {}
        self._ended[one.id] = _Ended(one.principal, outcome)
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    async def outcome(self, principal: str, token: str) -> Outcome:
        """Return how a transaction of a principal has ended. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        ended = self._ended.get(token)
        if ended is not None and ended.principal == principal:
            return ended.outcome
        stored = await self._idempotency().kept(_key_of(principal, token))
        if stored is None:
            raise self.refusal(principal, token)
        return Outcome(stored.decode())

    def opened(self, principal: str, token: str) -> _Open | None:
        """Return one of a principal if it is open."""
        one = self._open.get(token)
        return one if one is not None and one.principal == principal else None


class CallersTransactions:
    """Long transactions of one caller.

    A call that names a transaction raises TRANSACTIONAL_ID_NOT_FOUND if the caller has begun none with that id,
    PRODUCER_FENCED if another client has its transactional id now, INVALID_TXN_STATE if it has ended in another way.
    """

    def __init__(self, all_of_them: LongTransactions, acting: Facade, principal: str) -> None:
        self._all = all_of_them
        self._acting = acting
        self._principal = principal

    async def begin(self, transactional_id: str | None, timeout_ms: int) -> LongTransactionInfo:
        """Open a transaction that is aborted after `timeout_ms` without a request.

        The holder of the same transactional id before is fenced, and its transaction aborted. Raises INVALID_REQUEST,
        INVALID_TRANSACTION_TIMEOUT, THROTTLING_QUOTA_EXCEEDED for one too many, and what `Transactions.init` raises.
        """
        return await self._all.begin(self._acting, self._principal, transactional_id, timeout_ms)

    def get(self, token: str) -> LongTransactionInfo:
        """Return an open transaction; this keeps it alive."""
        return self._all.info(self._all.find(self._principal, token))

    async def produce(
        self, token: str, topic: str, records: Sequence[NewRecord], *, acks: int
    ) -> list[ProduceResult]:
        """Append records to a transaction, as `Records.produce`."""
        one = self._find(token)
        writing = self._transactions(one).writing(one.transactional_id, begins=False)

        def append(tp: TopicPartition, chosen: Sequence[NewRecord], now_ms: int) -> AppendResult:
            sequence = one.sequences.get(tp, 0)
            batch = build_batch(
                chosen,
                now_ms=now_ms,
                producer_id=one.producer.producer_id,
                producer_epoch=one.producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            done = self._acting.partitions.append(tp, memoryview(batch), acks=acks, transaction=writing)
            one.sequences[tp] = sequence + len(chosen)
            return done

        async with self._all.used(one):
            return await self._acting.records.produce(topic, records, acks=acks, append=append)

    async def produce_once(
        self,
        token: str,
        request: KeyedRequest,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int,
        render: Callable[[Sequence[ProduceResult]], bytes],
    ) -> KeyedAnswer:
        """Append records to a transaction once for all requests with that key, as `Idempotency.produce`.

        The answer belongs to the transaction: it is kept with the commit, and forgotten by the abort. Raises
        INVALID_REQUEST (reason "key-reused") for a key that is used outside of it or in another one.
        """
        whole = hashlib.sha256(request.fingerprint + token.encode()).digest()
        request = request._replace(fingerprint=whole)
        if self._all.opened(self._principal, token) is None:
            answer = await self._all.kept(request)
            if answer is None:
                raise self._all.refusal(self._principal, token)
            return KeyedAnswer(answer, [], True)
        return await self._all.once(
            self._find(token), request, lambda: self.produce(token, topic, records, acks=acks), render
        )

    async def commit_offsets(self, token: str, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Stage offsets of a group, as TxnOffsetCommit; return an error for each."""
        one = self._find(token)
        staged = TransactionalCommit(one.transactional_id, *one.producer, request)
        async with self._all.used(one):
            return await self._transactions(one).stage(
                one.transactional_id,
                one.producer,
                lambda: self._acting.groups.stage_transactional(group_id, staged),
                begins=False,
            )

    def ack(self, token: str, group_id: str, consumer: str, batch: str) -> None:
        """Stage the acknowledgement of a batch. Until the end no other poll or acknowledgement of it is served.

        Raises what `Consumers.stage_ack` raises.
        """
        one = self._find(token)
        one.acks.append(self._acting.consumers.stage_ack(group_id, consumer, batch))

    async def commit(self, token: str) -> None:
        """Commit a transaction; a repetition changes nothing. Durable and visible when it returns.

        Raises INVALID_TXN_STATE if it was aborted before, and what `Transactions.commit_together` and
        `StagedAck.settle` raise: then it is open.
        """
        one = self._all.opened(self._principal, token)
        if one is not None:
            await self._all.commit(self._acting, self._all.find(self._principal, token))
            return
        outcome = await self._all.outcome(self._principal, token)
        if outcome is not Outcome.COMMITTED:
            raise _ended(token, outcome)

    async def abort(self, token: str) -> None:
        """Abort a transaction; a repetition changes nothing. Raises INVALID_TXN_STATE if it was committed."""
        one = self._all.opened(self._principal, token)
        if one is not None and one.ending is not None:
            await self._all.commit(self._acting, one)
        elif one is not None and self._all.is_ongoing(one):
            await self._all.abort(one)
            return
        elif one is not None:
            raise _ended(token, Outcome.FENCED)
        outcome = await self._all.outcome(self._principal, token)
        if outcome in (Outcome.COMMITTED, Outcome.FENCED):
            raise _ended(token, outcome)

    def _find(self, token: str) -> _Open:
        one = self._all.find(self._principal, token)
        if one.ending is not None:
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"The commit of transaction {token[:60]!r} is under way."
            )
        return one

    def _transactions(self, one: _Open) -> Coordinator:
        return self._all.coordinator() if one.anonymous else self._acting.transactions


def _ended(token: str, outcome: Outcome) -> BrokerError:
    code = ErrorCode.PRODUCER_FENCED if outcome is Outcome.FENCED else ErrorCode.INVALID_TXN_STATE
    said = {
        Outcome.COMMITTED: "is committed",
        Outcome.ABORTED: "is aborted",
        Outcome.TIMED_OUT: "was aborted, because its time was over",
        Outcome.FENCED: "is fenced: another client has its transactional id, or an administrator has aborted it",
    }
    return BrokerError(code, f"The transaction {token[:60]!r} {said[outcome]}.", outcome=str(outcome))


def _key_of(principal: str, token: str) -> KeyedRequest:
    # No request has a key of this path: the paths of the others are those of topics.
    return KeyedRequest(f"transactions/{token}", "outcome", bytes(32), principal)


def _outcome_key(one: _Open) -> KeyedRequest:
    return _key_of(one.principal, one.id)
