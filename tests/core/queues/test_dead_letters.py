"""Dead letters: each record that is given up is in the dead-letter topic once, whatever happens; and redrives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from core.errors import BrokerError, ErrorCode
from core.queues.redrive import REDRIVEN_FROM
from core.records.record import NewRecord, Record
from core.types import TopicPartition
from core.vocabulary.queues import Backoff, Cause, DeadLetter, Outcome, Redrive, RedriveTask, Verb
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import Q, offsets, queue, receive, settle

DEAD = DeadLetter("dead")


async def forever(*args: Any, **more: Any) -> NoReturn:
    """What never returns: the process is killed in it."""
    await asyncio.Event().wait()
    raise AssertionError


async def records(w: World, topic: str = "dead", partition: int = 0) -> list[Record]:
    """Return all records of a partition."""
    tp = TopicPartition(topic, partition)
    found: list[Record] = []
    position = w.broker.partitions.offsets(tp).log_start_offset
    while True:
        read = await w.broker.records.read(tp, position, max_bytes=1_000_000, max_records=1_000)
        if read.next_offset == position:
            return found
        found, position = found + list(read.records), read.next_offset


def header(record: Record, name: str) -> str:
    return (dict(record.headers)[name] or b"").decode()


def sources(dead: Sequence[Record]) -> list[int]:
    """The offsets from which dead letters came."""
    return [int(header(record, "__dlq.errors.offset")) for record in dead]


async def written(w: World, name: str = Q) -> None:
    """Wait until nothing is on its way to the dead letters."""
    while any(one.archiving for one in w.broker.queues.stats(name).partitions):
        await asyncio.sleep(0.1)


async def rejected(w: World, count: int, **item: Any) -> None:
    """Reject some records, and wait until they are dead letters."""
    got = await receive(w, count)
    assert len(got.records) == count
    assert await settle(w, got.records, Verb.REJECT, **item) == [Outcome.SETTLED] * count
    await written(w)


async def test_a_rejected_record_is_copied_with_the_headers_of_kip_1191(w: World) -> None:
    await w.broker.topics.create("t", partitions=5)
    await w.broker.topics.create("dead", partitions=2)
    record = NewRecord(b"k", b"v", (("a", b"1"), ("b", None)))
    await w.broker.records.produce("t", [record], partition=3, acks=1)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 1, reason="no such customer")
    (dead,) = await records(w, partition=1)
    assert (dead.key, dead.value, dead.headers[:2]) == (b"k", b"v", (("a", b"1"), ("b", None)))
    names = ("topic", "partition", "offset", "group", "delivery.count", "message")
    found = [header(dead, f"__dlq.errors.{name}") for name in names]
    assert found == ["t", "3", "0", Q, "1", "no such customer"]
    stats = w.broker.queues.stats(Q)
    assert [one.start for one in stats.partitions if one.tp.partition == 3] == [1]
    (letter,) = (await w.broker.queues.dead_letters.list(Q)).records
    assert (letter.tp, letter.offset, letter.cause, letter.reason) == (
        TopicPartition("t", 3), 0, Cause.REJECTED, "no such customer",
    )  # fmt: skip
    assert letter.record.headers == (("a", b"1"), ("b", None)) and not letter.pointer


async def test_without_copy_there_is_a_pointer(w: World) -> None:
    await w.topic(records=1)
    await queue(w, dead_letter=DeadLetter("dead", copy=False))
    await rejected(w, 1)
    (dead,) = await records(w)
    assert (dead.key, dead.value, sources([dead])) == (None, None, [0])
    (letter,) = (await w.broker.queues.dead_letters.list(Q)).records
    assert letter.pointer


async def test_the_limit_of_deliveries_leads_there_by_expiry_and_by_release(w: World) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD, delivery_limit=2, lock_ms=1_000, backoff=Backoff(100))
    for _ in range(2):
        got = await receive(w, wait_ms=10_000)
        assert offsets(got) == [0, 1]
        await settle(w, got.records[:1], Verb.RELEASE, delay_ms=0)
        await asyncio.sleep(1.2)
    assert (await receive(w, wait_ms=5_000)).records == ()
    await written(w)
    letters = (await w.broker.queues.dead_letters.list(Q)).records
    causes = {letter.offset: (letter.cause, letter.delivery_count) for letter in letters}
    assert causes == {0: (Cause.LIMIT, 2), 1: (Cause.EXPIRED, 2)}


@pytest.mark.parametrize("gap", ["before the plan", "before the append", "before archived is stored"])
async def test_a_kill_in_any_gap_leaves_one_dead_letter_of_each(
    w: World, gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=40)
    await queue(w, dead_letter=DEAD)
    got = await receive(w, 40)
    broker = w.broker
    if gap == "before the plan":
        monkeypatch.setattr(broker.idempotency, "produce", forever)
    elif gap == "before the append":
        monkeypatch.setattr(broker.idempotency._writer, "append", forever)
    else:
        monkeypatch.setattr(broker.queues._dead, "_archived", forever)
    assert await settle(w, got.records, Verb.REJECT) == [Outcome.SETTLED] * 40
    await asyncio.sleep(5)
    assert sum(one.archiving for one in broker.queues.stats(Q).partitions) == 40
    await w.kill()
    # No receiver comes: the start finishes what was begun.
    await asyncio.sleep(1)
    await written(w)
    assert sorted(sources(await records(w))) == list(range(40))
    assert (await receive(w)).records == ()
    await w.kill()
    await asyncio.sleep(1)
    assert len(await records(w)) == 40


async def test_a_topic_that_takes_nothing_stops_the_queue_and_loses_nothing(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=6)
    await queue(w, dead_letter=DEAD, max_in_flight=3)
    real = w.broker.idempotency.produce

    async def full(*args: Any, **more: Any) -> NoReturn:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")

    monkeypatch.setattr(w.broker.idempotency, "produce", full)
    got = await receive(w)
    await settle(w, got.records, Verb.REJECT)
    await asyncio.sleep(300)
    blocked = await receive(w)
    assert (blocked.records, blocked.blocked) == ((), "in-flight-limit")
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.archiving, stats.start) == (3, 0)
    monkeypatch.setattr(w.broker.idempotency, "produce", real)
    await asyncio.sleep(61)
    assert sources(await records(w)) == [0, 1, 2]
    assert offsets(await receive(w)) == [3, 4, 5]


async def test_a_deleted_dead_letter_topic_is_created_again(w: World) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 1)
    await w.broker.topics.delete("dead")
    await rejected(w, 1)
    assert sources(await records(w)) == [1]
    assert [one.offset for one in (await w.broker.queues.dead_letters.list(Q)).records] == [1]


async def test_a_record_too_large_for_the_dead_letter_topic_becomes_a_pointer(w: World) -> None:
    await w.topic()
    await w.broker.topics.create("dead", configs={"max.message.bytes": "2000"})
    values = [b"x" * 5_000, b"small"]
    await w.broker.records.produce("t", [NewRecord(value=value) for value in values], acks=1)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 2)
    found = {letter.offset: letter for letter in (await w.broker.queues.dead_letters.list(Q)).records}
    assert found[0].pointer and not found[1].pointer


async def test_a_record_that_the_log_has_lost_becomes_a_pointer(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=3)
    await queue(w, dead_letter=DEAD)
    with monkeypatch.context() as patch:
        patch.setattr(w.broker.idempotency, "produce", forever)
        got = await receive(w, 2)
        await settle(w, got.records, Verb.REJECT)
        await w.broker.partitions.delete_records([(TopicPartition("t", 0), 2)])
        await w.kill()
    await asyncio.sleep(1)
    await written(w)
    letters = (await w.broker.queues.dead_letters.list(Q)).records
    assert [(letter.offset, letter.pointer) for letter in letters] == [(0, True), (1, True)]
    assert offsets(await receive(w)) == [2]


async def test_a_cycle_of_dead_letters_is_refused(w: World) -> None:
    await queue(w, "t", name="a", dead_letter=DeadLetter("x"))
    await queue(w, "x", name="b", dead_letter=DeadLetter("y"))
    for topics, dead in ((("y",), "t"), (("y", "z"), "y"), (("x", "q"), "x")):
        with pytest.raises(BrokerError) as refused:
            await queue(w, *topics, name="c", dead_letter=DeadLetter(dead))
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    await queue(w, "y", name="c", dead_letter=DeadLetter("z"))


# --- redrives ------------------------------------------------------------------------------------------------------


async def ended(w: World, task: RedriveTask) -> RedriveTask:
    """Wait for the end of a redrive."""
    while True:
        (found,) = [one for one in w.broker.queues.dead_letters.tasks(Q) if one.id == task.id]
        if found.state != "running":
            return found
        await asyncio.sleep(0.1)


async def test_a_redrive_appends_each_dead_letter_once_to_its_source(w: World) -> None:
    await w.broker.topics.create("t", partitions=2)
    for partition in (0, 1):
        await w.produce(3, partition=partition)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 6)
    letters = w.broker.queues.dead_letters
    dry = await letters.redrive(Q, Redrive(dry_run=True))
    assert (dry.moved, dry.state, list(letters.tasks(Q))) == (6, "done", [])
    done = await ended(w, await letters.redrive(Q, Redrive()))
    assert (done.state, done.moved, done.skipped) == ("done", 6, 0)
    for partition in (0, 1):
        again = (await records(w, "t", partition))[3:]
        assert sorted(record.value or b"" for record in again) == [b"0", b"1", b"2"]
        assert {header(record, REDRIVEN_FROM) for record in again} == {f"t-{partition}@{n}" for n in range(3)}
        assert all(len(record.headers) == 1 for record in again)
    got = await receive(w, 10)
    assert {record.delivery_count for record in got.records} == {1} and len(got.records) == 6
    # A second run finds nothing.
    assert (await ended(w, await letters.redrive(Q, Redrive()))).moved == 0
    assert (await letters.list(Q)).records == []


async def test_a_redrive_takes_what_matches_and_leaves_the_rest(w: World) -> None:
    await w.topic(records=4)
    await w.topic("u", records=1)
    await queue(w, "t", "u", dead_letter=DEAD)
    await rejected(w, 5)
    letters = w.broker.queues.dead_letters
    await w.broker.topics.create("else")
    done = await ended(w, await letters.redrive(Q, Redrive(topic="u", to="else")))
    assert (done.moved, len(await records(w, "else"))) == (1, 1)
    assert [letter.tp.topic for letter in (await letters.list(Q)).records] == ["t"] * 4
    assert (await letters.redrive(Q, Redrive(cause=Cause.LIMIT, dry_run=True))).moved == 0
    assert (await letters.redrive(Q, Redrive(partition=0, dry_run=True))).moved == 4


@pytest.mark.parametrize("kills", [1, 4])
async def test_a_redrive_survives_kills_and_appends_once(w: World, kills: int) -> None:
    await w.topic(records=100)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 100)
    task = await w.broker.queues.dead_letters.redrive(Q, Redrive(rate=10.0))
    for _ in range(kills):
        await asyncio.sleep(1.7)
        await w.kill()
    done = await ended(w, task)
    assert done.state == "done"
    again = [header(record, REDRIVEN_FROM) for record in (await records(w, "t"))[100:]]
    assert sorted(again) == sorted(f"t-0@{n}" for n in range(100))


async def test_a_kill_between_append_and_progress_appends_once(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=10)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 10)
    letters = w.broker.queues.dead_letters
    task = await letters.redrive(Q, Redrive())
    monkeypatch.setattr(letters, "_put", forever)
    while w.broker.partitions.offsets(TopicPartition("t", 0)).log_end_offset < 20:
        await asyncio.sleep(0.1)
    await w.kill()
    assert (await ended(w, task)).state == "done"
    assert len(await records(w, "t")) == 20


async def test_a_redrive_can_be_cancelled_and_continued_by_another(w: World) -> None:
    await w.topic(records=30)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 30)
    letters = w.broker.queues.dead_letters
    task = await letters.redrive(Q, Redrive(rate=5.0))
    with pytest.raises(BrokerError) as refused:
        await letters.redrive(Q, Redrive())
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    await asyncio.sleep(1.5)
    cancelled = await letters.cancel(Q, task.id)
    assert cancelled.state == "cancelled" and 0 < cancelled.moved < 30
    await w.kill()
    letters = w.broker.queues.dead_letters
    assert [one.state for one in letters.tasks(Q)] == ["cancelled"]
    rest = await ended(w, await letters.redrive(Q, Redrive()))
    assert cancelled.moved + rest.moved == 30
    assert len(await records(w, "t")) == 60
    with pytest.raises(BrokerError) as missing:
        await letters.cancel(Q, "none")
    assert missing.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_redrive_into_a_deleted_source_fails_and_creates_nothing(w: World) -> None:
    await w.topic(records=2)
    await queue(w, "t", "u", dead_letter=DEAD)
    await rejected(w, 2)
    await w.broker.topics.delete("t")
    letters = w.broker.queues.dead_letters
    failed = await ended(w, await letters.redrive(Q, Redrive()))
    assert failed.state == "failed" and "t" in failed.error
    with pytest.raises(BrokerError):
        w.broker.topics.get("t")
    assert len((await letters.list(Q)).records) == 2


async def test_a_source_that_is_full_for_a_while_delays_a_redrive(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=3)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 3)
    real, calls = w.broker.idempotency.produce, 0

    async def full_at_first(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < 8:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        return await real(*args, **more)

    monkeypatch.setattr(w.broker.idempotency, "produce", full_at_first)
    done = await ended(w, await w.broker.queues.dead_letters.redrive(Q, Redrive()))
    assert (done.state, done.moved, len(await records(w, "t"))) == ("done", 3, 6)


async def test_purged_dead_letters_are_forgotten_also_after_a_kill(w: World) -> None:
    await w.topic(records=3)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 2)
    await w.broker.queues.dead_letters.purge(Q)
    await w.kill()
    letters = w.broker.queues.dead_letters
    assert (await letters.list(Q)).records == []
    await rejected(w, 1)
    assert [letter.offset for letter in (await letters.list(Q)).records] == [2]


async def test_queues_with_one_dead_letter_topic_see_their_own(w: World) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD)
    await queue(w, name="other", dead_letter=DEAD)
    await rejected(w, 2)
    letters = w.broker.queues.dead_letters
    assert len((await letters.list(Q)).records) == 2
    assert (await letters.list("other")).records == []
    page = await letters.list(Q, limit=1)
    assert len(page.records) == 1 and page.after is not None
    rest = await letters.list(Q, limit=1, after=page.after)
    assert [letter.offset for letter in (*page.records, *rest.records)] == [0, 1]


async def test_a_queue_made_again_has_no_redrives_of_the_one_before(w: World) -> None:
    await w.topic(records=1)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 1)
    letters = w.broker.queues.dead_letters
    await ended(w, await letters.redrive(Q, Redrive()))
    await w.broker.queues.delete(Q, force=True)
    await asyncio.sleep(1)
    await queue(w, dead_letter=DEAD)
    assert not letters.tasks(Q)
    await w.kill()
    assert not w.broker.queues.dead_letters.tasks(Q)


async def test_a_queue_without_a_dead_letter_topic_has_none(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    with pytest.raises(BrokerError) as refused:
        await w.broker.queues.dead_letters.list(Q)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_a_forged_dead_letter_is_not_redriven_to_a_topic_that_the_queue_does_not_read(w: World) -> None:
    """Any producer of the dead-letter topic can name any source."""
    await w.topic()
    for topic in ("secret", "dead"):
        await w.broker.topics.create(topic)
    await queue(w, dead_letter=DEAD)
    values = {"topic": "secret", "partition": "0", "offset": "0", "group": Q, "delivery.count": "1"}
    headers = tuple((f"__dlq.errors.{name}", value.encode()) for name, value in values.items())
    broken = (*headers[:2], ("__dlq.errors.offset", b"x"), *headers[3:])
    forged = [NewRecord(value=b"x", headers=one) for one in (headers, broken)]
    await w.broker.records.produce("dead", forged, acks=1)
    letters = w.broker.queues.dead_letters
    assert (await letters.redrive(Q, Redrive(dry_run=True))).skipped == 1
    done = await ended(w, await letters.redrive(Q, Redrive()))
    assert (done.state, done.moved, done.skipped) == ("done", 0, 1)
    assert await records(w, "secret") == []
