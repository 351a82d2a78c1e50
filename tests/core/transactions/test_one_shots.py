"""A transaction in one request: all or nothing, over refusals, races, failures of the disk, death at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import NewRecord
from core.transactions.decisions import Decisions
from core.transactions.one_shots import OneShots
from core.transactions.transactions import Transactions
from core.types import TopicPartition
from core.vocabulary.idempotency import KEY_IN_USE, KEY_REUSED, KeyedAnswer, KeyedRequest
from core.vocabulary.one_shot import AckToSettle, Committed, OneShot
from core.vocabulary.settlements import NO_OFFSET, OffsetToSettle, RefusedError
from core.vocabulary.transactions import ProducerIdAndEpoch
from tests.core.consumers.consumer_world import G, World, offsets

SETTINGS = {"group_initial_rebalance_delay_ms": 0}
ORDERS, AUDIT = TopicPartition("orders", 0), TopicPartition("audit", 0)
ONE_SHOTS = OneShots()


@pytest.fixture
async def w(w: World) -> World:
    await w.topic("t", records=100)
    for topic in ("orders", "audit"):
        await w.topic(topic)
    return w


def render(done: Committed) -> bytes:
    places = {
        topic: [(one.partition, one.offset) for one in results] for topic, results in done.records.items()
    }
    return repr((places, [list(ranges) for ranges in done.acks])).encode()


def wanted(
    *values: str, offset: int = 5, expected: int = NO_OFFSET, token: str | None = None, **more: Any
) -> OneShot:
    records = {
        "orders": [NewRecord(None, value.encode()) for value in values],
        "audit": [NewRecord(None, values[0].encode())],
    }
    return OneShot(
        more.get("records", records),
        [] if token else [OffsetToSettle(G, "t", 0, offset, expected)],
        [AckToSettle(G, "c", token)] if token else [],
    )


def key(name: str = "k", body: str = "1") -> KeyedRequest:
    return KeyedRequest("transactions", name, body.encode().ljust(32))


async def commit(w: World, shot: OneShot, request: KeyedRequest | None = None) -> KeyedAnswer:
    broker: Facade = w.broker
    return await ONE_SHOTS.commit(broker, shot, render, request)


async def read(w: World, tp: TopicPartition) -> list[str]:
    """The values that a reader of committed records finds."""
    found, offset = [], 0
    while True:
        result = await w.broker.records.read(tp, offset, max_bytes=1_000_000, max_records=100)
        if result.next_offset == offset:
            return found
        found += [(record.value or b"").decode() for record in result.records]
        offset = result.next_offset


async def state(w: World) -> tuple[list[str], list[str], int | None]:
    return await read(w, ORDERS), await read(w, AUDIT), w.committed().get(0)


def ends(w: World) -> list[int]:
    return [w.broker.partitions.offsets(tp).log_end_offset for tp in (ORDERS, AUDIT)]


async def faults(work: Any) -> list[tuple[tuple[str | int, ...], ErrorCode]]:
    with pytest.raises(RefusedError) as refusal:
        await work
    return [(one.path, one.error.code) for one in refusal.value.faults]


NOTHING: Any = ([], [], None)


async def test_records_and_offsets_become_visible_in_one_turn(w: World) -> None:
    committing = asyncio.ensure_future(commit(w, wanted("a", "b")))
    seen = set()
    while not committing.done():
        stable = tuple(w.broker.partitions.offsets(tp).last_stable_offset for tp in (ORDERS, AUDIT))
        seen.add((*stable, w.committed().get(0)))
        await asyncio.sleep(0)
    assert seen <= {(0, 0, None), (3, 2, 5)}, "never a part of it"
    assert committing.result().answer == b"({'orders': [(0, 0), (0, 1)], 'audit': [(0, 0)]}, [])"
    assert await state(w) == (["a", "b"], ["a"], 5)
    await w.kill()
    assert await state(w) == (["a", "b"], ["a"], 5)


async def test_a_batch_is_acknowledged_with_its_output(w: World) -> None:
    await w.create()
    batch = await w.poll(limit=3)
    answer = await commit(w, wanted("a", token=batch.token))
    assert answer.answer is not None and b"next_offset=3" in answer.answer
    assert await state(w) == (["a"], ["a"], 3)
    assert offsets(await w.poll(limit=3)) == {0: [3, 4, 5]}
    again = commit(w, wanted("a", token=batch.token))
    assert await faults(again) == [(("acks", 0), ErrorCode.INVALID_RECORD_STATE)]


async def test_without_records_offsets_and_acknowledgements_move_together(w: World) -> None:
    await w.create()
    batch = await w.poll(limit=3)
    shot = OneShot({}, [OffsetToSettle("other", "t", 0, 7)], [AckToSettle(G, "c", batch.token or "")])
    await commit(w, shot)
    found = w.broker.groups.committed("other", "t", 0)
    assert found is not None and (found.offset, w.committed()) == (7, {0: 3})


async def test_a_refusal_names_everything_and_leaves_nothing_in_the_logs(w: World) -> None:
    await w.broker.topics.create("by-key", configs={"cleanup.policy": "compact"})
    await w.broker.topics.alter_configs("orders", {"max.message.bytes": "200"})
    await w.commit(4)
    records = {
        "orders": [NewRecord(None, b"1"), NewRecord(None, b"x" * 500), NewRecord(None, b"2", partition=9)],
        "by-key": [NewRecord(b"k", b"1"), NewRecord(None, b"2"), NewRecord(b"k", b"3")],
        "no/name": [NewRecord(None, b"1")],
        "audit": [NewRecord(None, b"fine")],
    }
    shot = OneShot(records, [OffsetToSettle(G, "t", 0, 9, 3)], [AckToSettle(G, "none", "x.1")])
    found = await faults(commit(w, shot))
    assert dict(found) == {
        ("records", "orders", 1): ErrorCode.MESSAGE_TOO_LARGE,
        ("records", "orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("records", "by-key", 1): ErrorCode.INVALID_RECORD,
        ("records", "no/name"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("offsets", 0): ErrorCode.INVALID_UPDATE_VERSION,
        ("acks", 0): ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert ends(w) == [0, 0]


async def test_an_offset_that_an_acknowledgement_commits_too_is_refused(w: World) -> None:
    await w.create()
    token = (await w.poll(limit=3)).token or ""
    shot = OneShot({}, [OffsetToSettle(G, "t", 0, 7)], [AckToSettle(G, "c", token)])
    assert (("offsets", 0), ErrorCode.INVALID_RECORD) in await faults(commit(w, shot))
    assert (await w.poll()).token == token


async def test_of_two_that_race_one_commits_and_the_other_leaves_nothing_to_readers(w: World) -> None:
    racing = [commit(w, wanted(name, offset=number)) for number, name in enumerate("ab", 1)]
    first, second = await asyncio.gather(*racing, return_exceptions=True)
    assert isinstance(first, KeyedAnswer) and isinstance(second, RefusedError)
    assert second.faults[0].error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(RefusedError) as again:
        await commit(w, wanted("b", offset=2))
    assert again.value.faults[0].error.details["actual"] == 1
    assert await state(w) == (["a"], ["a"], 1)
    # Reads are not held up by what was refused.
    await commit(w, wanted("c", offset=2, expected=1))
    assert await state(w) == (["a", "c"], ["a", "c"], 2)
    await w.kill()
    assert await state(w) == (["a", "c"], ["a", "c"], 2)


async def test_a_large_request_is_cut_into_batches_below_the_limit(w: World) -> None:
    await w.broker.topics.alter_configs("orders", {"max.message.bytes": "300"})
    values = [f"{number:050d}" for number in range(20)]
    await commit(w, wanted(*values))
    assert await read(w, ORDERS) == values


async def test_producers_are_used_again_and_leave_no_transactional_id(w: World) -> None:
    transactions = w.broker.transactions
    assert isinstance(transactions, Transactions)
    for number in range(3):
        await commit(w, wanted(str(number), offset=number, expected=number - 1))
    one = await transactions.begin_own()
    assert one.producer.producer_epoch == 3 and not transactions.all()
    one.abandon()
    again = await transactions.begin_own()
    assert again.producer == one.producer
    again.abandon()
    assert [p.producer_id for p in w.broker.partitions.active_producers(ORDERS)] == [one.producer.producer_id]


async def test_what_a_request_writes_no_operator_can_abort(w: World) -> None:
    transactions = w.broker.transactions
    committing = asyncio.ensure_future(commit(w, wanted("a")))
    while not ends(w)[0]:
        await asyncio.sleep(0)
    (producer,) = w.broker.partitions.active_producers(ORDERS)
    with pytest.raises(BrokerError) as refusal:
        await transactions.abort(ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch), ORDERS)
    assert refusal.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    await committing
    assert await read(w, ORDERS) == ["a"]


async def test_a_disk_that_refuses_the_second_append_leaves_nothing(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = w.broker.partitions.append

    def refuse(tp: TopicPartition, *arguments: Any, **more: Any) -> Any:
        if tp == AUDIT:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        return append(tp, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(w.broker.partitions, "append", refuse)
        with pytest.raises(BrokerError) as refusal:
            await commit(w, wanted("a"), key())
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR and await state(w) == NOTHING
    # Under the same key it is tried again.
    assert not (await commit(w, wanted("b"), key())).replayed
    assert await state(w) == (["b"], ["b"], 5)


async def test_a_disk_that_refuses_the_records_is_named(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk has failed.")

    with monkeypatch.context() as patched:
        patched.setattr(w.broker._flusher, "durable", refuse)
        with pytest.raises(BrokerError) as refusal:
            await commit(w, wanted("a"))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await commit(w, wanted("b"))
    assert await state(w) == (["b"], ["b"], 5)


async def test_a_store_that_refuses_is_waited_for_and_the_request_is_answered(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(w, OneShot({"orders": [NewRecord(None, b"before")]}))
    submit, broken = w.broker.store.submit, [True]

    def sometimes(*arguments: Any, **more: Any) -> Any:
        if broken[0]:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
        return submit(*arguments, **more)

    monkeypatch.setattr(w.broker.store, "submit", sometimes)
    with pytest.raises(BrokerError) as late:
        await commit(w, wanted("a"), key())
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(BrokerError) as running:
        await commit(w, wanted("a"), key())
    assert running.value.details["reason"] == KEY_IN_USE
    assert await state(w) == (["before"], [], None)
    broken[0] = False
    while not w.committed():
        await asyncio.sleep(1)
    assert (await commit(w, wanted("a"), key())).replayed
    assert await state(w) == (["before", "a"], ["a"], 5)


async def test_a_client_that_disconnects_stops_nothing(w: World) -> None:
    committing = asyncio.ensure_future(commit(w, wanted("a")))
    while not ends(w)[0]:
        await asyncio.sleep(0)
    committing.cancel()
    while not w.committed():
        await asyncio.sleep(0.1)
    assert await state(w) == (["a"], ["a"], 5)


async def test_a_key_is_answered_once_and_belongs_to_one_request(w: World) -> None:
    first = await commit(w, wanted("a"), key())
    again = await commit(w, wanted("a"), key())
    assert (again.answer, again.replayed, first.replayed) == (first.answer, True, False)
    with pytest.raises(BrokerError) as reused:
        await commit(w, wanted("a"), key(body="2"))
    assert reused.value.details["reason"] == KEY_REUSED
    await w.restart()
    assert (await commit(w, wanted("a"), key())).answer == first.answer
    assert await state(w) == (["a"], ["a"], 5)


# Where a request is when the process dies, in their order.
STEPS: list[Callable[[World, list[int]], bool]] = [
    lambda w, before: True,
    lambda w, before: ends(w) != before,
    lambda w, before: w.broker.groups.is_unstable(G, "t", 0),
    lambda w, before: sum(ends(w)) > sum(before) + 2,
]


async def test_death_at_each_step_leaves_all_or_nothing_and_the_retry_gets_one_answer(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for number, reached in enumerate([*STEPS, None]):
        request, shot = key(f"k{number}"), wanted(f"v{number}", offset=number + 1, expected=number or -1)
        before = ends(w)
        committing = asyncio.ensure_future(commit(w, shot, request))
        while not (committing.done() if reached is None else reached(w, before)):
            await asyncio.sleep(0)
        if number < 2:
            # Nothing reaches the store any more, however long the dying process runs.
            monkeypatch.setattr(w.broker.store, "submit", lambda *effects, **more: asyncio.Future())
        await w.kill()
        committing.cancel()
        orders, audit, committed = await state(w)
        decided = len(orders) > number
        assert orders == audit and committed == (number + 1 if decided else number or None)
        answer = await commit(w, shot, request)
        assert answer.replayed == decided, "the answer is stored if and only if it was decided"
        outcomes.append(decided)
        values = [f"v{n}" for n in range(number + 1)]
        assert await state(w) == (values, values, number + 1)
    assert outcomes == [False, False, True, True, True]


async def test_death_between_decision_and_markers_is_healed_by_the_start(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decisions, "_mark", lambda *_: False)
    first = await commit(w, wanted("a"), key())
    assert w.committed() == {0: 5} and await read(w, ORDERS) == []
    monkeypatch.undo()
    await w.kill()
    assert await state(w) == (["a"], ["a"], 5)
    assert (await commit(w, wanted("a"), key())).answer == first.answer
