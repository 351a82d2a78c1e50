"""A transaction in one request: records for several topics, offsets of groups, batches of consumers, all or nothing.

The order:

    1. everything is checked, so that a refusal names all faults and leaves nothing in the logs
    2. in one turn of the loop the batches are appended, in a transaction of the broker itself; this gives the offsets
    3. the records reach the disk; then offsets, generations and batches are checked again, in the turn in which one
       commit of the store holds the decision, the offsets, and the answer under its key
    4. in one turn of the loop all of it becomes visible
    5. the answer

A refusal in 3 aborts the transaction. All of it continues when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import NewRecord
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from core.vocabulary.one_shot import Committed, Draft, Keep, OneShot
from core.vocabulary.records import UNDONE, ProduceResult
from core.vocabulary.settlements import Fault, RefusedError, StagedAck
from core.vocabulary.transactions import OwnTransaction, Settlement

Render = Callable[[Committed], bytes]


class OneShots:
    """Runs such requests. Each call takes the broker as its caller may use it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[KeyedAnswer]] = set()

    async def commit(
        self, broker: Facade, wanted: OneShot, render: Render, request: KeyedRequest | None = None
    ) -> KeyedAnswer:
        """Commit all of it, once for all requests with the key of `request`; return the answer that `render` makes.

        No partition of a group occurs twice in `wanted`, and no consumer. Raises `RefusedError`, by "records", topic,
        index; "offsets", index; "acks", index. Nothing is committed then. REQUEST_TIMED_OUT after
        `transaction_hold_ms`, when the outcome is not known yet.
        """
        if request is None:
            work = _unkeyed(broker, wanted, render)
        else:
            work = broker.idempotency.decide(request, lambda keep: _commit(broker, wanted, render, keep))
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        await asyncio.wait((task,), timeout=broker.config.transaction_hold_ms / 1000)
        if not task.done():
            raise BrokerError(
                ErrorCode.REQUEST_TIMED_OUT,
                "The transaction takes long, and may still be committed. Ask again with the same idempotency key.",
            )
        return task.result()

    def _done(self, task: asyncio.Task[KeyedAnswer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


async def _unkeyed(broker: Facade, wanted: OneShot, render: Render) -> KeyedAnswer:
    return KeyedAnswer(await _commit(broker, wanted, render, None), [], False)


async def _commit(broker: Facade, wanted: OneShot, render: Render, keep: Keep | None) -> bytes:
    own = await broker.transactions.begin_own()
    staged: list[StagedAck] = []
    try:
        drafts = await _checked(broker, wanted, own, staged)
        results = _append(broker, wanted, own, drafts)
        answer = render(Committed(results, [one.ranges for one in staged]))

        def also() -> Sequence[Settlement]:
            changes = _settled(broker, wanted, staged)
            return changes if keep is None else [*changes, keep(answer)]

        await own.commit(also)
        return answer
    except BrokerError as error:
        if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE and isinstance(error.__cause__, BrokerError):
            # The disk has refused the records.
            raise error.__cause__ from None
        raise
    finally:
        for one in staged:
            one.release()
        own.abandon()


async def _checked(
    broker: Facade, wanted: OneShot, own: OwnTransaction, staged: list[StagedAck]
) -> list[Draft]:
    """Check all of it, and hold the consumers; return the batches. Raises `RefusedError` with all faults."""
    faults: list[Fault] = []
    for index, (group_id, consumer, token) in enumerate(wanted.acks):
        try:
            staged.append(broker.consumers.stage_ack(group_id, consumer, token))
        except BrokerError as error:
            faults.append(Fault(("acks", index), error))
    faults += _overlaps(wanted, staged)
    drafts: list[Draft] = []
    try:
        drafts = await broker.records.draft(wanted.records, own.producer)
    except RefusedError as refusal:
        faults += refusal.under("records").faults
    most = broker.config.max_transaction_partitions
    if len({draft.tp for draft in drafts}) > most:
        limited = BrokerError(
            ErrorCode.POLICY_VIOLATION, f"A transaction may write to {most} partitions.", limit=most
        )
        faults.append(Fault(("records",), limited))
    try:
        _settled(broker, wanted, staged)
    except RefusedError as refusal:
        faults += refusal.faults
    if faults:
        raise RefusedError(faults)
    return drafts


def _settled(broker: Facade, wanted: OneShot, staged: Sequence[StagedAck]) -> list[Settlement]:
    """Return the changes of groups and consumers, if they may be made now."""
    changes: list[Settlement] = []
    faults: list[Fault] = []
    if wanted.offsets:
        try:
            changes.append(broker.groups.settle_offsets(wanted.offsets))
        except RefusedError as refusal:
            faults += refusal.under("offsets").faults
    for index, one in enumerate(staged):
        try:
            changes.append(one.settle())
        except BrokerError as error:
            faults.append(Fault(("acks", index), error))
    if faults:
        raise RefusedError(faults)
    return changes


def _overlaps(wanted: OneShot, staged: Sequence[StagedAck]) -> list[Fault]:
    """Return the faults of offsets that an acknowledgement of the same request commits too."""
    acknowledged = {
        (ack.group_id, one.topic, one.partition)
        for ack, batch in zip(wanted.acks, staged, strict=False)
        for one in batch.ranges
    }
    return [
        Fault(
            ("offsets", index),
            BrokerError(
                ErrorCode.INVALID_RECORD, "An acknowledgement of this request commits this partition already."
            ),
        )
        for index, one in enumerate(wanted.offsets)
        if (one.group_id, one.topic, one.partition) in acknowledged
    ]


def _append(
    broker: Facade, wanted: OneShot, own: OwnTransaction, drafts: Sequence[Draft]
) -> dict[str, list[ProduceResult]]:
    """Append all batches; return the place of each record, by topic."""
    results = {topic: [UNDONE] * len(records) for topic, records in wanted.records.items()}
    for tp, indexes, checked, now in drafts:
        done = broker.partitions.append(tp, memoryview(b""), acks=-1, converted=checked)
        own.wrote(tp, done.base_offset)
        records, places = wanted.records[tp.topic], results[tp.topic]
        for offset, index in enumerate(indexes, done.base_offset):
            places[index] = ProduceResult(
                tp.partition, offset, _time(records[index], done.log_append_time, now)
            )
    return results


def _time(record: NewRecord, append_time: int, now: int) -> int:
    if append_time >= 0:
        return append_time
    return now if record.timestamp is None else record.timestamp
