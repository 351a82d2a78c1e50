"""core.consumers.consumers: how managed consumers are made, what they subscribe to, when they go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import ConsumerOptions as Options
from core.vocabulary.consumers import Subscription
from tests.core.consumers.consumer_world import G, World, offsets


async def refused(work: Coroutine[Any, Any, Any], code: ErrorCode) -> BrokerError:
    with pytest.raises(BrokerError) as error:
        await work
    assert error.value.code is code
    return error.value


# --- making -----------------------------------------------------------------------------------------------------


async def test_a_consumer_without_a_name_gets_one_of_its_own(w: World) -> None:
    first, second = [await w.consumers.create(G) for _ in range(2)]
    assert first.name != second.name and first.state == "unsubscribed"
    assert [one.name for one in w.consumers.of_group(G)] == sorted([first.name, second.name])
    assert w.consumers.of_group("another") == []


async def test_a_name_is_taken_once_in_a_group_and_free_again_after_its_end(w: World) -> None:
    await w.consumers.create(G, "c")
    await refused(w.consumers.create(G, "c"), ErrorCode.DUPLICATE_RESOURCE)
    await w.consumers.create("another", "c")
    await w.consumers.delete(G, "c")
    await refused(w.consumers.delete(G, "c"), ErrorCode.RESOURCE_NOT_FOUND)
    await w.consumers.create(G, "c")
    both = await asyncio.gather(*(w.consumers.create(G, "d") for _ in range(2)), return_exceptions=True)
    assert sum(isinstance(one, BrokerError) for one in both) == 1


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("a/b", {}, ErrorCode.INVALID_REQUEST),
        ("..", {}, ErrorCode.INVALID_REQUEST),
        ("a\n", {}, ErrorCode.INVALID_REQUEST),
        ("n" * 250, {}, ErrorCode.INVALID_REQUEST),
        ("c", {"ttl_ms": -1}, ErrorCode.INVALID_REQUEST),
        ("c", {"ttl_ms": 86_400_001}, ErrorCode.INVALID_REQUEST),
        ("c", {"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("c", {"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("c", {"rebalance_timeout_ms": 0}, ErrorCode.INVALID_REQUEST),
        ("c", {"auto_commit_interval_ms": -1}, ErrorCode.INVALID_REQUEST),
        ("c", {"assignor": "fair"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
async def test_what_makes_no_sense_is_refused(
    w: World, name: str, options: dict[str, Any], code: ErrorCode
) -> None:
    await refused(w.consumers.create(G, name, options=Options(**options)), code)
    assert w.consumers.of_group(G) == []


async def test_a_group_needs_a_name(w: World) -> None:
    await refused(w.consumers.create("", "c"), ErrorCode.INVALID_GROUP_ID)


@pytest.mark.settings(max_consumers=2)
async def test_the_number_of_consumers_is_limited(w: World) -> None:
    await w.consumers.create(G, "a")
    await w.consumers.create(G, "b")
    error = await refused(w.consumers.create(G, "c"), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert error.details["limit"] == 2
    await w.consumers.delete(G, "a")
    await w.consumers.create(G, "c")


@pytest.mark.settings(max_subscription=10)
@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (Subscription(("no such",)), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (Subscription(pattern="(a"), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (Subscription(assignments=(Tp("t", 2),)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        pytest.param(
            Subscription(("missing",)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            marks=pytest.mark.settings(auto_create_topics=False),
        ),
        (Subscription(tuple(f"t{i}" for i in range(11))), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_subscription_that_cannot_be_is_refused_and_leaves_no_consumer(
    w: World, subscription: Subscription, code: ErrorCode
) -> None:
    await w.topic(partitions=2)
    await refused(w.consumers.create(G, "c", subscription=subscription), code)
    assert w.consumers.of_group(G) == []


async def test_a_topic_that_is_missing_is_created_as_for_any_consumer(w: World) -> None:
    await w.create("c", "new")
    assert w.broker.topics.get("new").partitions == 1


# --- subscribing --------------------------------------------------------------------------------------------


async def test_subscriptions_and_assignments_do_not_mix(w: World) -> None:
    await w.topic(partitions=2, records=1)
    await w.consumers.create(G, "c")
    await w.consumers.assign(G, "c", [Tp("t", 1), Tp("t", 1)])
    error = await refused(w.consumers.subscribe(G, "c", topics=["t"]), ErrorCode.INVALID_RECORD_STATE)
    assert error.details["reason"] == "mixed-subscription"
    assert offsets(await w.poll(limit=1)) == {1: [0]}
    await w.consumers.assign(G, "c", [Tp("t", 0), Tp("t", 1)])
    assert [(p.partition, p.position) for p in w.info().partitions] == [(0, 0), (1, 0)]
    assert w.info().token is not None
    await w.consumers.unsubscribe(G, "c")
    assert w.info().state == "unsubscribed" and w.info().partitions == ()
    await w.consumers.subscribe(G, "c", topics=["t", "t"])
    assert w.info().subscription == Subscription(("t",))
    error = await refused(w.consumers.assign(G, "c", [Tp("t", 0)]), ErrorCode.INVALID_RECORD_STATE)
    assert error.details["reason"] == "mixed-subscription"
    assert sorted(offsets(await w.poll())) == [0, 1]


async def test_a_consumer_that_unsubscribes_leaves_the_group_and_may_come_back(w: World) -> None:
    await w.topic(records=4)
    await w.create()
    batch = await w.poll(limit=2)
    await w.consumers.ack(G, "c", batch.token)
    await w.consumers.unsubscribe(G, "c")
    view = w.broker.groups.describe(G)
    assert view is not None and view.members == ()
    await w.kill()
    assert w.info().state == "unsubscribed"
    await w.consumers.subscribe(G, "c", pattern="t+")
    assert offsets(await w.poll()) == {0: [2, 3]}


# --- going --------------------------------------------------------------------------------------------------


async def test_an_idle_consumer_expires_and_every_request_keeps_it(w: World) -> None:
    await w.topic()
    await w.create("idle", ttl_ms=10_000)
    await w.create("busy", ttl_ms=10_000)
    for _ in range(4):
        await asyncio.sleep(6)
        w.consumers.get(G, "busy")
        w.consumers.of_group(G)
    assert [one.name for one in w.consumers.of_group(G)] == ["busy"]
    await asyncio.sleep(1)
    view = w.broker.groups.describe(G)
    assert view is not None and [m.client_id for m in view.members] == ["busy"]
    await refused(w.poll("idle"), ErrorCode.RESOURCE_NOT_FOUND)


async def test_a_poll_that_waits_keeps_its_consumer(w: World) -> None:
    await w.topic()
    await w.create(ttl_ms=5_000)
    await w.poll(wait_ms=60_000)
    assert w.info().expires_in_ms == 5_000


async def test_five_minutes_are_the_default(w: World) -> None:
    await w.topic()
    await w.create()
    await asyncio.sleep(299)
    assert w.info().expires_in_ms == pytest.approx(1_000, abs=5)
    await asyncio.sleep(3)
    assert w.consumers.of_group(G) == []


async def test_a_deleted_consumer_gives_its_partitions_up_at_once_and_its_polls_learn_it(w: World) -> None:
    await w.topic(partitions=2, records=2)
    await w.create("a")
    await w.create("b")
    await w.poll("a")
    waiting = asyncio.create_task(w.poll("b", wait_ms=60_000))
    await asyncio.sleep(0.1)
    batch = await waiting
    waiting = asyncio.create_task(w.poll("b", ack=batch.token, wait_ms=60_000))
    await asyncio.sleep(1)
    await w.consumers.delete(G, "b")
    await refused(waiting, ErrorCode.RESOURCE_NOT_FOUND)  # type: ignore[arg-type]
    await w.kill()
    assert [one.name for one in w.consumers.of_group(G)] == ["a"]
    await w.consumers.ack(G, "a", w.info("a").token)
    await w.produce(1, partition=0)
    await w.produce(1, partition=1)
    assert len(offsets(await w.poll("a"))) == 2


# --- clocks and pauses --------------------------------------------------------------------------------------


async def test_a_wall_clock_that_jumps_ends_no_consumer(w: World) -> None:
    await w.topic(records=1)
    await w.create(session_timeout_ms=6_000)
    batch = await w.poll()
    for days in (1, -2):
        w.clock.wall_shift_ms += days * 86_400_000
        await asyncio.sleep(20)
        assert (await w.poll()).token == batch.token
    w.clock.wall_shift_ms += 86_400_000
    await w.kill()
    assert (await w.poll()).token == batch.token


async def test_the_time_to_live_continues_over_restarts_with_a_chance_for_the_client(w: World) -> None:
    await w.topic()
    await w.create(ttl_ms=1_000_000)
    await asyncio.sleep(300)
    await w.restart()
    assert w.info().expires_in_ms == pytest.approx(700_000, abs=2_000)
    await asyncio.sleep(650)
    await w.restart()
    assert w.info().expires_in_ms == pytest.approx(60_000, abs=2_000)
    await asyncio.sleep(62)
    assert w.consumers.of_group(G) == []


async def test_a_process_that_stood_still_ends_no_consumer(w: World) -> None:
    await w.topic(records=1)
    await w.create(ttl_ms=20_000, session_timeout_ms=6_000)
    batch = await w.poll()
    generation = w.info().generation
    # Nothing runs for five minutes, as after SIGSTOP.
    asyncio.get_running_loop().now += 300  # type: ignore[attr-defined]
    await asyncio.sleep(2)
    assert w.info().generation == generation
    assert (await w.poll()).token == batch.token


# --- many ---------------------------------------------------------------------------------------------------


async def test_a_thousand_consumers_of_one_group_settle_and_are_few_kilobytes_each(w: World) -> None:
    import tracemalloc

    await w.topic(partitions=1000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    await asyncio.gather(*(w.create(f"c{i:03}") for i in range(300)))
    started = w.clock.monotonic()
    await w.poll("c000", wait_ms=60_000)
    assert w.clock.monotonic() - started < 65
    await asyncio.sleep(1)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    found = w.consumers.of_group(G)
    assert sum(len(one.partitions) for one in found) == 1000
    assert {one.generation for one in found} == {found[0].generation}
    assert (after - before) / 300 < 20_000


async def test_nothing_is_left_of_a_broker_that_was_closed(w: World) -> None:
    await w.topic()
    await w.create()
    membership = w.registry.find(G, "c").membership
    assert membership.joining
    broker: Broker = w.broker
    await broker.close()
    assert not membership.joining
    await w.start()
    assert (await w.poll()).state == "stable"
