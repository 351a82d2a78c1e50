"""Receives: records are read, leased and stored, then answered. Receivers that find nothing wait in a line.

A task for each queue with waiting receivers watches its partitions and serves the line from the front: as many
receivers as there is work, in the turn of the event loop after the append that brought it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.metadata.store import Effect
from core.queues.attempts import Attempts
from core.queues.reading import Found
from core.queues.registry import Registry
from core.queues.share import Attempt, Held, Lease, Queue, Receiver, Share, Taken
from core.queues.share_changes import Change
from core.types import LogOffsets
from core.vocabulary.queues import (
    MAX_RECEIVE,
    MAX_WAIT_MS,
    AcquiredRange,
    Leased,
    Order,
    Receipt,
    Receive,
    Received,
    Verb,
)

log = logging.getLogger(__name__)

# Receivers that may wait at one queue.
MAX_WAITERS = 10_000
# A queue with waiting receivers is looked at this often at least, in seconds.
_LOOK_AGAIN = 30.0
# The wait of a line when the broker has too many waits.
_CROWDED = 0.05
# If the store took longer than this part of the lock, the lock begins again.
_SLOW_PART = 10
_NOTHING = Received(None, 0)


class Leasing:
    """Receives for queues."""

    def __init__(self, broker: Logs, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry
        self._reading = registry.reading
        self._keyed = registry.keyed
        self._draining = False

    def drain(self) -> None:
        """Answer every receiver that waits, and none waits afterwards."""
        self._draining = True
        for queue in self._registry.queues.values():
            self.answer_all(queue)

    def answer_all(self, queue: Queue) -> None:
        """Answer every receiver of a queue with nothing."""
        while queue.waiters:
            receiver, _ = queue.waiters.popitem(last=False)
            if not receiver.given.done():
                receiver.given.set_result(None)
        if queue.pump is not None:
            queue.pump.cancel()
            queue.pump = None

    # --- receive -------------------------------------------------------------------------------------------

    async def receive(self, queue: Queue, request: Receive) -> Received:
        """See `Queues.receive`."""
        if request.attempt is None:
            return await self._receive(queue, request)
        attempt = await Attempts.begin(queue, request.attempt, request)
        if attempt.done.is_set():
            assert attempt.lease is not None
            again = self._again(queue, attempt.lease)
            if again is not None:
                return again
            attempt = queue.attempts[request.attempt] = Attempt(Attempts.asked(request), asyncio.Event())
        lease: Lease | None = None
        try:
            received = await self._receive(queue, request)
            if received.lease is not None:
                lease = queue.leases.get(received.lease)
            return received
        finally:
            Attempts.end(queue, request.attempt, attempt, lease)

    async def _receive(self, queue: Queue, request: Receive) -> Received:
        until = self._broker.clock.monotonic() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        taken: Taken | None = None
        if not queue.waiters:
            taken = self.take(queue, request)
        if taken is None and until > self._broker.clock.monotonic() and not self._draining:
            taken = await self._wait(queue, request, until)
            if queue.deleted:
                self._registry.find(queue.name)
        if taken is None:
            return Received(None, 0, (), self.blocked(queue))
        return await self._given(queue, request, taken)

    async def _given(self, queue: Queue, request: Receive, taken: Taken) -> Received:
        """Return the records once their lease is durable; give them back if the caller is cancelled before."""
        try:
            await self._durable(queue, request, taken)
        except asyncio.CancelledError:
            self._registry.start_task(self.take_back(queue, taken.lease.number))
            raise
        shown = self._registry.clock.shown(taken.lease.deadline_ms)
        return Received(taken.lease.number, shown, taken.records)

    async def _durable(self, queue: Queue, request: Receive, taken: Taken) -> None:
        if taken.write is None or request.in_process:
            return
        lock = request.lock_ms or queue.settings.lock_ms
        await asyncio.shield(taken.write)
        now = self._registry.clock.now_ms()
        if now - (taken.lease.deadline_ms - lock) > lock // _SLOW_PART:
            # The lock runs from the commit on.
            changes = [
                (
                    held.share,
                    held.share.machine.extend(now, taken.lease.number, held.first, held.last, lock)[1],
                )
                for held in taken.lease.held
            ]
            taken.lease.deadline_ms = now + lock
            with contextlib.suppress(BrokerError):
                written = self._registry.writes.submit(queue, changes)
                if written is not None:
                    await asyncio.shield(written)

    def _again(self, queue: Queue, lease: Lease) -> Received | None:
        """Return what a lease was given, if it still holds all of it."""
        if not Attempts.untouched(lease, self._registry.clock.now_ms()):
            return None
        records: list[Leased] = []
        for share, nonce, first, last in lease.held:
            count = share.machine.cell(first).deliveries
            ranges = [AcquiredRange(first, last, count)]
            found = self._reading.read(share, ranges, 1 << 31, committed=queue.settings.read_committed)
            for record in found.records:
                count = share.machine.cell(record.offset).deliveries
                receipt = Receipt(nonce, lease.number, share.topic_id, share.tp.partition, record.offset)
                records.append(Leased(share.tp, record, count, receipt))
        return Received(lease.number, self._registry.clock.shown(lease.deadline_ms), records)

    async def take_back(self, queue: Queue, number: int) -> None:
        """See `Queues.take_back`."""
        lease = queue.leases.pop(number, None)
        if lease is None:
            return
        now = self._registry.clock.now_ms()
        changes = []
        for share, nonce, first, last in lease.held:
            if share.machine.nonce == nonce:
                _, change = share.machine.settle(
                    now, Verb.RELEASE, number, first, last, delay_ms=0, counted=False
                )
                changes.append((share, change))
        queue.totals["taken_back"] += 1
        written = self._registry.writes.submit(queue, changes)
        for share, _ in changes:
            self._registry.wake(queue, share)
        if written is not None:
            await asyncio.shield(written)

    # --- the line ------------------------------------------------------------------------------------------

    async def _wait(self, queue: Queue, request: Receive, until: float) -> Taken | None:
        if len(queue.waiters) >= MAX_WAITERS:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{MAX_WAITERS} receivers wait at the queue {queue.name!r} already; ask again later.",
                limit=MAX_WAITERS,
            )
        receiver = Receiver(request, asyncio.get_running_loop().create_future())
        queue.waiters[receiver] = None
        if queue.pump is None or queue.pump.done():
            queue.pump = asyncio.create_task(self._pump(queue))
        try:
            async with asyncio.timeout(max(until - self._broker.clock.monotonic(), 0)):
                return await receiver.given
        except TimeoutError:
            # It may have been served in the turn in which its time ended.
            return receiver.given.result() if _served(receiver) else None
        except asyncio.CancelledError:
            if _served(receiver):
                taken = receiver.given.result()
                assert taken is not None
                self._registry.start_task(self.take_back(queue, taken.lease.number))
            raise
        finally:
            queue.waiters.pop(receiver, None)

    async def _pump(self, queue: Queue) -> None:
        """Serve the receivers that wait at a queue until none is left."""
        while queue.waiters and not self._draining and not queue.deleted:
            self._serve(queue)
            if not queue.waiters:
                break
            keys: list[Hashable] = [queue.token, *(share.tp for share in queue.shares.values())]
            version = self._broker.changes.version
            try:
                await self._broker.purgatory.wait(keys, _LOOK_AGAIN, _always)
            except BrokerError:
                await asyncio.sleep(_CROWDED)
            if version != self._broker.changes.version:
                self._registry.refresh(queue)

    def _serve(self, queue: Queue) -> None:
        """Give what there is to the receivers at the front of the line."""
        while queue.waiters:
            receiver = next(iter(queue.waiters))
            if receiver.given.done():
                del queue.waiters[receiver]
                continue
            try:
                taken = self.take(queue, receiver.request, others=len(queue.waiters) > 1)
            except BrokerError as error:
                del queue.waiters[receiver]
                receiver.given.set_exception(error)
                return
            if taken is None:
                return
            del queue.waiters[receiver]
            receiver.given.set_result(taken)

    # --- taking --------------------------------------------------------------------------------------------

    def take(self, queue: Queue, request: Receive, *, others: bool = False) -> Taken | None:
        """Lease the next records for a request and begin to store that; None if there are none.

        `others`: others wait, so at most half of what is available is taken. Raises what the log and the store raise.
        """
        if queue.paused:
            return None
        shares = self._served(queue)
        left = min(request.max_records, MAX_RECEIVE)
        if others:
            left = min(left, max(1, sum(_available(queue, *one) for one in shares) // 2))
        now = self._registry.clock.now_ms()
        lock = request.lock_ms or queue.settings.lock_ms
        lease = Lease(0, now + lock, in_process=request.in_process)
        records: list[Leased] = []
        changes: list[tuple[Share, Change | None]] = []
        room = request.max_bytes
        failure: BrokerError | None = None
        for share, bounds in shares:
            if left <= 0 or room <= 0:
                break
            try:
                got, size = self._take(queue, share, bounds, lease, left, room, changes, first=not records)
            except BrokerError as error:
                failure = failure or error
                continue
            if got:
                records += got
                left -= len(got)
                room -= size
                queue.turn = queue.places[share.key] + 1
        if records:
            return self._begun(queue, request, lease, records, changes, now)
        if changes and (written := self._registry.writes.submit(queue, changes)) is not None:
            written.add_done_callback(_seen)
        if failure is not None:
            raise failure
        return None

    def _served(self, queue: Queue) -> list[tuple[Share, LogOffsets]]:
        """Return the partitions that this broker leads, in their turn, after what time has changed."""
        now = self._registry.clock.now_ms()
        found = []
        for share in queue.in_turn():
            bounds = self._reading.bounds(share.tp)
            if bounds is None:
                continue
            due = share.machine.next_due()
            if due is not None and due <= now:
                self._registry.expire(queue, share)
            found.append((share, bounds))
        return found

    def _begun(
        self,
        queue: Queue,
        request: Receive,
        lease: Lease,
        records: list[Leased],
        changes: list[tuple[Share, Change | None]],
        now: int,
    ) -> Taken:
        """Begin to store a lease."""
        more: list[Effect] = []
        if request.attempt is not None:
            more.append(Attempts.effect(queue, request.attempt, lease, request, now))
        number = 0 if request.in_process else lease.number
        write = self._registry.writes.submit(queue, changes, lease=number, more=more)
        if write is not None:
            write.add_done_callback(_seen)
        queue.remember(lease)
        queue.totals["delivered"] += len(records)
        for held in lease.held:
            self._registry.arm(queue, held.share.machine.next_due())
        return Taken(lease, records, write)

    def _take(
        self,
        queue: Queue,
        share: Share,
        bounds: LogOffsets,
        lease: Lease,
        left: int,
        room: int,
        changes: list[tuple[Share, Change | None]],
        *,
        first: bool,
    ) -> tuple[list[Leased], int]:
        """Lease records of one partition; return them with their size."""
        machine, now = share.machine, self._registry.clock.now_ms()
        end = bounds.end(committed=queue.settings.read_committed)
        if bounds.log_start_offset > machine.start:
            change = machine.trim(now, bounds.log_start_offset)
            if change is not None:
                queue.totals["lost_to_retention"] += change.lost
                changes.append((share, change))
        if machine.tracked_end >= end and not machine.available:
            return [], 0
        found = self._find(queue, share, end, left, room)
        for low, high in found.missing:
            changes.append((share, machine.missing(now, low, high)))
        self._give_up(queue, share, found.corrupt, now, end, changes)
        if not found.records or (not first and found.size > room):
            return [], 0
        lease.number = lease.number or queue.new_lease(volatile=lease.in_process)
        taken, change = machine.acquire(
            now, lease.number, lease.deadline_ms, end, len(found.records), within=found.ranges()
        )
        changes.append((share, change))
        return self._leased(share, found, taken, lease), found.size

    def _find(self, queue: Queue, share: Share, end: int, left: int, room: int) -> Found:
        committed = queue.settings.read_committed
        if queue.settings.order is Order.KEY:
            found = self._keyed.find(share, end, left, room, committed=committed)
            if found.more and not found.records:
                # There are many records to look through.
                self._wake_soon(queue, share)
            return found
        candidates = share.machine.candidates(end, left)
        found = self._reading.read(share, candidates, room, committed=committed)
        while not found.records and candidates and (found.missing or found.corrupt) and not found.more:
            # Nothing but holes: look further on.
            after = candidates[-1].last
            candidates = share.machine.candidates(end, left, after=after)
            further = self._reading.read(share, candidates, room, committed=committed)
            found.records, found.size, found.more = further.records, further.size, further.more
            found.missing += further.missing
            found.corrupt += further.corrupt
            if len(found.missing) + len(found.corrupt) > MAX_RECEIVE:
                found.more = True
                break
        if found.more and not found.records:
            self._wake_soon(queue, share)
        return found

    def _wake_soon(self, queue: Queue, share: Share) -> None:
        """Let those that wait look further, once they wait: other requests run in between."""
        asyncio.get_running_loop().call_soon(self._registry.wake, queue, share)

    def _give_up(
        self,
        queue: Queue,
        share: Share,
        corrupt: Sequence[tuple[int, int]],
        now: int,
        end: int,
        changes: list[tuple[Share, Change | None]],
    ) -> None:
        """Reject what cannot be read, so that the records after it are delivered."""
        machine = share.machine
        for low, high in corrupt:
            log.warning("queue %r: %s: the offsets %d to %d cannot be read", queue.name, share.tp, low, high)
            number = queue.new_lease(volatile=True)
            _, change = machine.acquire(now, number, now + 60_000, end, high - low + 1, within=[(low, high)])
            changes.append((share, change))
            _, change = machine.settle(
                now, Verb.REJECT, number, low, high, reason="the batch of the record cannot be read"
            )
            changes.append((share, change))
            queue.totals["corrupt"] += high - low + 1
        if corrupt:
            self._registry.changed(queue, share)

    def _leased(
        self, share: Share, found: Found, taken: Sequence[AcquiredRange], lease: Lease
    ) -> list[Leased]:
        machine, tp, topic_id = share.machine, share.tp, share.topic_id
        nonce, number, partition = machine.nonce, lease.number, tp.partition
        leased: list[Leased] = []
        for low, high, count in taken:
            lease.held.append(Held(share, nonce, low, high))
            leased += [
                Leased(tp, record, count, Receipt(nonce, number, topic_id, partition, record.offset))
                for record in found.between(low, high)
            ]
        return leased

    # --- looking -------------------------------------------------------------------------------------------

    def blocked(self, queue: Queue) -> str | None:
        """Return why nothing can be received although some records are not settled; None if all are."""
        if queue.paused:
            return "paused"
        served = 0
        reason = None
        for share in queue.shares.values():
            bounds = self._reading.bounds(share.tp)
            if bounds is None:
                continue
            served += 1
            if _available(queue, share, bounds):
                if share.machine.free == 0:
                    return "in-flight-limit"
                if queue.settings.order is Order.KEY:
                    reason = "key-order" if share.keys is not None and share.keys.waiting else reason
                elif not share.machine.candidates(bounds.end(committed=True), 1):
                    return "in-flight-limit"
        if queue.shares and not served:
            return "unserved"
        return reason

    def peek(self, queue: Queue, limit: int, max_bytes: int) -> list[Leased]:
        """See `Queues.peek`."""
        found: list[Leased] = []
        for share in queue.in_turn():
            bounds = self._reading.bounds(share.tp)
            if bounds is None or limit <= 0 or max_bytes <= 0:
                continue
            self._registry.expire(queue, share)
            end = bounds.end(committed=queue.settings.read_committed)
            machine = share.machine
            after = bounds.log_start_offset - 1
            candidates = machine.candidates(end, limit, after=after, limited=False)
            read = self._reading.read(share, candidates, max_bytes, committed=queue.settings.read_committed)
            if found and read.size > max_bytes:
                continue
            limit -= len(read.records)
            max_bytes -= read.size
            for record in read.records:
                count = machine.cell(record.offset).deliveries
                receipt = Receipt(machine.nonce, 0, share.topic_id, share.tp.partition, record.offset)
                found.append(Leased(share.tp, record, count, receipt))
        return found


def _available(queue: Queue, share: Share, bounds: LogOffsets) -> int:
    """Return how many records of a partition are not leased, delayed or settled."""
    end = bounds.end(committed=queue.settings.read_committed)
    return share.machine.available + max(0, end - max(share.machine.tracked_end, bounds.log_start_offset))


def _served(receiver: Receiver) -> bool:
    given = receiver.given
    return given.done() and not given.cancelled() and given.exception() is None and given.result() is not None


def _always() -> bool:
    return True


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
