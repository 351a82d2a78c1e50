"""A loss of power takes the end of a log: no group may miss what is written in the place of what it has read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.broker.unclean_start import MAX_LINES
from core.errors import BrokerError, ErrorCode
from core.log.checkpoint import CLEAN_SHUTDOWN
from core.metadata.store import Store
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import Subscription
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.partition import EARLIEST, LATEST
from core.vocabulary.records import FetchRead
from tests.core.consumers.consumer_world import G, World, offsets
from tests.core.idempotency.keyed_writes import RECORDS, assert_once, send

# No fsync but those that a test asks for.
SETTINGS = {"checkpoint_interval_ms": 3_600_000}
T0 = Tp("t", 0)


async def written(w: World, kept: int, lost: int) -> dict[Tp, int]:
    """A topic with records that a loss of power keeps, and some that it takes; the cut for `World.kill`."""
    await w.topic(records=kept)
    size = w.broker.partitions.log(T0).size
    await w.produce(lost)
    return {T0: size}


def code(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        call()
    return refused.value.code


# --- committed offsets -------------------------------------------------------------------------------------------


async def test_committed_offsets_go_back_to_the_end_and_stay_there(w: World) -> None:
    cut = await written(w, 7, 3)
    for group, offset in (("ahead", 10), ("at", 7), ("behind", 4)):
        await w.commit(offset, group=group)
    old = [Commit("t", 0, 9)]
    assert await w.broker.groups.commit("v0", CommitRequest(old, register=True)) == [ErrorCode.NONE]
    # In a second life without a cut, what was moved is on the disk.
    for life in (cut, None):
        await w.kill(life)
        found = {g: w.broker.groups.committed(g, "t", 0) for g in ("ahead", "at", "behind", "v0")}
        assert {g: one.offset for g, one in found.items() if one} == {
            "ahead": 7, "at": 7, "behind": 4, "v0": 7,
        }  # fmt: skip
        register = w.broker.groups.committed("v0", "t", 0, register=True)
        assert register is not None and register.offset == 7
        assert w.broker.counters.positions_cut_back == (3 if life else 0)
    await w.produce(5)
    await w.restart()
    assert w.committed() == {} and (w.broker.groups.committed("ahead", "t", 0) or old[0]).offset == 7


async def test_what_a_commit_says_beside_its_offset_stays(w: World) -> None:
    cut = await written(w, 2, 2)
    await w.broker.groups.commit(G, CommitRequest([Commit("t", 0, 4, 0, "mine", 17)]))
    before = w.broker.groups.committed(G, "t", 0)
    await w.kill(cut)
    assert before is not None
    assert w.broker.groups.committed(G, "t", 0) == before._replace(offset=2)


async def test_a_log_of_which_nothing_is_left_begins_at_0_for_its_groups(w: World) -> None:
    await written(w, 0, 4)
    await w.commit(3)
    await w.kill({T0: 0})
    await w.produce(2)
    assert w.committed() == {0: 0}
    assert w.broker.partitions.info(T0).leader_epoch == 1


async def test_after_a_death_without_a_loss_nothing_moves(w: World) -> None:
    await written(w, 7, 3)
    await w.commit(10)
    await w.create()
    batch = await w.poll()
    await w.kill()
    assert w.committed() == {0: 10} and w.info().token == batch.token
    assert w.broker.counters.positions_cut_back == 0


async def test_twenty_positions_are_named_and_the_others_counted(
    w: World, caplog: pytest.LogCaptureFixture
) -> None:
    cut = await written(w, 1, 2)
    for n in range(MAX_LINES + 10):
        await w.commit(3, group=f"g{n}")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "core.broker.unclean_start"):
        await w.kill(cut)
    lines = [one.getMessage() for one in caplog.records if one.name == "core.broker.unclean_start"]
    assert len(lines) == MAX_LINES + 1
    assert "'g0', t-0: the committed offset was 3; the log ends at 1" in lines[0]
    assert lines[-1].startswith("10 more of 10 groups")


# --- managed consumers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [5, 8], ids=["the batch straddles the end", "the batch lies beyond it"])
async def test_a_managed_consumer_reads_what_comes_in_the_place_of_lost_records(w: World, read: int) -> None:
    cut = await written(w, 7, 3)
    await w.create()
    first = await w.poll(limit=read)
    batch = await w.poll(ack=first.token)
    assert [one[2:] for one in batch.ranges] == [(read, 10)]
    await w.kill(cut)
    await w.produce(6)
    assert [one.position for one in w.info().partitions] == [min(read, 7)]
    done = await w.consumers.ack(G, "c", batch.token)
    assert [one.next_offset for one in done.committed] == ([7] if read < 7 else [])
    assert w.committed() == {0: 7}
    assert offsets(await w.poll()) == {0: [*range(7, 13)]}


async def test_the_position_of_a_consumer_that_chose_its_partitions_decreases_and_is_kept(w: World) -> None:
    cut = await written(w, 7, 3)
    await w.consumers.create(G, "own", subscription=Subscription(assignments=(T0,)))
    assert offsets(await w.poll("own", advance=True)) == {0: [*range(10)]}
    assert not (await w.poll("own", advance=True, wait_ms=1)).records
    await w.kill(cut)
    await w.kill()
    await w.produce(4)
    assert [one.position for one in w.info("own").partitions] == [7]
    assert offsets(await w.poll("own", advance=True)) == {0: [7, 8, 9, 10]}


# --- leader epochs -----------------------------------------------------------------------------------------------


def end_of(w: World, epoch: int) -> tuple[int, int]:
    return w.broker.partitions.end_offset_for_epoch(T0, epoch, w.broker.leader_epochs.current)


async def test_the_leader_epoch_rises_and_tells_where_the_one_before_it_ended(w: World) -> None:
    cut = await written(w, 7, 3)
    fetch = FetchRead(T0, 10, 1000, 0)
    await w.kill(cut)
    (fetched,), _, _, _ = w.broker.partitions.fetch_now([fetch], max_bytes=1000)
    assert fetched.error is not None and fetched.error.code is ErrorCode.FENCED_LEADER_EPOCH
    assert (
        w.broker.partitions.info(T0).leader_epoch
        == w.broker.roles.placed(w.broker.topics.get("t"), 0).leader_epoch
        == 1
    )
    for _ in range(2):
        # Before the first append, and after it.
        assert (end_of(w, 0), end_of(w, 1)[0]) == ((0, 7), 1)
        assert (
            code(lambda: w.broker.partitions.end_offset_for_epoch(T0, 0, 2)) is ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        latest = w.broker.partitions.offset_for_time(T0, LATEST, 1)
        assert (latest.leader_epoch, w.broker.partitions.offset_for_time(T0, EARLIEST).leader_epoch) == (
            1,
            0,
        )
        await w.produce(5)
    assert w.broker.partitions.log(T0).epochs.entries == [(0, 0), (1, 7)]


async def test_an_epoch_in_which_nothing_was_written_ended_where_it_began(w: World) -> None:
    cut = await written(w, 7, 3)
    await w.kill(cut)
    await w.kill()
    await w.kill()
    assert [end_of(w, epoch) for epoch in (0, 1, 2, 3, 4)] == [(0, 7), (0, 7), (0, 7), (3, 7), (-1, -1)]
    await w.produce(2)
    assert [end_of(w, epoch) for epoch in (0, 1, 2, 3)] == [(0, 7), (0, 7), (0, 7), (3, 9)]


async def test_a_clean_restart_leaves_the_epoch_as_it_is(w: World) -> None:
    await w.topic(records=1)
    await w.restart()
    assert w.broker.leader_epochs.current == 0
    await w.kill()
    await w.restart()
    assert w.broker.leader_epochs.current == 1


async def test_the_epoch_of_all_partitions_is_one_write(w: World) -> None:
    await w.broker.topics.create("many", partitions=300)
    await w.produce(1, "many", 299)
    await w.kill()
    # Each migration is a job as well; one for each partition would be 300.
    assert w.broker.counters.committed_jobs < 30
    assert {w.broker.roles.placed(w.broker.topics.get("many"), p).leader_epoch for p in range(300)} == {1}
    assert not list(Path(w.broker.config.data_dir).glob("many-1/leader-epoch-checkpoint"))


async def test_no_epoch_is_below_one_that_a_log_knows(w: World) -> None:
    await w.topic(records=1)
    await w.broker.roles.set(T0, "follower")
    led = await w.broker.roles.set(T0, "leader")
    await w.produce(1)
    await w.restart()
    assert w.broker.roles.placed(w.broker.topics.get("t"), 0).leader_epoch == led.leader_epoch > 0
    await w.kill()
    assert w.broker.leader_epochs.current == led.leader_epoch + 1
    assert (await w.broker.roles.set(T0, "follower")).leader_epoch > led.leader_epoch
    assert (await w.broker.roles.set(T0, "leader")).leader_epoch > led.leader_epoch
    await w.produce(1)


# --- a disk that refuses -----------------------------------------------------------------------------------------


@pytest.mark.settings(checkpoint_interval_ms=30000)
async def test_on_a_full_disk_reads_are_served_and_records_taken_once_all_is_stored(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    submit = Store.submit

    def until_there_is_space(store: Store, effects: Any, *, local: bool = False) -> asyncio.Future[None]:
        if not full:
            return submit(store, effects, local=local)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full."))
        return done

    monkeypatch.setattr(Store, "submit", until_there_is_space)

    cut = await written(w, 7, 3)
    await w.create()
    batch = await w.poll(limit=8)
    batch = await w.poll(ack=batch.token)
    full = True
    await w.kill(cut)
    # No client may receive an epoch that the next start would assign again.
    assert (w.broker.leader_epochs.current, w.broker.partitions.info(T0).offsets.high_watermark) == (0, 7)
    (refused,) = await w.broker.records.produce("t", RECORDS[:1], partition=0, acks=1)
    assert refused.error is not None and refused.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    await w.restart()
    assert not (Path(w.broker.config.data_dir) / CLEAN_SHUTDOWN).exists()
    full = False
    await asyncio.sleep(31)
    assert w.broker.leader_epochs.current == 1
    await w.produce(5)
    await w.restart()
    assert w.committed() == {0: 7} and [one.position for one in w.info().partitions] == [7]
    assert offsets(await w.poll(ack=batch.token)) == {0: [7, 8, 9, 10, 11]}


# --- idempotency keys --------------------------------------------------------------------------------------------


async def test_an_answer_is_stored_once_its_records_are_on_the_disk(w: World) -> None:
    await w.topic()
    never = asyncio.get_running_loop().create_future()
    w.broker.partitions.durable = lambda _, acks: never if acks == -1 else None  # type: ignore[method-assign]
    first = await send(w.broker, acks=1)
    again = await send(w.broker, acks=1)
    assert again.replayed and again.answer == first.answer
    await w.kill({T0: 0})
    w_again = await send(w.broker, acks=1)
    assert not w_again.replayed
    await assert_once(w.broker, w_again)
    await w.restart()
    assert (await send(w.broker, acks=1)).answer == w_again.answer
    await assert_once(w.broker, w_again)


async def test_a_place_beyond_the_end_of_a_log_is_forgotten(w: World) -> None:
    await w.topic(partitions=3)
    durable = w.broker.partitions.durable

    def fails(tp: Tp, acks: int, timeout_ms: int | None = None) -> Any:
        if tp.partition == 2:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no")
        return durable(tp, acks, timeout_ms)

    w.broker.partitions.durable = fails  # type: ignore[method-assign]
    half = await send(w.broker)
    assert half.answer is None and any(one.error is None for one in half.results)
    await w.kill({Tp("t", 0): 0, Tp("t", 2): 0})
    await assert_once(w.broker, await send(w.broker), RECORDS)
