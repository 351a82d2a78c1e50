"""Deliveries to an endpoint, in virtual time: days of outages take milliseconds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from core.errors import BrokerError, ErrorCode
from core.queues.webhooks.addresses import AllowList, Rules, parse_url
from core.queues.webhooks.http_client import HttpClient
from core.queues.webhooks.signatures import Secret
from core.queues.webhooks.worker import LOCK_MS, Events, Worker
from core.vocabulary.webhooks import Attempt, Circuit, Verdict, WebhookSettings
from tests.core.queues.webhooks.endpoint import Endpoint, Got, Names, silence, status
from tests.core.queues.webhooks.leases import PlainQueue
from tests.virtual_time import LoopClock, run

SECRETS = (Secret("whsec_" + "A" * 32),)
SLOW_RETRIES = (3_600_000,)


class World:
    """A queue, an endpoint and a worker between them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.clock = LoopClock()
        self.endpoint = endpoint
        self.queue = PlainQueue(self.clock)
        self.attempts: list[Attempt] = []
        self.health: list[bool] = []
        self.refused = self.missing = 0
        self.settings = WebhookSettings(endpoint.url, concurrency=8, retries_ms=(1_000,))
        self.slots = asyncio.Semaphore(1_000)

    def worker(self, **changes: object) -> Worker:
        """Start a worker."""

        def refused() -> None:
            self.refused += 1
            made.stop()

        def missing() -> None:
            self.missing += 1

        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        rules = Rules(AllowList(["127.0.0.0/8"]))
        to = HttpClient(parse_url(settings.url), rules, self.clock, Names(), _no_tls, list)
        made = Worker(
            "mail", "hook", settings, lambda: SECRETS, to, self.queue.as_queues(), self.clock, self.slots,
            Events(self.attempts.append, self.health.append, refused, missing),
        )  # fmt: skip
        made.start()
        return made

    async def until(self, true: Callable[[], bool], seconds: float = 3_600.0, step: float = 0.01) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(step)


def _no_tls() -> None:
    raise AssertionError


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with Endpoint() as endpoint:
        yield World(endpoint)


def test_records_are_delivered_and_accepted() -> None:
    async def work() -> None:
        async with world() as w:

            async def soon(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(0.1)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            w.endpoint.answer = soon
            w.queue.add(50)
            worker = w.worker()
            await w.until(lambda: w.queue.states() == ["accepted"] * 50)
            assert sorted(int(got.headers["sluice-offset"]) for got in w.endpoint.got) == list(range(50))
            assert 1 < w.endpoint.most <= 8
            # One that comes later is delivered at once.
            w.queue.add()
            await w.until(lambda: w.queue.states()[50] == "accepted", 1.0)
            await worker.drain(10)

    run(work())


def test_a_failure_is_retried_after_its_pause_with_the_same_id() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(500)
            w.queue.add()
            worker = w.worker(retries_ms=(10_000, 20_000))
            await w.until(lambda: len(w.endpoint.got) == 4)
            await worker.drain(10)
            assert len({got.headers["webhook-id"] for got in w.endpoint.got}) == 1
            assert [got.headers["sluice-attempt"] for got in w.endpoint.got] == ["1", "2", "3", "4"]
            times = [one.at_ms for one in w.attempts]
            pauses = [(b - a) / 1000 for a, b in itertools.pairwise(times)]
            assert all(
                least <= pause <= least * 1.1 + 1.2 for least, pause in zip((10, 20, 20), pauses, strict=True)
            )

    run(work())


def test_an_endpoint_that_asks_for_a_pause_gets_it() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(429, "retry-after: 120")
            w.queue.add(3)
            worker = w.worker()
            await w.until(lambda: len(w.endpoint.got) == 1)
            began = w.clock.monotonic()
            w.endpoint.answer = status(200)
            await w.until(lambda: w.queue.states() == ["accepted"] * 3)
            assert 120 <= w.clock.monotonic() - began < 140
            # The others were not touched meanwhile.
            assert w.queue.counts() == [2, 1, 1]
            await worker.drain(10)

    run(work())


def test_a_record_is_rejected_if_the_endpoint_says_so() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(400, "webhook-delivery: abort-message")
            w.queue.add()
            worker = w.worker()
            await w.until(lambda: w.queue.states() == ["rejected"])
            w.endpoint.answer = status(422)
            w.queue.add()
            await w.until(lambda: len(w.endpoint.got) == 2)
            await worker.drain(10)
            assert w.queue.states() == ["rejected", "delayed"]

    run(work())


def test_410_switches_off_and_gives_the_records_back_uncounted() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(410)
            w.queue.add(5)
            worker = w.worker()
            await w.until(lambda: w.refused == 1)
            await worker.drain(10)
            await asyncio.sleep(3_600)
            assert len(w.endpoint.got) == 1
            assert w.queue.counts() == [0] * 5
            assert [one.verdict for one in w.attempts] == [Verdict.SWITCHED_OFF]

    run(work())


def test_a_day_of_outage_costs_no_record_more_than_the_probes_and_half_open_is_one_request() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(503)
            w.queue.add(1_000)
            w.queue.look_seconds = 10.0
            worker = w.worker(retries_ms=SLOW_RETRIES)
            await w.until(lambda: worker.breaker.circuit is Circuit.OPEN)
            await asyncio.sleep(60)
            w.endpoint.most = 0
            sent = len(w.endpoint.got)
            await asyncio.sleep(86_400)
            # One probe in ten minutes, each alone; before it five probes or so with shorter pauses.
            assert 130 <= len(w.endpoint.got) - sent <= 150
            assert w.endpoint.most == 1
            assert sum(w.queue.counts()) == len(w.endpoint.got)
            w.endpoint.answer = status(200)
            w.endpoint.most = 0
            await w.until(lambda: w.queue.states() == ["accepted"] * 1_000, 86_400, 10.0)
            assert w.endpoint.most <= 8
            await worker.drain(10)

    run(work())


def test_a_wait_for_records_ends_when_the_breaker_opens() -> None:
    """Otherwise a record that comes during the outage would be leased, and its delivery counted."""

    async def work() -> None:
        async with world() as w:

            async def slow_failure(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(1)
                writer.write(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")

            worker = w.worker(retries_ms=SLOW_RETRIES)
            w.queue.add(30)
            await w.until(lambda: w.queue.states() == ["accepted"] * 30)
            w.endpoint.answer = slow_failure
            while worker.breaker.circuit is Circuit.CLOSED:
                w.queue.add()
                await asyncio.sleep(0.1)
            before = len(w.endpoint.got)
            w.queue.add(10)
            await asyncio.sleep(4)
            # Requests that were under way may have ended; none has begun.
            assert len(w.endpoint.got) == before
            await worker.drain(10)

    run(work())


def test_an_endpoint_that_is_slower_than_the_lock_gets_a_record_once() -> None:
    async def work() -> None:
        async with world() as w:

            async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(4 * LOCK_MS / 1000)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            w.endpoint.answer = slow
            w.queue.add()
            worker = w.worker(timeout_ms=300_000)
            await w.until(lambda: w.queue.states() == ["accepted"])
            assert len(w.endpoint.got) == 1
            assert w.queue.extended >= 10
            await worker.drain(10)

    run(work())


def test_a_stop_gives_records_under_way_back_without_counting_and_late_answers_change_nothing() -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = silence
            w.queue.add(3)
            worker = w.worker(timeout_ms=300_000)
            await w.until(lambda: len(w.endpoint.got) == 1)
            began = w.clock.monotonic()
            await worker.drain(10)
            assert 10 <= w.clock.monotonic() - began < 11
            await asyncio.sleep(1)
            assert w.queue.counts() == [0, 0, 0]
            assert [one.verdict for one in w.attempts] == [Verdict.RELEASED]

    run(work())


def test_a_stop_waits_for_requests_that_end_in_time() -> None:
    async def work() -> None:
        async with world() as w:

            async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(5)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            w.endpoint.answer = slow
            w.queue.add(2)
            worker = w.worker()
            await w.until(lambda: len(w.endpoint.got) == 1)
            await worker.drain(10)
            assert w.queue.states() == ["accepted", "available"]

    run(work())


def test_what_is_leased_in_the_moment_of_a_stop_is_given_back() -> None:
    async def work() -> None:
        async with world() as w:
            original = w.queue.receive

            async def receive(name: str, request: object) -> object:
                # The lease is made, and the cancellation comes before its answer.
                received = await original(name, request)  # type: ignore[arg-type]
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(5)
                return received

            w.queue.receive = receive  # type: ignore[method-assign, assignment]
            w.queue.add()
            worker = w.worker()
            await asyncio.sleep(1)
            assert w.queue.states() == ["leased"]
            await worker.drain(10)
            assert (w.queue.states(), w.queue.counts()) == (["available"], [0])
            assert w.endpoint.got == []

    run(work())


def test_a_settlement_that_the_store_refuses_is_tried_again() -> None:
    async def work() -> None:
        async with world() as w:
            w.queue.refusals = [BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")] * 4
            w.queue.add()
            worker = w.worker()
            await w.until(lambda: w.queue.states() == ["accepted"])
            assert len(w.endpoint.got) == 1
            await worker.drain(10)

    run(work())


def test_a_rate_is_kept() -> None:
    async def work() -> None:
        async with world() as w:
            w.queue.add(40)
            began = w.clock.monotonic()
            worker = w.worker(rate_per_second=2.0)
            await w.until(lambda: w.queue.states() == ["accepted"] * 40)
            assert 18 <= w.clock.monotonic() - began <= 25
            await worker.drain(10)

    run(work())


def test_all_webhooks_together_have_a_limit() -> None:
    async def work() -> None:
        async with world() as w:

            async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(1)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            w.slots = asyncio.Semaphore(3)
            w.endpoint.answer = slow
            w.queue.add(60)
            workers = [w.worker() for _ in range(4)]
            await w.until(lambda: w.queue.states() == ["accepted"] * 60)
            assert w.endpoint.most == 3
            await asyncio.gather(*(worker.drain(10) for worker in workers))

    run(work())


def test_what_waits_for_a_slot_is_not_sent_after_a_stop() -> None:
    async def work() -> None:
        async with world() as w:

            async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(5)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            w.endpoint.answer = slow
            worker = w.worker()
            worker.pace.limit = 4
            w.slots = worker._slots = asyncio.Semaphore(1)
            w.queue.add(4)
            await w.until(lambda: worker.in_flight == 4 and len(w.endpoint.got) == 1)
            await worker.drain(60)
            assert len(w.endpoint.got) == 1
            assert w.queue.states().count("accepted") == 1
            assert "leased" not in w.queue.states()
            assert sorted(w.queue.counts()) == [0, 0, 0, 1]

    run(work())


def test_a_probe_that_cannot_be_made_leaves_the_breaker_half_open(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with world() as w:
            worker = w.worker()
            worker.breaker.circuit = Circuit.HALF_OPEN

            def broken() -> tuple[Secret, ...]:
                raise RuntimeError("broken")

            worker._secrets = broken
            w.queue.add(2)
            await w.until(lambda: "a delivery failed" in caplog.text)
            worker._secrets = lambda: SECRETS
            await w.until(lambda: "accepted" in w.queue.states(), 120)
            assert worker.breaker.circuit is Circuit.CLOSED
            await worker.drain(10)

    run(work())


def test_a_queue_that_is_deleted_ends_the_worker() -> None:
    async def work() -> None:
        async with world() as w:
            worker = w.worker()
            await asyncio.sleep(1)
            w.queue.deleted = True
            await w.until(lambda: w.missing == 1)
            await worker.drain(10)

    run(work())


def test_a_queue_that_fails_for_a_while_is_asked_again_at_longer_pauses() -> None:
    async def work() -> None:
        async with world() as w:
            original, failures = w.queue.receive, 0

            async def receive(name: str, request: object) -> object:
                nonlocal failures
                if w.clock.monotonic() < 1_300.0:
                    failures += 1
                    raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Not yet.")
                return await original(name, request)  # type: ignore[arg-type]

            w.queue.receive = receive  # type: ignore[method-assign, assignment]
            w.queue.add()
            worker = w.worker()
            await w.until(lambda: w.queue.states() == ["accepted"])
            assert failures < 20
            await worker.drain(10)

    run(work())


@pytest.mark.parametrize("code", [301, 404, 500])
def test_nothing_is_said_of_an_endpoint_that_is_not_so(code: int) -> None:
    async def work() -> None:
        async with world() as w:
            w.endpoint.answer = status(code)
            w.queue.add()
            worker = w.worker(retries_ms=SLOW_RETRIES)
            await w.until(lambda: len(w.attempts) == 1)
            await worker.drain(10)
            [attempt] = w.attempts
            assert (attempt.status, attempt.verdict, attempt.error) == (code, Verdict.RETRIED, "")
            assert w.health == [False]

    run(work())
