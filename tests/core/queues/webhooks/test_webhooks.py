"""Webhooks of a broker in virtual time: settings, secrets, restarts, kills, changes with requests under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from standardwebhooks import Webhook, WebhookVerificationError

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.queues.webhooks import webhooks
from core.vocabulary.webhooks import (
    MAX_FAILING_MS,
    ROTATION_MS,
    Signing,
    WebhookMade,
    WebhookSettings,
    WebhookView,
)
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import Q, queue
from tests.core.queues.webhooks.endpoint import Endpoint, Got, silence, status

pytestmark = pytest.mark.settings(
    webhook_allow=("127.0.0.0/8",), checkpoint_interval_ms=86_400_000_000, max_webhooks=3
)


@pytest_asyncio.fixture
async def e() -> AsyncIterator[Endpoint]:
    async with Endpoint() as endpoint:
        yield endpoint


def settings(e: Endpoint, **changes: Any) -> WebhookSettings:
    return replace(WebhookSettings(e.url, retries_ms=(1_000,)), **changes)


async def put(
    w: World, e: Endpoint, name: str = "hook", secret: str | None = None, **changes: Any
) -> WebhookMade:
    return await w.broker.webhooks.put(Q, name, settings(e, **changes), secret=secret)


def view(w: World, name: str = "hook") -> WebhookView:
    return w.broker.webhooks.get(Q, name)


async def until(true: Callable[[], bool], seconds: float = 600.0, step: float = 0.05) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(step)


def unsettled(broker: Broker) -> int:
    stats = broker.queues.stats(Q).partitions
    return sum(one.available + one.in_flight + one.delayed + one.archiving for one in stats)


async def test_records_of_a_queue_arrive_signed_and_are_accepted(w: World, e: Endpoint) -> None:
    await w.topic(records=20)
    await queue(w)
    made = await put(w, e)
    assert made.created and made.secret is not None
    await until(lambda: unsettled(w.broker) == 0)
    assert len(e.got) == 20
    with pytest.MonkeyPatch.context() as patch:
        # The library asks the real clock.
        patch.setattr(Webhook, "_Webhook__verify_timestamp", _verify_any_time)
        for got in e.got:
            assert Webhook(made.secret).verify(got.body, got.headers)["type"] == "sluice.record"
    assert view(w).accepted == 20
    assert len(w.broker.webhooks.attempts(Q, "hook")) == 20
    assert w.broker.webhooks.attempts(Q, "hook")[0].status == 200


def _verify_any_time(_: Webhook, text: str) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(float(text), UTC)


async def test_a_webhook_is_there_after_a_restart_and_continues(w: World, e: Endpoint) -> None:
    await w.topic(records=3)
    await queue(w)
    await put(w, e, concurrency=3, headers=(("x-own", "planted-secret"),))
    await until(lambda: unsettled(w.broker) == 0)
    before = view(w)
    await w.restart()
    after = view(w)
    assert (after.settings, after.version, after.created_ms) == (
        before.settings,
        before.version,
        before.created_ms,
    )
    await w.produce(2)
    await until(lambda: len(e.got) == 5)
    assert {got.headers["x-own"] for got in e.got} == {"planted-secret"}


async def test_a_kill_between_the_answer_and_its_commit_sends_again_with_the_same_id(
    w: World, e: Endpoint
) -> None:
    await w.topic(records=1)
    await queue(w)
    await put(w, e)

    async def never(*_: Any) -> Any:
        await asyncio.sleep(1_000_000)

    old = w.broker
    old.webhooks._queues.settle = never  # type: ignore[method-assign]
    await until(lambda: len(e.got) == 1 and bool(old.webhooks.attempts(Q, "hook")))
    await w.kill()
    await until(lambda: unsettled(w.broker) == 0)
    assert len(e.got) == 2
    assert e.got[0].headers["webhook-id"] == e.got[1].headers["webhook-id"]
    assert e.got[0].body == e.got[1].body


async def test_a_clean_stop_counts_no_delivery_of_what_was_under_way(w: World, e: Endpoint) -> None:
    e.answer = silence
    await w.topic(records=3)
    await queue(w)
    await put(w, e, timeout_ms=300_000)
    await until(lambda: len(e.got) == 1)
    e.answer = status(200)
    await w.restart()
    await until(lambda: len(e.got) == 4)
    assert [got.headers["sluice-attempt"] for got in e.got] == ["1", "1", "1", "1"]


async def test_a_change_ends_requests_as_they_began_and_sends_the_rest_elsewhere(
    w: World, e: Endpoint
) -> None:
    async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    e.answer = slow
    await w.topic(records=4)
    await queue(w)
    await put(w, e)
    await until(lambda: len(e.got) == 1)
    async with Endpoint() as other:
        changed = await put(w, other)
        assert (changed.created, changed.secret, changed.view.version) == (False, None, 2)
        await until(lambda: unsettled(w.broker) == 0)
        assert len(e.got) == 1
        assert sorted(int(got.headers["sluice-offset"]) for got in other.got) == [1, 2, 3]
        assert [got.headers["sluice-attempt"] for got in other.got] == ["1"] * 3


async def test_a_deleted_webhook_ends_its_request_and_touches_no_other_record(w: World, e: Endpoint) -> None:
    async def slow(_: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    e.answer = slow
    await w.topic(records=4)
    await queue(w)
    await put(w, e)
    await until(lambda: len(e.got) == 1)
    await w.broker.webhooks.delete(Q, "hook")
    await asyncio.sleep(60)
    assert (len(e.got), unsettled(w.broker)) == (1, 3)
    with pytest.raises(BrokerError) as caught:
        view(w)
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    await w.restart()
    assert w.broker.webhooks.of_queue(Q) == []


async def test_webhooks_end_with_their_queue_and_are_not_those_of_the_next_one(w: World, e: Endpoint) -> None:
    await w.topic()
    await queue(w)
    await put(w, e)
    await w.broker.queues.delete(Q, force=True)
    await asyncio.sleep(1)
    await queue(w)
    assert w.broker.webhooks.of_queue(Q) == []
    await w.produce(1)
    await asyncio.sleep(120)
    assert e.got == []
    await w.restart()
    assert w.broker.webhooks.of_queue(Q) == []


async def test_a_queue_that_is_made_again_during_an_outage_sends_nothing_to_the_old_endpoint(
    w: World, e: Endpoint
) -> None:
    e.answer = status(503, "retry-after: 300")
    await w.topic(records=1)
    await queue(w)
    await put(w, e)
    await until(lambda: len(e.got) == 1)
    # The worker waits for the end of the pause, and asks the queue nothing.
    await w.broker.queues.delete(Q, force=True)
    await asyncio.sleep(1)
    await queue(w)
    e.answer = status(200)
    await asyncio.sleep(700)
    assert len(e.got) == 1
    assert unsettled(w.broker) == 1
    assert w.broker.webhooks.of_queue(Q) == []


async def test_410_switches_off_for_good_and_enable_on_again(w: World, e: Endpoint) -> None:
    e.answer = status(410)
    await w.topic(records=2)
    await queue(w)
    await put(w, e)
    await until(lambda: not view(w).settings.enabled)
    assert "410" in view(w).off_because
    await w.restart()
    await asyncio.sleep(120)
    assert len(e.got) == 1
    e.answer = status(200)
    on = await w.broker.webhooks.enable(Q, "hook")
    assert on.settings.enabled and not on.off_because
    await until(lambda: unsettled(w.broker) == 0)
    assert [got.headers["sluice-attempt"] for got in e.got] == ["1", "1", "1"]


async def test_after_days_of_failures_it_is_off_also_over_a_restart(
    w: World, e: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two hours in the place of five days: the broker's own background work makes days long.
    limit_ms = 7_200_000
    assert MAX_FAILING_MS == 5 * 86_400_000
    monkeypatch.setattr(webhooks, "MAX_FAILING_MS", limit_ms)
    e.answer = status(500)
    await w.topic(records=30)
    await queue(w, delivery_limit=None)
    await put(w, e, retries_ms=(60_000,), concurrency=1)
    await until(lambda: view(w).failing_since_ms is not None, 86_400.0)
    since = view(w).failing_since_ms
    await w.restart()
    assert view(w).settings.enabled and view(w).failing_since_ms == since
    await until(lambda: not view(w).settings.enabled, 86_400.0, 10.0)
    assert since is not None and limit_ms <= w.clock.wall_ms() - since < limit_ms + 900_000
    assert "5 days" in view(w).off_because
    assert all(one.verdict.value == "retried" for one in w.broker.webhooks.attempts(Q, "hook"))


async def test_a_secret_is_rotated_in_mid_retry_and_both_verify(
    w: World, e: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Webhook, "_Webhook__verify_timestamp", _verify_any_time)
    e.answer = status(500)
    await w.topic(records=1)
    await queue(w)
    old = (await put(w, e, retries_ms=(60_000,))).secret
    await until(lambda: len(e.got) == 1)
    made = await w.broker.webhooks.rotate_secret(Q, "hook")
    assert old is not None and made.secret is not None and made.secret != old
    await until(lambda: len(e.got) == 2)
    for secret in (old, made.secret):
        Webhook(secret).verify(e.got[1].body, e.got[1].headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(made.secret).verify(e.got[0].body, e.got[0].headers)
    await w.restart()
    await asyncio.sleep(ROTATION_MS / 1000)
    await until(lambda: e.got[-1].headers["webhook-signature"].count("v1,") == 1, 86_400.0)
    Webhook(made.secret).verify(e.got[-1].body, e.got[-1].headers)


async def test_a_key_pair_shows_its_public_half_alone(w: World, e: Endpoint) -> None:
    await w.topic()
    await queue(w)
    made = await w.broker.webhooks.put(Q, "hook", settings(e), signing=Signing.ED25519)
    assert made.secret is not None and made.secret.startswith("whsk_")
    [public] = view(w).public_keys
    assert public.startswith("whpk_")
    assert made.secret not in repr(view(w))


async def test_a_test_sends_one_sample_also_when_it_is_off_and_settles_nothing(w: World, e: Endpoint) -> None:
    await w.topic(records=1)
    await queue(w)
    await put(w, e, enabled=False)
    e.answer = status(202)
    attempt = await w.broker.webhooks.test(Q, "hook")
    assert (attempt.status, attempt.verdict.value, attempt.topic) == (202, "accepted", "webhook-test")
    assert (len(e.got), unsettled(w.broker)) == (1, 1)


async def test_nothing_secret_is_logged_shown_or_in_an_error(
    w: World, e: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    e.answer = status(500)
    await w.topic(records=50)
    await queue(w)
    made = await put(w, e, headers=(("authorization", "Bearer planted-secret"),), concurrency=8)
    assert made.secret is not None
    await until(lambda: view(w).circuit.value == "open")
    e.answer = status(410)
    await until(lambda: not view(w).settings.enabled, 86_400.0)
    assert "fails; nothing is sent" in caplog.text
    for planted in ("planted-secret", made.secret, made.secret[6:]):
        assert planted not in caplog.text
    shown = view(w)
    assert shown.settings.headers == (("authorization", ""),)
    assert made.secret not in repr(shown)


async def test_headers_stay_if_a_change_names_none(w: World, e: Endpoint) -> None:
    await w.topic()
    await queue(w)
    await put(w, e, headers=(("x-own", "1"),))
    await put(w, e, concurrency=2)
    await w.produce(1)
    await until(lambda: len(e.got) == 1)
    assert e.got[0].headers["x-own"] == "1"


async def test_webhooks_that_cannot_be_are_refused(w: World, e: Endpoint) -> None:
    await w.topic()
    with pytest.raises(BrokerError) as caught:
        await put(w, e)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await queue(w)
    for name, changes, code in (
        ("a/b", {}, ErrorCode.INVALID_REQUEST), (".a", {}, ErrorCode.INVALID_REQUEST),
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("a", {"concurrency": 0}, ErrorCode.INVALID_REQUEST), ("a", {"timeout_ms": 1}, ErrorCode.INVALID_REQUEST),
        ("a", {"retries_ms": ()}, ErrorCode.INVALID_REQUEST), ("a", {"retries_ms": (-1,)}, ErrorCode.INVALID_REQUEST),
        ("a", {"rate_per_second": -1.0}, ErrorCode.INVALID_REQUEST),
        ("a", {"url": "nothing"}, ErrorCode.INVALID_REQUEST),
        ("a", {"headers": (("host", "x"),)}, ErrorCode.INVALID_REQUEST),
        ("a", {"url": "http://10.0.0.1/"}, ErrorCode.POLICY_VIOLATION),
        ("a", {"url": "https://169.254.169.254/"}, ErrorCode.POLICY_VIOLATION),
    ):  # fmt: skip
        with pytest.raises(BrokerError) as caught:
            await put(w, e, name, **changes)  # type: ignore[arg-type]
        assert caught.value.code is code, (name, changes)
    for number in range(3):
        await put(w, e, f"hook{number}")
    with pytest.raises(BrokerError) as caught:
        await put(w, e, "one-more")
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_listener_of_the_broker_is_no_endpoint(w: World) -> None:
    async with Endpoint() as own:
        await w.topic(records=1)
        await queue(w)
        w.broker.endpoints = [replace(w.broker.config.listeners[0], port=own.port)]
        await put(w, own)
        await until(lambda: bool(w.broker.webhooks.attempts(Q, "hook")))
        assert "listener of this process" in w.broker.webhooks.attempts(Q, "hook")[0].error
        assert own.got == []


@pytest.mark.settings(webhooks=False)
async def test_where_they_are_off_nothing_is_made_or_sent(w: World, e: Endpoint) -> None:
    await w.topic()
    await queue(w)
    with pytest.raises(BrokerError, match="--webhooks") as caught:
        await put(w, e)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert w.broker.webhooks.of_queue(Q) == []
