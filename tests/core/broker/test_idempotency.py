"""core.broker.idempotency: once for each key, whatever is repeated and wherever the process dies."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.broker import Broker
from core.broker.idempotency import KEY_REUSED, KeyedAnswer, KeyedRequest
from core.broker.records import ProduceResult
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.idempotency import totals
from core.records.record import NewRecord
from core.types import TopicPartition

RECORDS = [NewRecord(key=b"k%d" % i, value=b"%03d" % i + b"." * 100) for i in range(12)]
# Two or three records of RECORDS fit into one batch.
SMALL = {"max.message.bytes": "400"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = Broker(Config(data_dir=tmp_path, idempotency_max_producers=20), clock)
    await opened.open()
    yield opened
    await opened.close()


def render(results: Sequence[ProduceResult]) -> bytes:
    return msgspec.json.encode([(r.partition, r.offset, r.timestamp, r.error is None) for r in results])


def request(key: str = "k", body: bytes = b"body", path: str = "topics/t/records") -> KeyedRequest:
    return KeyedRequest(path, key, body.ljust(32))


async def send(
    broker: Broker,
    records: Sequence[NewRecord] = RECORDS,
    *,
    acks: int = -1,
    topic: str = "t",
    **named: Any,
) -> KeyedAnswer:
    return await broker.idempotency.produce(request(**named), topic, records, acks=acks, render=render)


async def stored(broker: Broker, topic: str = "t") -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of all records of a topic."""
    found = []
    for partition in range(broker.topic(topic).partitions):
        tp = TopicPartition(topic, partition)
        result = await broker.read(tp, 0, max_bytes=10_000_000, max_records=10_000)
        found += [(partition, r.offset, r.value) for r in result.records]
    return found


async def assert_once(broker: Broker, answer: KeyedAnswer, records: Sequence[NewRecord] = RECORDS) -> None:
    """Each record is there once, at the place that the answer names."""
    found = await stored(broker)
    assert sorted(v or b"" for _, _, v in found) == sorted(r.value or b"" for r in records)
    assert answer.answer is not None
    places = msgspec.json.decode(answer.answer)
    by_place = {(p, o): v for p, o, v in found}
    assert [by_place[p, o] for p, o, _, _ in places] == [r.value for r in records]


async def keys(broker: Broker) -> int:
    return (await broker.store.read(totals)).keys


# --- the rules of a key -------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_the_same_request_is_written_once_and_gets_the_same_answer(broker: Broker, acks: int) -> None:
    await broker.create_topic("t", partitions=3, configs=SMALL)
    first = await send(broker, acks=acks)
    again = [await send(broker, acks=acks) for _ in range(3)]
    assert not first.replayed and all(a.replayed for a in again)
    assert {a.answer for a in again} == {first.answer}
    await assert_once(broker, first)


async def test_another_key_or_path_is_another_request(broker: Broker) -> None:
    await broker.create_topic("t")
    others: list[dict[str, Any]] = [{"key": "a"}, {"key": "b"}, {"key": "a", "path": "topics/other/records"}]
    for named in others:
        assert not (await send(broker, RECORDS[:1], **named)).replayed
    assert len(await stored(broker)) == 3


async def test_the_key_of_another_principal_is_another_key(broker: Broker) -> None:
    assert request().digest != request()._replace(principal="somebody").digest


async def test_a_key_with_another_body_is_refused(broker: Broker) -> None:
    await broker.create_topic("t")
    await send(broker)
    with pytest.raises(BrokerError) as caught:
        await send(broker, body=b"other")
    assert (caught.value.code, caught.value.details["reason"]) == (ErrorCode.INVALID_REQUEST, KEY_REUSED)
    assert len(await stored(broker)) == len(RECORDS)


async def test_a_request_that_is_under_way_is_not_begun_again(broker: Broker) -> None:
    await broker.create_topic("t")
    first = asyncio.ensure_future(send(broker))
    await asyncio.sleep(0)
    with pytest.raises(BrokerError) as caught:
        await send(broker)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(BrokerError) as caught:
        await send(broker, body=b"other")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    await first
    assert (await send(broker)).replayed


async def test_a_request_of_which_nothing_is_taken_leaves_its_key_free(broker: Broker) -> None:
    await broker.create_topic("t", configs={"cleanup.policy": "compact"})
    refused = await send(broker, [NewRecord(value=b"without key")])
    assert refused.answer is None and refused.results[0].error is not None
    assert await keys(broker) == 0
    taken = await send(broker, RECORDS[:1], body=b"other")
    assert taken.answer is not None and not taken.replayed


async def test_what_is_taken_in_part_is_answered_the_same_again(broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)
    records = [NewRecord(value=b"a", partition=0), NewRecord(value=b"b", partition=7)]
    first = await send(broker, records)
    assert [r.error is None for r in first.results] == [True, False]
    again = await send(broker, records)
    assert again.replayed and again.answer == first.answer
    assert await stored(broker) == [(0, 0, b"a")]


async def test_a_batch_that_is_refused_leaves_no_gap_before_the_next(broker: Broker) -> None:
    await broker.create_topic("t", configs=SMALL)
    records = [*RECORDS[:3], NewRecord(value=b"x" * 1000), *RECORDS[3:]]
    for key in ("a", "b", "c"):
        first = await send(broker, records, key=key)
        assert [i for i, r in enumerate(first.results) if r.error is not None] == [3]
        assert (await send(broker, records, key=key)).answer == first.answer
    assert len(await stored(broker)) == 3 * len(RECORDS)


async def test_a_stored_answer_outlives_its_topic_and_does_not_bring_it_back(broker: Broker) -> None:
    first = await send(broker)
    await broker.delete_topic("t")
    assert (await send(broker)).answer == first.answer
    with pytest.raises(BrokerError):
        broker.topic("t")


async def test_a_large_answer_comes_back_whole(broker: Broker) -> None:
    await broker.create_topic("t")
    records = [NewRecord(value=b"v")] * 5000
    first = await send(broker, records)
    assert first.answer is not None and len(first.answer) > 50_000
    assert (await send(broker, records)).answer == first.answer
    assert (await broker.store.read(totals)).size < len(first.answer)


async def test_a_request_of_too_many_batches_is_refused_before_anything(broker: Broker) -> None:
    await broker.create_topic("t", configs={"max.message.bytes": "100"})
    with pytest.raises(BrokerError) as caught:
        await send(broker, [NewRecord(value=b"v" * 10)] * 1000)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert await keys(broker) == 0 and not await stored(broker)


async def test_too_many_at_once_are_told_to_wait(broker: Broker) -> None:
    await broker.create_topic("t")
    outcomes = await asyncio.gather(
        *(send(broker, RECORDS[:1], key=f"{n}") for n in range(30)), return_exceptions=True
    )
    refused = [o.code for o in outcomes if isinstance(o, BrokerError)]
    assert refused == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 10
    assert len(await stored(broker)) == 20
    assert not isinstance(await send(broker, RECORDS[:1], key="later"), Exception)


async def test_a_thousand_keys_need_few_producers(broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)
    for n in range(200):
        await send(broker, RECORDS[:4], key=f"{n}", acks=1)
    producers = [len(list(broker.active_producers(TopicPartition("t", p)))) for p in (0, 1)]
    assert max(producers) <= 2
    await keys(broker)  # the last answer is stored, and its producer free
    await asyncio.gather(*(send(broker, RECORDS[:4], key=f"w{n}") for n in range(20)))
    producers = [len(list(broker.active_producers(TopicPartition("t", p)))) for p in (0, 1)]
    assert max(producers) <= 20


# --- age and number -----------------------------------------------------------------------------------------


async def test_a_key_is_kept_for_a_day(broker: Broker, clock: ManualClock) -> None:
    await broker.create_topic("t")
    await send(broker, RECORDS[:1])
    clock.advance(86_400)
    assert (await send(broker, RECORDS[:1])).replayed
    clock.advance(1)
    assert not (await send(broker, RECORDS[:1], body=b"other")).replayed


async def test_old_keys_are_removed_in_the_background(broker: Broker, clock: ManualClock) -> None:
    await broker.create_topic("t")
    for key in ("a", "b"):
        await send(broker, RECORDS[:1], key=key)
    clock.advance(80_000)
    await send(broker, RECORDS[:1], key="c")
    await broker.idempotency.expire()
    assert await keys(broker) == 3
    clock.advance(7_000)
    await broker.idempotency.expire()
    assert await keys(broker) == 1
    assert (await send(broker, RECORDS[:1], key="c")).replayed


@pytest.mark.parametrize("limit", [{"idempotency_max_keys": 5}, {"idempotency_max_bytes": 3_000}])
async def test_beyond_their_number_the_oldest_keys_are_forgotten(
    tmp_path: Path, clock: ManualClock, limit: dict[str, int]
) -> None:
    broker = Broker(Config(data_dir=tmp_path, **limit), clock)  # type: ignore[arg-type]
    await broker.open()
    await broker.create_topic("t")
    for n in range(40):
        clock.advance(1)
        await send(broker, RECORDS[:1], key=f"{n:02}")
    await broker.idempotency.expire()
    left = await broker.store.read(totals)
    assert left.keys == 5 or 2_500 < left.size <= 3_000
    assert (await send(broker, RECORDS[:1], key="39")).replayed
    assert not (await send(broker, RECORDS[:1], key="00")).replayed
    await broker.close()


# --- disks that refuse --------------------------------------------------------------------------------------


def refusing(*_: Any, **__: Any) -> Any:
    raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")


async def test_a_key_that_cannot_be_stored_refuses_before_any_append(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    await send(broker, RECORDS[:1], key="warm")

    def broken(_: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(_raise())

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "read", broken)
        with pytest.raises(BrokerError) as caught:
            await send(broker)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(await stored(broker)) == 1
    assert not (await send(broker)).replayed
    assert len(await stored(broker)) == 1 + len(RECORDS)


async def _raise() -> None:
    refusing()


async def test_an_answer_that_cannot_be_stored_is_found_in_the_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", partitions=3, configs=SMALL)
    await broker.producer_ids.next()
    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "submit", refusing)
        first = await send(broker)
    again = await send(broker)
    assert again.replayed and again.answer == first.answer
    await assert_once(broker, again)


async def test_a_write_that_a_disk_stopped_half_way_is_completed_by_its_repetition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", partitions=3, configs=SMALL)
    append, done = broker.append, count()

    def full(*args: Any, **named: Any) -> Any:
        return refusing() if next(done) >= 2 else append(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(broker, "append", full)
        first = await send(broker)
    assert first.answer is None and {r.error is None for r in first.results} == {True, False}
    second = await send(broker)
    assert not second.replayed
    await assert_once(broker, second)
    taken = [r[:3] for r in first.results if r.error is None]
    assert set(taken) <= {r[:3] for r in second.results}


async def test_an_fsync_that_fails_does_not_use_the_key_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")

    def failed(*_: Any) -> asyncio.Future[None]:
        return asyncio.ensure_future(_raise())

    with monkeypatch.context() as patched:
        patched.setattr(broker, "durable", failed)
        first = await send(broker)
    assert first.answer is None and all(r.error is not None for r in first.results)
    again = await send(broker)
    assert again.replayed
    await assert_once(broker, again)


async def test_a_plan_for_a_topic_that_is_deleted_is_void(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(broker, "append", refusing)
        await send(broker)
    await broker.delete_topic("t")
    await broker.create_topic("t", partitions=2)
    await assert_once(broker, await send(broker))


async def test_a_topic_that_has_grown_meanwhile_gets_the_records_where_they_were_planned(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t", partitions=2)
    append, done = broker.append, count()

    def full(*args: Any, **named: Any) -> Any:
        return refusing() if next(done) else append(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(broker, "append", full)
        await send(broker)
    await broker.create_partitions("t", 7)
    answer = await send(broker)
    await assert_once(broker, answer)
    assert {r.partition for r in answer.results} == {0, 1}


# --- death --------------------------------------------------------------------------------------------------


class Death(BaseException):
    """The process dies here."""


class Mortal:
    """Lets a broker die before or after one of its steps: a job of the store, an append, a wait for the disk.

    `image` is what the disk holds then.
    """

    def __init__(self, broker: Broker, at: int, after: bool, image: Path) -> None:
        self.broker, self.at, self.after, self.image = broker, at, after, image
        self.steps = 0
        for owner, name in ((broker.store, "read"), (broker.store, "submit"), (broker, "append")):
            setattr(owner, name, self._step(getattr(owner, name)))
        broker.durable = self._wait(broker.durable)  # type: ignore[method-assign]

    def _now(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.at

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            if not self._now():
                return real(*args, **named)
            if not self.after:
                return self._die()
            done = real(*args, **named)
            return asyncio.ensure_future(self._die_after(done)) if asyncio.isfuture(done) else self._die()

        return step

    def _wait(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            done = real(*args)
            return done if done is None or not self._now() else asyncio.ensure_future(self._die_after(done))

        return step

    async def _die_after(self, done: Awaitable[Any]) -> None:
        await done
        self._die()

    def _die(self) -> None:
        shutil.copytree(self.broker.config.data_dir, self.image, ignore=shutil.ignore_patterns("*-shm"))
        raise Death


async def live(image: Path, clock: ManualClock, at: int, after: bool, acks: int) -> tuple[Path | None, int]:
    """Send the request to a broker that dies at a step; what its disk holds then, None if it lived."""
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    mortal = Mortal(broker, at, after, image.with_name(f"{image.name}-{at}{'ab'[after]}"))
    died = False
    try:
        await send(broker, acks=acks)
        # What is still under way is done, and dies as well.
        await asyncio.sleep(0.02)
    except Death:
        died = True
    if not mortal.image.exists():
        assert not died
    await broker.close()
    return (mortal.image if mortal.image.exists() else None), mortal.steps


async def prepared(root: Path, clock: ManualClock) -> Path:
    (root / "b").mkdir()
    broker = Broker(Config(data_dir=root / "b"), clock)
    await broker.open()
    await broker.create_topic("t", partitions=3, configs=SMALL)
    await broker.close()
    return root / "b"


async def check_after_death(image: Path, clock: ManualClock, acks: int) -> None:
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    try:
        clock.advance(60)
        answer = await send(broker, acks=acks)
        await assert_once(broker, answer)
        again = await send(broker, acks=acks)
        assert again.replayed and again.answer == answer.answer
        await assert_once(broker, again)
    finally:
        await broker.close()


async def copy_of(image: Path, name: str) -> Path:
    return Path(shutil.copytree(image, image.with_name(name)))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_repetition_after_any_death_writes_once(
    tmp_path: Path, clock: ManualClock, after: bool, acks: int
) -> None:
    start = await prepared(tmp_path, clock)
    for at in count():
        image, steps = await live(await copy_of(start, f"n{at}"), clock, at, after, acks)
        if image is None:
            assert at == steps
            break
        await check_after_death(image, clock, acks)
    # One bind, some appends in each of three partitions, and the answer.
    assert steps >= 6


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(deaths=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=4))
def test_a_repetition_after_many_deaths_writes_once(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]]
) -> None:
    async def history() -> None:
        root, clock = tmp_path_factory.mktemp("deaths"), ManualClock()
        image = await prepared(root, clock)
        for number, (at, after) in enumerate(deaths):
            left, _ = await live(await copy_of(image, f"n{number}"), clock, at, after, acks=-1)
            image = image.with_name(f"n{number}") if left is None else left
        await check_after_death(image, clock, acks=-1)

    asyncio.run(history())


async def test_what_a_start_finds_is_known_when_the_log_has_forgotten_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    start = await prepared(tmp_path, clock)
    image, steps = await live(await copy_of(start, "all"), clock, -1, False, -1)
    image, _ = await live(await copy_of(start, "n"), clock, steps - 1, False, -1)
    assert image is not None
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    for partition in range(3):
        broker.log(TopicPartition("t", partition)).producers.clear()
    answer = await send(broker)
    assert answer.replayed
    await assert_once(broker, answer)
    await broker.close()


async def test_producer_ids_of_unfinished_writes_are_not_lent_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    start = await prepared(tmp_path, clock)
    image, _ = await live(start, clock, 1, False, -1)
    assert image is not None
    broker = Broker(replace(Config(), data_dir=image), clock)
    await broker.open()
    for n in range(30):
        await send(broker, key=f"other-{n}")
    before = len(await stored(broker))
    assert not (await send(broker)).replayed
    assert len(await stored(broker)) == before + len(RECORDS)
    await broker.close()
