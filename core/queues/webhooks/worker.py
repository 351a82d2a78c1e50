"""Delivers the records of a queue to one endpoint: lease, send, settle.

A worker leases only what it may send at once: what pace, rate and breaker leave, so that no delivery is counted while
an endpoint is down. It extends the locks of records whose requests run. A worker has one version of the settings; a
change makes another one, while the requests of this one end as they began.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.queues.webhooks.breaker import Breaker
from core.queues.webhooks.http_client import Answer, HttpClient, NoAnswerError
from core.queues.webhooks.pace import Pace, Rate
from core.queues.webhooks.requests import request_of, webhook_id
from core.queues.webhooks.schedule import NO_ANSWER, Meaning, meaning, pause_ms
from core.queues.webhooks.signatures import Secret
from core.vocabulary.queues import MAX_WAIT_MS, Leased, Queues, Receipt, Receive, Received, Settle, Verb
from core.vocabulary.webhooks import Attempt, Circuit, Verdict, WebhookSettings

log = logging.getLogger(__name__)

# The lock of records under way. It is extended three times as often.
LOCK_MS = 30_000
# Bytes of the records of one lease: at most `concurrency` records are held in memory.
_MAX_BYTES = 8 * 1024 * 1024
# Pauses after an error of the queue, or after an empty answer that came at once.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
# How often a settlement is tried again that the store refuses. After that the lock runs out.
_SETTLE_TRIES = 10


class Events(NamedTuple):
    """What a worker reports. `health` gets whether the endpoint works, at each request that tells."""

    attempt: Callable[[Attempt], None]
    health: Callable[[bool], None]
    # The endpoint asks for no more (410).
    refused: Callable[[], None]
    queue_missing: Callable[[], None]
    # Returns whether the queue is still the one that the webhook was made for, and not the next one of its name.
    is_current: Callable[[], bool] = lambda: True


class Worker:
    """Sends the records of a queue with one version of a webhook's settings."""

    def __init__(
        self,
        queue: str,
        name: str,
        settings: WebhookSettings,
        secrets: Callable[[], Sequence[Secret]],
        client: HttpClient,
        queues: Queues,
        clock: Clock,
        slots: asyncio.Semaphore,
        events: Events,
    ) -> None:
        self.settings = settings
        self.breaker = Breaker()
        self.pace = Pace(settings.concurrency)
        self._queue, self._name = queue, name
        self._secrets = secrets
        self._client = client
        self._queues = queues
        self._clock = clock
        self._slots = slots
        self._events = events
        self._rate = Rate(settings.rate_per_second, clock.monotonic())
        self._hold_until = 0.0
        self._running: dict[asyncio.Task[None], Receipt] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._receiving: asyncio.Future[Received] | None = None
        self._interrupted = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def in_flight(self) -> int:
        """Return how many requests are under way."""
        return len(self._running)

    def start(self) -> None:
        """Begin to lease."""
        self._tasks = [asyncio.create_task(self._lease_and_send()), asyncio.create_task(self._extend_locks())]

    def stop(self) -> None:
        """Lease nothing any more. Requests under way continue; `drain` waits for them."""
        self._stopping = True
        self._changed.set()
        if self._tasks:
            self._tasks[0].cancel()

    async def drain(self, seconds: float) -> None:
        """Wait for the requests under way; give the records of the others back without a delivery."""
        self.stop()
        await asyncio.gather(*self._tasks[:1], return_exceptions=True)
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=seconds)
        left = tuple(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._client.close()

    # --- leases ------------------------------------------------------------------------------------------------

    async def _lease_and_send(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping:
            capacity = self._capacity()
            if capacity <= 0:
                await self._wait()
                continue
            began = self._clock.monotonic()
            try:
                leased = await self._receive(capacity)
                pause = _FIRST_PAUSE
            except BrokerError as error:
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    self._events.queue_missing()
                    return
                log.warning("webhook %s of queue %s: no records: %s", self._name, self._queue, error.message)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)
                continue
            except Exception:
                # A webhook must not end by an error of one receive.
                log.exception("webhook %s of queue %s: receive failed", self._name, self._queue)
                await asyncio.sleep(_LAST_PAUSE)
                continue
            if not leased and self._clock.monotonic() - began < _FIRST_PAUSE:
                await asyncio.sleep(_FIRST_PAUSE)
            self._rate.took(len(leased))
            for one in leased:
                self._begin(one)

    def _capacity(self) -> int:
        """Return how many records may be leased now."""
        now = self._clock.monotonic()
        if now < self._hold_until:
            return 0
        capacity = self.pace.limit - len(self._running)
        for limit in (
            self.breaker.capacity(now),
            self._rate.capacity(now),
            0 if self._slots.locked() else None,
        ):
            if limit is not None:
                capacity = min(capacity, limit)
        return capacity

    async def _wait(self) -> None:
        """Wait until there may be capacity: a request ends, or a pause is over."""
        now = self._clock.monotonic()
        waits = [self.breaker.wait(now), self._hold_until - now, self._rate.wait(now)]
        # The slots of the process have no event of their own: they are looked at once a second.
        longest = max([0.001, *(wait for wait in waits if wait > 0)]) if any(w > 0 for w in waits) else 1.0
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._changed.wait()

    async def _receive(self, capacity: int) -> Sequence[Leased]:
        request = Receive(
            max_records=capacity, max_bytes=_MAX_BYTES, wait_ms=MAX_WAIT_MS, lock_ms=LOCK_MS, in_process=True
        )
        self._require_current()
        receiving = self._receiving = asyncio.ensure_future(self._queues.receive(self._queue, request))
        try:
            received = await asyncio.shield(receiving)
        except asyncio.CancelledError:
            if receiving.cancelled() and self._interrupted and not self._stopping:
                # The endpoint has begun to fail while this waited for records.
                return ()
            # A stop: what was leased in the same moment is given back.
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError, BrokerError):
                received = await receiving
                if received.lease is not None and received.records:
                    await self._queues.take_back(self._queue, received.lease)
            raise
        finally:
            self._receiving = None
            self._interrupted = False
        try:
            self._require_current()
        except BrokerError:
            if received.lease is not None and received.records:
                await self._queues.take_back(self._queue, received.lease)
            raise
        return received.records

    def _require_current(self) -> None:
        """Raise GROUP_ID_NOT_FOUND if the queue was deleted, also if there is another one of its name."""
        if not self._events.is_current():
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"The queue {self._queue} was deleted.")

    async def _extend_locks(self) -> None:
        while True:
            await asyncio.sleep(LOCK_MS / 3000)
            receipts = list(self._running.values())
            if receipts:
                items = [Settle(Verb.EXTEND, receipt, lock_ms=LOCK_MS) for receipt in receipts]
                with contextlib.suppress(BrokerError):
                    await self._queues.settle(self._queue, items)

    # --- one record --------------------------------------------------------------------------------------------

    def _begin(self, leased: Leased) -> None:
        self.breaker.sent()
        task = asyncio.create_task(self._deliver(leased, self.pace.began()))
        self._running[task] = leased.receipt
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Else a breaker that waits for its probe would wait without end.
            self.breaker.unsent()
            log.error("webhook %s of queue %s: a delivery failed", self._name, self._queue, exc_info=error)

    async def _deliver(self, leased: Leased, number: int) -> None:
        message_id = webhook_id(self._queue, leased.receipt)
        began, at_ms = self._clock.monotonic(), self._clock.wall_ms()
        answer: Answer | None = None
        error = ""
        found = Meaning(Verdict.RELEASED, healthy=False)
        try:
            async with self._slots:
                if self._stopping:
                    # The webhook was deleted or changed during the wait.
                    raise asyncio.CancelledError
                # The wait for a slot is no time of the endpoint.
                began, at_ms = self._clock.monotonic(), self._clock.wall_ms()
                answer, error = await send(
                    self._client, self.settings, self._secrets(), leased, message_id, at_ms
                )
            found = self._meaning(answer)
            self._learn(found, number)
        except asyncio.CancelledError:
            self.breaker.unsent()
            error = "given back before an answer"
        duration = self._clock.monotonic() - began
        self._events.attempt(
            Attempt(
                at_ms, message_id, leased.tp.topic, leased.tp.partition, leased.record.offset,
                leased.delivery_count, None if answer is None else answer.status, int(duration * 1000), error,
                found.verdict,
            )
        )  # fmt: skip
        if found.verdict is Verdict.SWITCHED_OFF:
            # Before the record is available again: it is not to be leased here once more.
            self._events.refused()
        await self._settle(self._settlement(leased, found, answer))

    def _meaning(self, answer: Answer | None) -> Meaning:
        if answer is None:
            return NO_ANSWER
        settings = self.settings
        return meaning(
            answer.status, answer.headers, self._clock.wall_ms(),
            reject_422=settings.reject_422, reject_4xx=settings.reject_4xx,
        )  # fmt: skip

    def _learn(self, found: Meaning, number: int) -> None:
        """Tell breaker and pace what a request has shown of the endpoint."""
        before = self.breaker.circuit
        now = self._clock.monotonic()
        if found.healthy:
            self.breaker.succeeded()
            self.pace.succeeded()
        else:
            self.breaker.failed(now)
            self.pace.failed(number)
        if found.hold_ms:
            self._hold_until = max(self._hold_until, now + found.hold_ms / 1000)
        if self._receiving is not None and (found.hold_ms or self.breaker.circuit is Circuit.OPEN):
            self._interrupted = True
            self._receiving.cancel()
        if before is Circuit.CLOSED and self.breaker.circuit is Circuit.OPEN:
            log.warning(
                "webhook %s of queue %s: %s fails; nothing is sent for %g s",
                self._name, self._queue, self._client.target.origin, self.breaker.wait(now),
            )  # fmt: skip
        elif before is not Circuit.CLOSED and self.breaker.circuit is Circuit.CLOSED:
            log.info(
                "webhook %s of queue %s: %s works again", self._name, self._queue, self._client.target.origin
            )
        self._events.health(found.healthy)

    def _settlement(self, leased: Leased, found: Meaning, answer: Answer | None) -> Settle:
        receipt, verdict = leased.receipt, found.verdict
        if verdict is Verdict.ACCEPTED:
            return Settle(Verb.ACCEPT, receipt)
        if verdict is Verdict.REJECTED:
            status = "" if answer is None else f" {answer.status}"
            return Settle(Verb.REJECT, receipt, reason=f"webhook {self._name}: status{status}")
        if verdict is Verdict.RETRIED:
            pause = pause_ms(
                self.settings.retries_ms, leased.delivery_count, found.retry_after_ms, self._clock.random()
            )
            return Settle(Verb.RELEASE, receipt, delay_ms=min(pause, self._longest_delay()))
        return Settle(Verb.RELEASE, receipt, delay_ms=0, counted=False)

    def _longest_delay(self) -> int:
        try:
            return self._queues.get(self._queue).settings.max_delay_ms
        except BrokerError:
            return 0

    async def _settle(self, item: Settle) -> None:
        """Settle one record, also if the store fails for a while, or if the worker is told to end."""
        settling = asyncio.ensure_future(self._try_to_settle(item))
        while not settling.done():
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:
                if settling.cancelled():
                    raise

    async def _try_to_settle(self, item: Settle) -> None:
        for attempt in range(_SETTLE_TRIES):
            try:
                await self._queues.settle(self._queue, [item])
                return
            except BrokerError as error:
                if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return
                log.warning(
                    "webhook %s of queue %s: a record was not settled: %s",
                    self._name,
                    self._queue,
                    error.message,
                )
            if self._stopping:
                return
            await asyncio.sleep(min(_LAST_PAUSE, 0.2 * 2**attempt))


async def send(
    client: HttpClient,
    settings: WebhookSettings,
    secrets: Sequence[Secret],
    leased: Leased,
    message_id: str,
    now_ms: int,
) -> tuple[Answer | None, str]:
    """Send one record; return the answer, or None and the reason why there is none."""
    request = request_of(leased, message_id, settings.format, settings.headers or (), secrets, now_ms)
    try:
        return await client.post(request.headers, request.body, settings.timeout_ms / 1000), ""
    except NoAnswerError as error:
        return None, str(error)
