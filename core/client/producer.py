"""An idempotent producer for many callers: their records share batches, their order is kept, none is stored twice.

While a request for a partition is under way, the records that come for it wait for up to `linger_ms` and share the
next batch; up to `max_in_flight` requests of a broker are under way at once. Batches for all partitions that a broker
leads share a request.

Each batch has producer id, epoch and sequence number (KIP-98). If an answer is lost or says that the leader has
moved, the same batch is sent again, after all under way have ended, in order, one at a time: the broker recognizes
what it has already. A batch that was refused leaves a gap in the numbers. If others were under way, the partition
then gets a producer id that it never had, and numbers from 0; that is safe once it is known that none of them was
appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from core.client.cluster import ClusterClient
from core.client.destinations import Destination, Reply, Sent
from core.client.failures import LinkLost, error_code, refused
from core.client.leaders import MOVED
from core.client.link import Link
from core.client.produce_batches import (
    BATCH_BYTES,
    NO_IDENTITY,
    Batch,
    Call,
    Entry,
    Identity,
    Part,
    PartitionQueue,
    Waiting,
    size_of,
)
from core.client.produce_building import build, innocent_and_blamed, named_records
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from core.protocol.produce_body import produce_body
from core.records.batch import set_producer
from core.records.header import INT32_MAX, NO_PRODUCER_ID, read_header
from core.records.record import NewRecord
from core.types import AppendResult, TopicPartition

__all__ = ["Part", "Producer"]

logger = logging.getLogger(__name__)

_PRODUCE = 0
# What an answer may take beyond the time that the leader waits for the replicas.
_ANSWER_MS = 5_000
_SWEEP_SECONDS = 0.5
# Brokers forget a producer id after a day without a batch, by default (producer.id.expiration.ms).
_PROVEN_SECONDS = 600.0
# max.message.bytes of a topic may be raised.
_LIMIT_SECONDS = 600.0
# A broker with too few replicas is asked so often; then the caller learns it.
_FEW_ATTEMPTS = 4
_FEW = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
_AGAIN = MOVED | _FEW | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT}
# The leader has appended the batch, or may have.
_MAYBE = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_DISPLACED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_RECORDS_AT_FAULT = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})
# The cluster does not let this client have a producer id: batches are sent without, one at a time.
_NO_IDENTITY = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})
# A refresh that says so is believed.
_LASTING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


class Producer:
    """Appends to partitions of a cluster. Everything runs on the event loop; `close` it in the end."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._destinations: dict[int, Destination] = {}
        self._new: list[PartitionQueue] = []
        self._active: dict[Destination, None] = {}
        self._homeless: dict[PartitionQueue, None] = {}
        self._identity: Identity | None = None
        # The cluster gives no producer ids.
        self._plain = False
        self._bytes = 0
        self._scheduled = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # By topic: half of a batch that was too large, and until when that is believed.
        self._limits: dict[str, tuple[int, float]] = {}
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of records whose callers wait."""
        return self._bytes

    # --- for callers ---------------------------------------------------------------------------------------

    def send(
        self,
        tp: TopicPartition,
        records: Sequence[NewRecord],
        *,
        now_ms: int,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[list[Part]]:
        """Append records to a partition, in one batch with those of other callers if they come at the same time.

        The parts are in the order of the records, mostly one for all; a batch that was too large is split. A record
        without a time gets `now_ms`. acks 0 is sent as 1. `timeout_ms` (None: the delivery timeout) bounds all
        attempts. The future never fails; a part may. Raises THROTTLING_QUOTA_EXCEEDED if the records of waiting
        callers fill `buffer_memory`, INVALID_RECORD for an empty list.
        """
        if not records:
            raise BrokerError(ErrorCode.INVALID_RECORD, "A batch needs at least one record.")
        size = size_of(records) + BATCH_BYTES
        queue = self._reserve(tp, size)
        future: asyncio.Future[list[Part]] = self._loop.create_future()
        entry = Entry(Call(future, len(records)), records, 0, now_ms, size)
        self._wait(queue, Waiting(entry, None, acks or 1, self._deadline(timeout_ms), size))
        return future

    def append(
        self,
        tp: TopicPartition,
        batch: bytearray,
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[AppendResult]:
        """Append one record batch as it is, in its turn after earlier calls for this partition.

        A batch without a producer id gets that of this producer, in place. One with an id keeps id, epoch and
        sequence: its caller answers for their order. The future fails with BrokerError; if that is LinkLost or
        REQUEST_TIMED_OUT, the batch may have been appended. Raises as `send`.
        """
        header = read_header(batch)
        size = len(batch)
        queue = self._reserve(tp, size)
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        deadline = self._deadline(timeout_ms)
        made = Batch(
            batch, header.last_offset_delta + 1, acks=acks or 1, deadline=deadline, size=size, future=future
        )
        if header.producer_id != NO_PRODUCER_ID:
            made.identity = None
        self._wait(queue, Waiting(None, made, acks or 1, deadline, size))
        return future

    async def close(self) -> None:
        """Refuse what waits, and stop."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()
        error = BrokerError(ErrorCode.NETWORK_EXCEPTION, "The producer is closed.")
        for queue in self._queues.values():
            self._refuse_queue(queue, error)

    def _deadline(self, timeout_ms: int | None) -> float:
        ms = self._settings.delivery_timeout_ms if timeout_ms is None else timeout_ms
        return self._loop.time() + ms / 1000

    def _reserve(self, tp: TopicPartition, size: int) -> PartitionQueue:
        if self._closed:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, "The producer is closed.")
        limit = self._settings.buffer_memory
        # One that is alone may be larger than all of it: the broker decides.
        if self._bytes and self._bytes + size > limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{self._bytes} bytes of records wait for the cluster already, and {limit} is the limit; "
                "try again later.",
                limit=limit,
            )
        self._bytes += size
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    def _wait(self, queue: PartitionQueue, waiting: Waiting) -> None:
        queue.waiting.append(waiting)
        queue.waiting_bytes += waiting.size
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        self._wake(queue)

    # --- which queue may send ------------------------------------------------------------------------------

    def _wake(self, queue: PartitionQueue) -> None:
        """List a queue if it may send now; begin to linger if it should wait for the request under way."""
        if queue.home or not (queue.waiting or queue.again):
            return
        if queue.again:
            if not queue.in_flight:
                self._list(queue)
            return
        if queue.in_flight:
            if queue.full(self._at_once(queue)):
                return
            if queue.waiting_bytes < self._settings.max_batch_bytes:
                if queue.linger is None:
                    queue.linger = self._loop.call_later(
                        self._settings.linger_ms / 1000, self._lingered, queue
                    )
                return
        self._list(queue)

    def _lingered(self, queue: PartitionQueue) -> None:
        queue.linger = None
        if not queue.home and queue.waiting and not queue.again and not queue.full(self._at_once(queue)):
            self._list(queue)

    def _at_once(self, queue: PartitionQueue) -> int:
        """Return how many batches of a queue may be under way."""
        if self._plain or self._loop.time() >= queue.proven_until:
            return 1
        return self._settings.max_in_flight

    def _list(self, queue: PartitionQueue) -> None:
        queue.home = True
        self._new.append(queue)
        self._soon()

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what may be sent. It runs after the callers of this turn of the loop have brought their records."""
        self._scheduled = False
        if self._closed:
            return
        if self._identity is None and not self._plain:
            if self._bytes:
                self._begin("identity", self._get_identity)
                return
            for queue in self._new:
                queue.home = False
            self._new.clear()
            return
        new, self._new = self._new, []
        for queue in new:
            try:
                leader = self._cluster.leader(queue.tp)
            except BrokerError:
                self._homeless[queue] = None
                self._begin("homes", self._find_homes)
                continue
            destination = self._destinations.get(leader)
            if destination is None:
                destination = self._destinations[leader] = Destination(leader)
            destination.ready[queue] = None
            self._active[destination] = None
        active, self._active = self._active, {}
        for destination in active:
            self._send_to(destination)

    def _begin(self, name: str, work: Any) -> None:
        """Start a task of a name, unless it runs already."""
        before = self._tasks.get(name)
        # One that is done may not have been removed yet.
        if (before is None or before.done()) and not self._closed:
            task = self._tasks[name] = self._loop.create_task(work())
            task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the producer failed", exc_info=error)
        if not self._closed:
            self._soon()

    async def _get_identity(self) -> None:
        attempt = 0
        while self._identity is None and not self._plain and self._bytes:
            try:
                answer: InitProducerIdResponse = await self._cluster.ask_any(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
                if not answer.error_code:
                    self._identity = Identity(answer.producer_id, answer.producer_epoch)
                    return
                error = refused(answer.error_code, "InitProducerId")
            except BrokerError as raised:
                error = raised
            if error.code in _NO_IDENTITY:
                logger.warning("records are appended without idempotence: %s", error.message)
                self._plain = True
                return
            logger.debug("no producer id yet: %s", error.message)
            await self._cluster.pause(attempt)
            attempt += 1

    async def _find_homes(self) -> None:
        """Look for the leaders of partitions until they have one, do not exist, or their records have expired."""
        attempt = 0
        while self._homeless:
            fresh = True
            try:
                await self._cluster.refresh({queue.tp.topic for queue in self._homeless})
            except LinkLost:
                fresh = False
            except BrokerError as error:
                for queue in list(self._homeless):
                    self._refuse_queue(queue, error)
            for queue in list(self._homeless):
                try:
                    self._cluster.leader(queue.tp)
                except BrokerError as error:
                    if fresh and error.code in _LASTING:
                        self._refuse_queue(queue, error)
                    if not queue.empty:
                        continue
                del self._homeless[queue]
                queue.home = False
                self._wake(queue)
            if self._homeless:
                await self._cluster.pause(attempt)
                attempt += 1

    # --- sending -------------------------------------------------------------------------------------------

    def _send_to(self, destination: Destination) -> None:
        ready = destination.ready
        while ready and destination.in_flight < self._settings.max_in_flight:
            now = self._loop.time()
            if now < destination.muted_until:
                return
            broker = self._cluster.brokers.get(destination.broker_id)
            link = None if broker is None else self._cluster.links.ready(broker.address)
            if link is None:
                self._open(destination)
                return
            size = 0
            # A request has one `acks` for all of its batches.
            by_acks: dict[int, Sent] = {}
            for queue in list(ready):
                del ready[queue]
                queue.home = False
                batch = self._next(queue)
                if batch is None:
                    continue
                by_acks.setdefault(batch.acks, []).append((queue, batch))
                size += len(batch.data)
                if size >= self._settings.max_request_bytes:
                    break
            for acks, sent in by_acks.items():
                self._request(destination, link, acks, sent, now)

    def _open(self, destination: Destination) -> None:
        self._begin(f"open {destination.broker_id}", partial(self._connect, destination))

    async def _connect(self, destination: Destination) -> None:
        try:
            await self._cluster.link(destination.broker_id)
        except BrokerError as error:
            # Another broker may lead the partitions meanwhile.
            logger.debug("broker %d: %s", destination.broker_id, error.message)
            for queue in list(destination.ready):
                self._homeless[queue] = None
            destination.ready.clear()
            self._begin("homes", self._find_homes)
        self._active[destination] = None

    def _next(self, queue: PartitionQueue) -> Batch | None:
        """Return the next batch of a queue with its sequence numbers; None if it must wait."""
        if not queue.again:
            return self._from_waiting(queue)
        if queue.in_flight:
            return None
        if self._loop.time() < queue.retry_at:
            self._loop.call_at(queue.retry_at, self._wake, queue)
            return None
        if queue.again[0].displaced:
            queue.stale = True
        if queue.stale:
            for at, batch in enumerate(queue.again):
                if batch.maybe:
                    # First learn whether it lies in the log, by its old numbers.
                    return queue.again.pop(at)
            if not self._renew(queue):
                return None
        batch = queue.again[0]
        if batch.identity is not None and batch.sequence < 0 and not self._stamp(queue, batch):
            return None
        return queue.again.pop(0)

    def _renew(self, queue: PartitionQueue) -> bool:
        """Give a queue a producer id that it never had, and its batches new numbers; False if there is none yet."""
        if queue.identity is not None and queue.identity == self._identity:
            self._identity = None
        if self._identity is None and not self._plain:
            self._list(queue)
            return False
        queue.identity, queue.next_sequence, queue.stale = self._identity, 0, False
        queue.proven_until = 0.0
        for batch in queue.again:
            batch.displaced = False
            if batch.identity is not None:
                batch.sequence = -1
        return True

    def _stamp(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Write producer id and sequence into a batch; False if there is no id yet."""
        identity = self._own(queue)
        if identity is None:
            return False
        if identity is not NO_IDENTITY:
            batch.identity, batch.sequence = identity, queue.next_sequence
            set_producer(batch.data, identity.producer_id, identity.epoch, batch.sequence)
            queue.next_sequence = batch.next_sequence
        return True

    def _own(self, queue: PartitionQueue) -> Identity | None:
        """Return the identity that a queue uses; NO_IDENTITY without idempotence, None while there is none."""
        if queue.identity is None:
            if self._plain:
                return NO_IDENTITY
            if self._identity is None:
                self._list(queue)
                return None
            queue.identity = self._identity
        return queue.identity

    def _from_waiting(self, queue: PartitionQueue) -> Batch | None:
        """Make a batch of what waits: of the records of all callers that fit, or the one that came as a batch."""
        waiting = queue.waiting
        if queue.stale and (queue.in_flight or not self._renew(queue)):
            return None
        identity = self._own(queue)
        if identity is None:
            return None
        while waiting:
            first = waiting[0]
            if first.batch is not None:
                waiting.popleft()
                queue.waiting_bytes -= first.size
                if first.batch.unwanted:
                    self._bytes -= first.size
                    continue
                first.batch.order = self._turn(queue)
                if first.batch.identity is not None:
                    self._stamp(queue, first.batch)
                return first.batch
            if first.entry is not None and first.entry.call.future.cancelled():
                waiting.popleft()
                queue.waiting_bytes -= first.size
                self._bytes -= first.size
                continue
            batch = self._build(queue, self._gather(queue), first, identity)
            if batch is not None:
                return batch
        return None

    def _gather(self, queue: PartitionQueue) -> list[Entry]:
        """Take the entries for one batch from the front of what waits; the first one was not cancelled."""
        waiting = queue.waiting
        limit = self._settings.max_batch_bytes
        if (smaller := self._limits.get(queue.tp.topic)) is not None and self._loop.time() < smaller[1]:
            limit = min(limit, smaller[0])
        acks = size = 0
        entries: list[Entry] = []
        while waiting and (entry := waiting[0].entry) is not None:
            one = waiting[0]
            if entry.call.future.cancelled():
                self._bytes -= one.size
            elif entries and (one.acks != acks or entry.alone or entries[0].alone or size + one.size > limit):
                break
            else:
                entries.append(entry)
                acks = one.acks
                size += one.size
            waiting.popleft()
            queue.waiting_bytes -= one.size
        return entries

    def _build(
        self, queue: PartitionQueue, entries: list[Entry], first: Waiting, identity: Identity
    ) -> Batch | None:
        try:
            data, count = build(entries, identity, queue.next_sequence)
        except BrokerError as error:
            if len(entries) > 1:
                # One of them has a record that has no form on the wire.
                for entry in reversed(entries):
                    entry.alone = True
                    queue.waiting.appendleft(Waiting(entry, None, first.acks, first.deadline, entry.size))
                    queue.waiting_bytes += entry.size
            else:
                self._bytes -= entries[0].size
                entries[0].done(None, error)
            return None
        size = sum([entry.size for entry in entries])
        batch = Batch(data, count, acks=first.acks, deadline=first.deadline, size=size, entries=entries)
        batch.order = self._turn(queue)
        batch.identity = identity
        if identity is not NO_IDENTITY:
            batch.sequence = queue.next_sequence
            queue.next_sequence = (batch.sequence + count) & INT32_MAX
        return batch

    def _turn(self, queue: PartitionQueue) -> tuple[int, ...]:
        queue.order += 1
        return (queue.order,)

    def _request(self, destination: Destination, link: Link, acks: int, sent: Sent, now: float) -> None:
        topics: dict[str, list[tuple[int, bytearray]]] = {}
        deadline = now
        for queue, batch in sent:
            topics.setdefault(queue.tp.topic, []).append((queue.tp.partition, batch.data))
            deadline = max(deadline, batch.deadline)
            batch.attempts += 1
            queue.under_way.append(batch)
        timeout_ms = min(max(int((deadline - now) * 1000), 1), self._settings.request_timeout_ms)
        destination.in_flight += 1
        reply = Reply(self._answered, destination, sent)
        try:
            version = link.version(_PRODUCE)
            body = produce_body(version, acks, timeout_ms, topics)
            link.start_encoded(_PRODUCE, version, body, reply, timeout_ms + _ANSWER_MS)
        except BrokerError as error:
            # In the next turn: the caller still lists what may be sent.
            self._loop.call_soon(reply.set_exception, error)
        for queue, _ in sent:
            self._wake(queue)

    # --- answers -------------------------------------------------------------------------------------------

    def _answered(self, destination: Destination, sent: Sent, answer: ProduceResponse | BrokerError) -> None:
        destination.in_flight -= 1
        for queue, batch in sent:
            queue.under_way.remove(batch)
        if isinstance(answer, BrokerError):
            self._lost(sent, answer)
        else:
            if answer.throttle_time_ms > 0:
                self._mute(destination, answer.throttle_time_ms / 1000)
            found = {
                (topic.name, one.index): one
                for topic in answer.responses
                for one in topic.partition_responses
            }
            for queue, batch in sent:
                one = found.get(queue.tp)
                if one is None:
                    text = f"The answer to a Produce does not name {queue.tp}."
                    self._refuse(queue, batch, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
                elif one.error_code:
                    self._refused(queue, batch, one, answer)
                else:
                    self._succeeded(queue, batch, one)
        for queue, _ in sent:
            if queue.linger is not None:
                queue.linger.cancel()
                queue.linger = None
            self._wake(queue)
        if destination.ready:
            # They waited for a place among the requests under way.
            self._active[destination] = None
            self._soon()

    def _lost(self, sent: Sent, error: BrokerError) -> None:
        """Keep the batches of a request without an answer, to be sent again."""
        if not isinstance(error, LinkLost):
            for queue, batch in sent:
                self._refuse(queue, batch, error)
            return
        for queue, batch in sent:
            batch.maybe = batch.maybe or error.sent
            self._keep(queue, batch, error)
        self._cluster.refresh_soon({queue.tp.topic for queue, _ in sent})

    def _mute(self, destination: Destination, seconds: float) -> None:
        """Send this broker nothing for a time, as it asks (KIP-219)."""
        destination.muted_until = self._loop.time() + seconds

        def speak() -> None:
            self._active[destination] = None
            self._soon()

        self._loop.call_later(seconds, speak)

    def _succeeded(self, queue: PartitionQueue, batch: Batch, one: PartitionProduceResponse) -> None:
        base = one.base_offset
        last = base + batch.count - 1 if base >= 0 else -1
        self._bytes -= batch.size
        if batch.identity is not None and batch.identity == queue.identity:
            queue.proven_until = self._loop.time() + _PROVEN_SECONDS
        batch.done(
            AppendResult(base, last, one.log_append_time_ms, one.log_start_offset, bool(one.error_code))
        )
        if queue.again and queue.again[0].sequence == batch.next_sequence:
            # It came before its turn; that is past.
            queue.again[0].displaced = False

    def _refused(
        self, queue: PartitionQueue, batch: Batch, one: PartitionProduceResponse, answer: ProduceResponse
    ) -> None:
        code = error_code(one.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Appended before, and the broker does not remember its offset any more.
            self._succeeded(queue, batch, one)
            return
        error = refused(one.error_code, str(queue.tp), one.error_message)
        if code in _AGAIN and not (code in _FEW and batch.attempts >= _FEW_ATTEMPTS):
            batch.maybe = batch.maybe or code in _MAYBE
            self._keep(queue, batch, error)
            hint = one.current_leader
            if not self._cluster.learn_leader(
                queue.tp, hint.leader_id, hint.leader_epoch, answer.node_endpoints
            ):
                self._cluster.refresh_soon((queue.tp.topic,))
        elif code in _DISPLACED and batch.identity is not None and batch.deadline > self._loop.time():
            batch.maybe, batch.displaced = False, True
            self._keep(queue, batch, error)
        elif code in _TOO_LARGE and len(batch.entries) > 1:
            until = self._loop.time() + _LIMIT_SECONDS
            self._limits[queue.tp.topic] = max(len(batch.data) // 2, 1), until
            middle = len(batch.entries) // 2
            self._split(queue, batch, (batch.entries[:middle], batch.entries[middle:]))
        elif code in _TOO_LARGE and batch.entries and batch.count > 1:
            self._split(queue, batch, [(half,) for half in batch.entries[0].halves()])
        elif code in _RECORDS_AT_FAULT:
            self._records_refused(queue, batch, error, one)
        else:
            self._refuse(queue, batch, error)

    def _records_refused(
        self, queue: PartitionQueue, batch: Batch, error: BrokerError, one: PartitionProduceResponse
    ) -> None:
        """Refuse the callers whose records are at fault, and send those of the others again (KIP-467)."""
        faults = [(fault.batch_index, fault.batch_index_error_message or "") for fault in one.record_errors]
        if len(batch.entries) < 2:
            self._refuse(queue, batch, named_records(error, faults))
        elif faults:
            innocent, blamed = innocent_and_blamed(batch.entries, error, faults)
            for entry, why in blamed:
                self._bytes -= entry.size
                batch.size -= entry.size
                entry.done(None, why)
            self._split(queue, batch, [innocent] if innocent else [])
        else:
            self._split(queue, batch, [(entry,) for entry in batch.entries])

    def _keep(self, queue: PartitionQueue, batch: Batch, error: BrokerError) -> None:
        """Put a batch back to be sent again, unless its time is over."""
        now = self._loop.time()
        batch.error = error
        if now >= batch.deadline or self._closed:
            self._refuse(queue, batch, error)
            return
        settings = self._settings
        ms = min(settings.retry_backoff_ms * 2 ** min(batch.attempts - 1, 20), settings.retry_backoff_max_ms)
        if batch.displaced:
            ms = 0
        queue.put_back(batch)
        queue.retry_at = max(queue.retry_at, now + ms / 1000 * (0.8 + 0.4 * self._cluster.clock.random()))

    def _split(self, queue: PartitionQueue, batch: Batch, groups: Iterable[Sequence[Entry]]) -> None:
        """Replace a batch that was not appended by smaller ones, in its place."""
        self._take_back(queue, batch)
        for number, entries in enumerate(groups):
            try:
                data, count = build(entries, NO_IDENTITY, -1)
            except BrokerError as error:
                for entry in entries:
                    self._bytes -= entry.size
                    entry.done(None, error)
                continue
            size = sum([entry.size for entry in entries])
            part = Batch(
                data, count, acks=batch.acks, deadline=batch.deadline, size=size, entries=tuple(entries)
            )
            part.order = (*batch.order, number)
            queue.put_back(part)

    def _take_back(self, queue: PartitionQueue, batch: Batch) -> None:
        """Use the sequence numbers of a batch again that was not appended, or ask for a new producer id."""
        if batch.identity is None or batch.identity is NO_IDENTITY or batch.sequence < 0:
            return
        alone = not queue.in_flight and not any(one.sequence >= 0 for one in queue.again)
        if alone and queue.identity == batch.identity and queue.next_sequence == batch.next_sequence:
            queue.next_sequence = batch.sequence
        else:
            queue.stale = True

    def _refuse(self, queue: PartitionQueue, batch: Batch, error: BrokerError) -> None:
        if not batch.maybe and error.code not in _MAYBE:
            self._take_back(queue, batch)
        self._bytes -= batch.size
        batch.refuse(error)

    def _refuse_queue(self, queue: PartitionQueue, error: BrokerError) -> None:
        """Refuse all that is not under way."""
        if any(batch.sequence >= 0 for batch in queue.again):
            queue.stale = True
        for batch in queue.again:
            self._bytes -= batch.size
            batch.refuse(error)
        queue.again.clear()
        self._refuse_waiting(queue, error, float("inf"))

    def _refuse_waiting(self, queue: PartitionQueue, error: BrokerError, until: float) -> None:
        waiting = queue.waiting
        while waiting and waiting[0].deadline <= until:
            one = waiting.popleft()
            queue.waiting_bytes -= one.size
            self._bytes -= one.size
            if one.entry is not None:
                one.entry.done(None, error)
            elif one.batch is not None:
                one.batch.refuse(error)

    def _sweep(self) -> None:
        """Refuse what has waited for too long."""
        self._sweeper = None
        now = self._loop.time()
        for tp, queue in list(self._queues.items()):
            if queue.empty and not queue.home and not queue.under_way:
                if tp.topic not in self._cluster.topics:
                    del self._queues[tp]
                continue
            if queue.waiting and queue.waiting[0].deadline <= now:
                text = f"The records for {queue.tp} could not be sent in time: its leader did not answer."
                self._refuse_waiting(queue, BrokerError(ErrorCode.REQUEST_TIMED_OUT, text), now)
            for batch in [one for one in queue.again if one.deadline <= now]:
                queue.again.remove(batch)
                self._refuse(queue, batch, batch.error or _closed())
        if self._bytes and not self._closed:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)


def _closed() -> BrokerError:
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, "The producer is closed.")
