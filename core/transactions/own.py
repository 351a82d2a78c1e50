"""Transactions that the broker begins and ends itself, for requests that are a transaction as a whole.

They are transactions like all others: batches under a producer id, a decision, markers. But nothing is stored of them
except decisions. A start finds in the logs what was not decided, and aborts it, because no transactional id has the
producer. Producer ids are used again, each time under the next epoch: a log remembers a bounded number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.transactions.ports import PartitionLogs
from core.transactions.transaction import Decision, Part, Transaction
from core.types import TopicPartition
from core.vocabulary.transactions import MAX_EPOCH, ProducerIdAndEpoch, Settlement

Also = Callable[[], Sequence[Settlement]]
# Ends transactions together with other changes.
Finish = Callable[[Sequence[tuple[Transaction, Decision]], Also], Coroutine[Any, Any, Any]]


class OwnTransactions:
    """The transactions of one broker itself that are open, and the producers of those that were.

    At most `limit` are open at a time.
    """

    def __init__(
        self, logs: PartitionLogs, new_producer_id: Callable[[], Coroutine[Any, Any, int]], limit: int
    ) -> None:
        self._logs = logs
        self._new_producer_id = new_producer_id
        self._limit = limit
        self._idle: list[ProducerIdAndEpoch] = []
        self._beginning = 0
        # Producer ids of those that are open.
        self._open: set[int] = set()
        # What ends some of them now.
        self._ending: set[asyncio.Task[Any]] = set()

    async def begin(self, finish: Finish) -> OwnTransaction:
        """Begin one, which `finish` ends. Raises THROTTLING_QUOTA_EXCEEDED, KAFKA_STORAGE_ERROR."""
        if len(self._open) + self._beginning >= self._limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Too many transactions of one request are under way; {self._limit} is the limit.",
                limit=self._limit,
            )
        if self._idle:
            producer = self._idle.pop()
        else:
            self._beginning += 1
            try:
                producer = ProducerIdAndEpoch(await self._new_producer_id(), 0)
            finally:
                self._beginning -= 1
        self._open.add(producer.producer_id)
        return OwnTransaction(self, self._logs, producer, finish)

    def has(self, producer_id: int) -> bool:
        """Return whether a producer has one open."""
        return producer_id in self._open

    def require_free(self, producer_id: int) -> None:
        """Raise CONCURRENT_TRANSACTIONS if a producer has one open: its request ends it."""
        if producer_id in self._open:
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                "A request writes this transaction, and ends it itself; wait.",
            )

    def ends(self, task: asyncio.Task[Any]) -> None:
        """Note a task that ends one now."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def ended(self, before: ProducerIdAndEpoch, after: ProducerIdAndEpoch | None) -> None:
        """Forget one. Its producer may write the next as `after`; None: never again."""
        self._open.discard(before.producer_id)
        if after is not None and after.producer_epoch < MAX_EPOCH:
            self._idle.append(after)

    @property
    def ending(self) -> Sequence[asyncio.Task[Any]]:
        """The tasks that end some now."""
        return list(self._ending)


class OwnTransaction:
    """One of them; see `vocabulary.OwnTransaction`."""

    def __init__(
        self, owner: OwnTransactions, logs: PartitionLogs, producer: ProducerIdAndEpoch, finish: Finish
    ) -> None:
        self._owner = owner
        self._logs = logs
        self._finish = finish
        self._transaction = Transaction("", producer, 0)
        self._transaction.begin(now_ms=0, now=0.0)
        self.producer = producer

    def wrote(self, tp: TopicPartition, offset: int) -> None:
        """Take a batch that was appended in this turn of the loop."""
        if tp not in self._transaction.parts:
            self._transaction.parts[tp] = Part(self._logs.topic_id(tp), offset)

    async def commit(self, also: Also) -> None:
        """Commit it with other changes; see `Transactions.commit_together`. What is raised is not decided."""
        task = asyncio.current_task()
        assert task is not None
        self._owner.ends(task)
        await self._end(also)

    def abandon(self) -> None:
        """Abort it, unless it is committed. The abort continues while the caller does."""
        if not self._transaction.ongoing:
            return
        if self._transaction.parts:
            self._owner.ends(asyncio.get_running_loop().create_task(self._end(None)))
        else:
            self._transaction.complete(self._decision(commit=False))
            self._owner.ended(self.producer, self.producer)

    async def _end(self, also: Also | None) -> None:
        parts = list(self._transaction.parts.items())
        decision = self._decision(commit=also is not None)
        await self._finish([(self._transaction, decision)], also or tuple)
        # A marker that is missing is tried again; until then nothing else is written under this id.
        marked = not any(self._is_open(tp, part) for tp, part in parts)
        self._owner.ended(self.producer, decision.next if marked else None)

    def _decision(self, *, commit: bool) -> Decision:
        decision = self._transaction.end(self.producer, commit=commit, raises=True)
        assert decision is not None
        return decision

    def _is_open(self, tp: TopicPartition, part: Part) -> bool:
        try:
            return self._logs.is_open(tp, part.topic_id, self.producer.producer_id, -1)
        except BrokerError:
            return True
