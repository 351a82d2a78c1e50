"""Transactions as one caller may use them: the rights that Kafka asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar

from core import facade
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.types import TopicPartition
from core.vocabulary.transactions import (
    NO_PRODUCER,
    OwnTransaction,
    Participant,
    ProducerIdAndEpoch,
    Settlement,
    TransactionalWrite,
    TransactionInfo,
)

T = TypeVar("T")

_ID = ResourceType.TRANSACTIONAL_ID


class GuardedTransactions:
    """`broker.transactions` of one caller."""

    def __init__(self, broker: facade.Facade, rights: Rights) -> None:
        self._broker = broker
        self._rights = rights

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """See `Transactions.init`: needs WRITE."""
        self._rights.require(Operation.WRITE, _ID, transactional_id)
        return await self._broker.transactions.init(transactional_id, timeout_ms, known)

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        """See `Transactions.is_newest`: without WRITE it notes nothing."""
        if not self._rights.may(Operation.WRITE, _ID, transactional_id):
            return True
        return self._broker.transactions.is_newest(transactional_id, connection, producer, of_group=of_group)

    async def join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """See `Transactions.join`: needs WRITE."""
        self._rights.require(Operation.WRITE, _ID, transactional_id)
        await self._broker.transactions.join(transactional_id, producer, partitions)

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        """See `Transactions.stage`: needs WRITE. `work` asks for its own rights."""
        self._rights.require(Operation.WRITE, _ID, transactional_id)
        return await self._broker.transactions.stage(transactional_id, producer, work, begins=begins)

    def writing(self, transactional_id: str, *, begins: bool) -> TransactionalWrite:
        """See `Transactions.writing`: needs WRITE."""
        self._rights.require(Operation.WRITE, _ID, transactional_id)
        return self._broker.transactions.writing(transactional_id, begins=begins)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool
    ) -> ProducerIdAndEpoch:
        """See `Transactions.end`: needs WRITE."""
        self._rights.require(Operation.WRITE, _ID, transactional_id)
        return await self._broker.transactions.end(transactional_id, producer, commit=commit, raises=raises)

    async def commit_together(
        self, participants: Sequence[Participant], also: Callable[[], Sequence[Settlement]]
    ) -> list[ProducerIdAndEpoch]:
        """See `Transactions.commit_together`: needs WRITE on each id; `also` is of callers that checked their own."""
        for one in participants:
            self._rights.require(Operation.WRITE, _ID, one.transactional_id)
        return await self._broker.transactions.commit_together(participants, also)

    async def abort_leftovers(
        self, prefix: str, keep: Collection[str] = (), *, forget: bool = False
    ) -> list[str]:
        """See `Transactions.abort_leftovers`: needs WRITE on each id with the prefix."""
        for one in self._broker.transactions.all():
            if one.transactional_id.startswith(prefix) and one.transactional_id not in keep:
                self._rights.require(Operation.WRITE, _ID, one.transactional_id)
        return await self._broker.transactions.abort_leftovers(prefix, keep, forget=forget)

    async def begin_own(self) -> OwnTransaction:
        """See `Transactions.begin_own`. What is written in it needs rights of its own."""
        return await self._broker.transactions.begin_own()

    async def abort(self, producer: ProducerIdAndEpoch, tp: TopicPartition) -> None:
        """See `Transactions.abort`: needs ALTER or CLUSTER_ACTION on the cluster."""
        if not self._rights.may(Operation.ALTER, ResourceType.CLUSTER):
            self._rights.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        await self._broker.transactions.abort(producer, tp)

    async def terminate(self, transactional_id: str) -> None:
        """See `Transactions.terminate`: needs what `abort` needs, or WRITE on the id. The audit log has it."""
        cluster = (Operation.ALTER, Operation.CLUSTER_ACTION)
        if not any(self._rights.may(one, ResourceType.CLUSTER) for one in cluster):
            self._rights.require(Operation.WRITE, _ID, transactional_id)
        ending = self._broker.transactions.terminate(transactional_id)
        await self._rights.noted("ABORT_TRANSACTION", f"TRANSACTIONAL_ID:{transactional_id}", ending)

    def get(self, transactional_id: str) -> TransactionInfo:
        """See `Transactions.get`: needs DESCRIBE; topics and groups that it may not describe are left out."""
        self._rights.require(Operation.DESCRIBE, _ID, transactional_id)
        return self._visible(self._broker.transactions.get(transactional_id))

    def all(self) -> Collection[TransactionInfo]:
        """See `Transactions.all`: those that the caller may describe."""
        return [
            self._visible(one)
            for one in self._broker.transactions.all()
            if self._rights.may(Operation.DESCRIBE, _ID, one.transactional_id)
        ]

    def _visible(self, one: TransactionInfo) -> TransactionInfo:
        seen = tuple(
            tp for tp in one.partitions if self._rights.may(Operation.DESCRIBE, ResourceType.TOPIC, tp.topic)
        )
        groups = tuple(
            one_group
            for one_group in one.groups
            if self._rights.may(Operation.DESCRIBE, ResourceType.GROUP, one_group)
        )
        return one._replace(partitions=seen, groups=groups)
