"""core.consumers.polls: batches until they are acknowledged, waits, seeks, pauses, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import Acknowledged, PartitionCommit, Range, Seek, Subscription
from core.vocabulary.consumers import ConsumerOptions as Options
from tests.core.consumers.consumer_world import G, World, offsets


async def refused(work: Coroutine[Any, Any, Any], code: ErrorCode, reason: str | None = None) -> BrokerError:
    with pytest.raises(BrokerError) as error:
        await work
    assert (error.value.code, error.value.details.get("reason")) == (code, reason)
    return error.value


# --- tokens -----------------------------------------------------------------------------------------------------


async def test_the_same_batch_comes_again_until_it_is_acknowledged(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    first = await w.poll(limit=3)
    assert offsets(first) == {0: [0, 1, 2]} and not first.redelivered
    await w.produce(5)
    for _ in range(2):
        again = await w.poll(limit=1)
        assert (again.token, again.records, again.redelivered) == (first.token, first.records, True)
    assert w.committed() == {}
    second = await w.poll(ack=first.token)
    assert offsets(second) == {0: [3, 4, 5, 6, 7, 8, 9]} and not second.redelivered
    assert w.committed() == {0: 3}


async def test_an_old_token_changes_nothing_so_that_a_lost_answer_loses_nothing(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    first = await w.poll(limit=2)
    second = await w.poll(ack=first.token, limit=2)
    # The answer was lost; the client asks as it did before.
    again = await w.poll(ack=first.token, limit=2)
    assert (again.token, offsets(again), again.redelivered) == (second.token, {0: [2, 3]}, True)
    assert w.committed() == {0: 2}


@pytest.mark.parametrize(
    "token", ["", "x", "1", "{nonce}.0", "{nonce}.2", "{nonce}.-1", "{nonce}.1e3", "{nonce}.²"]
)
async def test_a_token_that_was_never_given_is_refused_and_moves_nothing(w: World, token: str) -> None:
    await w.topic(records=2)
    await w.create()
    first = await w.poll(limit=1)
    assert first.token is not None
    wrong = token.format(nonce=first.token.partition(".")[0])
    await refused(w.poll(ack=wrong), ErrorCode.INVALID_RECORD_STATE, "unknown-token")
    await refused(w.consumers.ack(G, "c", wrong), ErrorCode.INVALID_RECORD_STATE, "unknown-token")
    assert (await w.poll()).token == first.token and w.committed() == {}


async def test_a_token_of_a_consumer_that_was_deleted_means_nothing_to_one_of_its_name(w: World) -> None:
    await w.topic(records=2)
    await w.create()
    old = await w.poll()
    await w.consumers.delete(G, "c")
    await w.create()
    await w.poll()
    await refused(w.poll(ack=old.token), ErrorCode.INVALID_RECORD_STATE, "unknown-token")


async def test_an_ack_without_a_poll_commits_and_can_be_repeated(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create()
    batch = await w.poll()
    done = await w.consumers.ack(G, "c", batch.token)
    assert done == Acknowledged((Range("t", 0, 0, 3), Range("t", 1, 0, 3)), ())
    assert w.committed() == {0: 3, 1: 3}
    assert await w.consumers.ack(G, "c", batch.token) == Acknowledged((), ())
    assert (await w.poll(wait_ms=0)).records == ()


# --- what a batch holds -------------------------------------------------------------------------------------


async def test_one_sweep_takes_from_all_partitions_and_busy_ones_take_turns(w: World) -> None:
    await w.topic(partitions=3, records=10)
    await w.create()
    batch = await w.poll(limit=12)
    assert offsets(batch) == {0: list(range(10)), 1: [0, 1]}
    batch = await w.poll(limit=12, ack=batch.token)
    assert offsets(batch) == {2: list(range(10)), 1: [2, 3]} or offsets(batch) == {
        2: list(range(10)),
        0: [],
    }


async def test_one_record_is_always_delivered_and_bytes_bound_the_rest(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create()
    one = await w.poll(max_bytes=1)
    assert offsets(one) == {0: [0]}
    two = await w.poll(max_bytes=50, ack=one.token)
    assert offsets(two) == {1: [0, 1]}
    assert offsets(await w.poll(ack=two.token)) == {0: [1, 2], 1: [2]}


# --- waiting ------------------------------------------------------------------------------------------------


async def test_the_first_poll_waits_for_the_group_within_its_time(w: World) -> None:
    await w.topic(records=1)
    await w.create()
    early = await w.poll(wait_ms=1000)
    assert (early.records, early.token, early.state) == ((), None, "joining")
    assert (await w.poll(wait_ms=0)).state == "joining"
    started = w.clock.monotonic()
    batch = await w.poll()
    assert offsets(batch) == {0: [0]} and batch.state == "stable"
    assert 1.9 < w.clock.monotonic() - started < 2.1


async def test_a_poll_is_answered_by_the_first_record_or_at_its_deadline(w: World) -> None:
    await w.topic(partitions=3)
    await w.create()
    await w.poll()
    started = w.clock.monotonic()
    assert (await w.poll(wait_ms=20_000)).records == ()
    assert 19.9 < w.clock.monotonic() - started < 20.1
    waiting = asyncio.create_task(w.poll(wait_ms=60_000))
    await asyncio.sleep(5)
    started = w.clock.monotonic()
    await w.produce(1, partition=2)
    assert offsets(await waiting) == {2: [0]}
    assert w.clock.monotonic() - started < 0.1


async def test_min_bytes_are_waited_for_and_the_deadline_gives_what_there_is(w: World) -> None:
    await w.topic(partitions=2, records=1)
    await w.create()
    await w.poll(wait_ms=5_000, limit=1)
    await w.consumers.seek_everywhere(G, "c", "earliest")
    waiting = asyncio.create_task(w.poll(wait_ms=20_000, min_bytes=400))
    await asyncio.sleep(10)
    assert not waiting.done()
    await w.produce(300, partition=1)
    batch = await waiting
    await w.consumers.ack(G, "c", batch.token)
    await w.produce(1)
    started = w.clock.monotonic()
    assert sum(map(len, offsets(await w.poll(wait_ms=20_000, min_bytes=100_000)).values()))
    assert 19.9 < w.clock.monotonic() - started < 20.1


async def test_a_poll_whose_client_has_disconnected_moves_nothing(w: World) -> None:
    await w.topic(records=0)
    await w.create()
    await w.poll(wait_ms=4_000)
    gone = asyncio.create_task(w.poll(wait_ms=60_000))
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await w.produce(2)
    await asyncio.sleep(1)
    assert w.info().token is None and len(w.broker.purgatory) == 0
    assert offsets(await w.poll()) == {0: [0, 1]}


async def test_a_new_poll_takes_the_place_of_one_that_waits(w: World) -> None:
    await w.topic()
    await w.create()
    await w.poll(wait_ms=4_000)
    first = asyncio.create_task(w.poll(wait_ms=60_000))
    await asyncio.sleep(1)
    second = asyncio.create_task(w.poll(wait_ms=60_000))
    await asyncio.sleep(0.1)
    assert first.done() and first.result().records == ()
    await w.produce(1)
    assert offsets(await second) == {0: [0]}


async def test_a_drain_answers_polls_at_once(w: World) -> None:
    await w.topic()
    await w.create()
    await w.poll(wait_ms=4_000)
    joining = asyncio.create_task(w.create("other"))
    waiting = asyncio.create_task(w.poll(wait_ms=300_000))
    await asyncio.sleep(2)
    await joining
    w.broker.drain()
    assert (await waiting).records == ()
    assert (await w.poll(wait_ms=60_000)).records == ()


# --- polls without tokens ------------------------------------------------------------------------------------


async def test_with_advance_each_poll_continues_and_nothing_is_committed(w: World) -> None:
    await w.topic(records=6)
    await w.create()
    assert offsets(await w.poll(limit=2, advance=True)) == {0: [0, 1]}
    assert offsets(await w.poll(limit=2, advance=True)) == {0: [2, 3]}
    assert w.committed() == {}
    assert await w.consumers.commit(G, "c") == [PartitionCommit("t", 0, 4)]
    assert w.committed() == {0: 4}
    assert await w.consumers.commit(G, "c") == []
    assert await w.consumers.commit(G, "c", [PartitionCommit("t", 0, 1, "mine")]) != []
    assert w.committed() == {0: 1}
    (kept,) = w.consumers.committed(G, "c", [Tp("t", 0)])
    assert kept is not None and kept.metadata == "mine"
    assert offsets(await w.poll(limit=9, advance=True)) == {0: [4, 5]}


async def test_what_is_taken_back_is_delivered_again(w: World) -> None:
    await w.topic(records=4)
    await w.create()
    lost = await w.poll(limit=2, advance=True)
    w.consumers.take_back(G, "c", lost.token)
    w.consumers.take_back(G, "nobody", lost.token)
    again = await w.poll(limit=2, advance=True)
    assert offsets(again) == offsets(lost)
    w.consumers.take_back(G, "c", lost.token)
    assert offsets(await w.poll(limit=2, advance=True)) == {0: [2, 3]}


async def test_auto_commit_commits_what_was_delivered_before_each_interval_and_at_the_end(w: World) -> None:
    await w.topic(records=9)
    await w.create(auto_commit=True, auto_commit_interval_ms=5_000)
    await w.poll(limit=2, advance=True)
    await w.poll(limit=2, advance=True)
    assert w.committed() == {}
    await asyncio.sleep(5)
    await w.poll(limit=2, advance=True)
    assert w.committed() == {0: 4}
    await w.consumers.delete(G, "c")
    assert w.committed() == {0: 6}


async def test_an_idle_consumer_with_auto_commit_commits_only_what_a_later_request_proved(w: World) -> None:
    await w.topic(records=9)
    await w.create(auto_commit=True, auto_commit_interval_ms=1_000_000)
    await w.poll(limit=2, advance=True)
    await w.poll(limit=2, advance=True)
    await asyncio.sleep(310)
    assert w.consumers.of_group(G) == [] and w.committed() == {0: 2}


# --- seek, pause, resume -------------------------------------------------------------------------------------


async def test_seek_forgets_the_outstanding_batch_of_its_partitions_and_commits_nothing(w: World) -> None:
    await w.topic(partitions=2, records=4)
    await w.create()
    batch = await w.poll()
    await w.consumers.seek(G, "c", [Seek("t", 0, 2)])
    assert w.committed() == {}
    left = await w.poll()
    assert (left.token, offsets(left)) == (batch.token, {1: [0, 1, 2, 3]})
    assert offsets(await w.poll(ack=batch.token)) == {0: [2, 3]}
    assert w.committed() == {1: 4}


async def test_seek_finds_the_ends_and_to_times(w: World) -> None:
    await w.topic(records=2)
    between = w.clock.wall_ms() + 1
    await asyncio.sleep(1)
    await w.produce(2)
    await w.create()
    await w.consumers.seek_everywhere(G, "c", "latest", wait_ms=10_000)
    assert (await w.poll(wait_ms=0)).records == ()
    await w.consumers.seek(G, "c", [Seek("t", 0, time_ms=between)])
    assert offsets(await w.poll()) == {0: [2, 3]}
    await w.consumers.seek(G, "c", [Seek("t", 0, time_ms=between + 10_000_000)])
    assert (await w.poll(wait_ms=0)).records == ()
    await w.consumers.seek_everywhere(G, "c", "earliest")
    assert offsets(await w.poll()) == {0: [0, 1, 2, 3]}


async def test_seek_wakes_a_poll_that_waits(w: World) -> None:
    await w.topic(records=2)
    await w.create(start="latest")
    await w.poll(wait_ms=4_000)
    waiting = asyncio.create_task(w.poll(wait_ms=60_000))
    await asyncio.sleep(1)
    await w.consumers.seek_everywhere(G, "c", "earliest")
    assert offsets(await asyncio.wait_for(waiting, 1)) == {0: [0, 1]}


async def test_seek_is_all_or_nothing(w: World) -> None:
    await w.topic(records=3)
    await w.create()
    not_yet = w.consumers.seek(G, "c", [Seek("t", 0, 1)], wait_ms=100)
    await refused(not_yet, ErrorCode.INVALID_RECORD_STATE, "not-assigned")
    await refused(w.consumers.seek_everywhere(G, "c"), ErrorCode.INVALID_RECORD_STATE, "not-assigned")
    await w.consumers.seek(G, "c", [Seek("t", 0, 1)], wait_ms=10_000)
    beyond = [Seek("t", 0, 2), Seek("t", 0, 4)]
    error = await refused(w.consumers.seek(G, "c", beyond), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (error.details["offset"], error.details["high_watermark"]) == (4, 3)
    elsewhere = [Seek("t", 0, 2), Seek("t", 7, 0)]
    await refused(w.consumers.seek(G, "c", elsewhere), ErrorCode.INVALID_RECORD_STATE, "not-assigned")
    assert [p.position for p in w.consumers.positions(G, "c")] == [1]


async def test_paused_partitions_deliver_nothing_until_they_are_resumed(w: World) -> None:
    await w.topic(partitions=2, records=2)
    await w.create()
    await w.consumers.pause(G, "c")
    assert (await w.poll(wait_ms=10_000)).records == ()
    await w.consumers.resume(G, "c", [Tp("t", 1)])
    batch = await w.poll()
    assert offsets(batch) == {1: [0, 1]}
    assert [p.paused for p in w.info().partitions] == [True, False]
    waiting = asyncio.create_task(w.poll(ack=batch.token, wait_ms=60_000))
    await asyncio.sleep(1)
    await w.produce(1, partition=0)
    await asyncio.sleep(1)
    assert not waiting.done()
    await w.consumers.resume(G, "c")
    assert offsets(await asyncio.wait_for(waiting, 1)) == {0: [0, 1, 2]}
    waiting = asyncio.create_task(w.poll(ack=w.info().token, wait_ms=60_000))
    await w.consumers.pause(G, "c")
    await asyncio.sleep(1)
    await w.consumers.resume(G, "c")
    await asyncio.sleep(1)
    await w.produce(1, partition=1)
    assert offsets(await asyncio.wait_for(waiting, 1)) == {1: [2]}
    await w.consumers.pause(G, "c", [Tp("t", 0)])
    assert [p.paused for p in w.info().partitions] == [True, False]
    unknown = w.consumers.pause(G, "c", [Tp("t", 9)])
    await refused(unknown, ErrorCode.INVALID_RECORD_STATE, "not-assigned")


# --- consumers that cannot read -----------------------------------------------------------------------------


async def test_a_consumer_that_has_not_subscribed_cannot_poll_or_commit(w: World) -> None:
    await w.consumers.create(G, "c")
    for work in (w.poll(), w.consumers.commit(G, "c"), w.consumers.seek_everywhere(G, "c")):
        await refused(work, ErrorCode.INVALID_RECORD_STATE, "not-subscribed")
    await refused(w.poll("nobody"), ErrorCode.RESOURCE_NOT_FOUND)


async def test_a_consumer_with_partitions_of_its_own_reads_and_commits_without_members(w: World) -> None:
    await w.topic(partitions=2, records=3)
    chosen = Subscription(assignments=(Tp("t", 1),))
    made = await w.consumers.create(G, "c", subscription=chosen, options=Options())
    assert made.state == "assigned" and made.member_id == ""
    batch = await w.poll(wait_ms=0)
    assert offsets(batch) == {1: [0, 1, 2]}
    await w.consumers.ack(G, "c", batch.token)
    assert w.committed() == {1: 3}
    view = w.broker.groups.describe(G)
    assert view is not None and view.members == ()


async def test_its_commit_is_refused_while_the_group_has_members(w: World) -> None:
    await w.topic(records=3)
    chosen = Subscription(assignments=(Tp("t", 0),))
    await w.consumers.create(G, "alone", subscription=chosen)
    batch = await w.poll("alone")
    await w.create("member")
    await w.poll("member")
    await refused(w.consumers.ack(G, "alone", batch.token), ErrorCode.NON_EMPTY_GROUP)
    assert (await w.poll("alone")).token == batch.token
    await refused(w.consumers.create(G, "late", subscription=chosen), ErrorCode.NON_EMPTY_GROUP)
    assert [one.name for one in w.consumers.of_group(G)] == ["alone", "member"]


async def test_a_full_disk_refuses_polls_and_acks_and_nothing_is_lost(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=4)
    await w.create()
    first = await w.poll(limit=2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("core.metadata.store.Store._transaction", full)
        with pytest.raises(BrokerError):
            await w.poll(ack=first.token)
        assert w.committed() == {} and w.info().token == first.token
    second = await w.poll(ack=first.token)
    assert offsets(second) == {0: [2, 3]} and w.committed() == {0: 2}
