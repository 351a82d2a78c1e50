"""Offsets that transactions stage: which commit wins, what is seen when, and the same after kill -9."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from core.errors import ErrorCode
from core.groups.pending_offsets import PendingOffsets
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest, JoinRequest, SyncRequest, TransactionalCommit
from core.vocabulary.transactions import ProducerIdAndEpoch, TransactionState
from tests.core.consumers.consumer_world import G, World

OK, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SETTINGS = {"group_initial_rebalance_delay_ms": 0}
# Producers.
ONE, TWO, THREE = 1, 2, 3
# A start moves committed offsets back to the end of the log.
RECORDS = 60


@pytest.fixture
async def w(w: World) -> World:
    await w.topic("t", 2, records=RECORDS)
    for number in (ONE, TWO, THREE):
        await w.broker.transactions.init(f"id-{number}", 60_000)
    return w


def producer_of(w: World, number: int) -> ProducerIdAndEpoch:
    return w.broker.transactions.get(f"id-{number}").producer


async def stage(
    w: World,
    offset: int,
    number: int = ONE,
    partition: int = 0,
    group: str = G,
    epoch: int = 0,
    **member: object,
) -> ErrorCode:
    """AddOffsetsToTxn and TxnOffsetCommit of one partition, by the producer of this number."""
    producer = producer_of(w, number)
    await w.broker.transactions.join(f"id-{number}", producer)
    commit = CommitRequest([Commit("t", partition, offset, 3, "note")], **member)  # type: ignore[arg-type]
    (error,) = await w.broker.groups.stage_transactional(
        group, TransactionalCommit(f"id-{number}", producer.producer_id, epoch, commit)
    )
    return error


async def end(w: World, number: int = ONE, *, commit: bool = True) -> None:
    """EndTxn; an abort also without an open transaction."""
    if w.broker.transactions.get(f"id-{number}").state is not TransactionState.ONGOING:
        await w.broker.transactions.join(f"id-{number}", producer_of(w, number))
    await w.broker.transactions.end(f"id-{number}", producer_of(w, number), commit=commit, raises=False)


def pending(w: World, group: str = G) -> PendingOffsets:
    entry = w.broker.groups._registry.get(group)
    assert entry is not None
    return entry.pending


def groups_of(w: World, number: int) -> list[str]:
    return w.broker.groups.groups_of(producer_of(w, number).producer_id)


def unstable(w: World, partition: int = 0) -> bool:
    return w.broker.groups.is_unstable(G, "t", partition)


async def test_a_staged_offset_is_committed_with_its_transaction_and_not_before(w: World) -> None:
    await w.commit(5)
    assert await stage(w, 7) is OK
    assert await stage(w, 8, partition=1) is OK
    for _ in range(2):
        assert w.committed() == {0: 5}
        assert (unstable(w), unstable(w, 1)) == (True, True)
        assert (groups_of(w, ONE), groups_of(w, TWO)) == ([G], [])
        await w.kill()
    staged_ms = next(iter(pending(w))).pending.commit_ms
    await w.commit(6, group="other")
    await end(w)
    for _ in range(2):
        assert w.committed() == {0: 7, 1: 8}
        assert not unstable(w) and not pending(w) and groups_of(w, ONE) == []
        assert w.broker.groups.committed(G, "t", 0) == (7, 3, "note", staged_ms, -1)
        await w.kill()


async def test_an_aborted_transaction_leaves_the_last_committed_offset(w: World) -> None:
    await w.commit(5)
    await stage(w, 7)
    await stage(w, 9, TWO)
    await end(w, commit=False)
    assert unstable(w), "the other transaction is open"
    await end(w, TWO, commit=False)
    for _ in range(2):
        assert w.committed() == {0: 5}
        assert not unstable(w) and not pending(w)
        await w.kill()


@pytest.mark.parametrize("killed", [False, True])
async def test_the_newer_of_a_staged_and_a_plain_commit_wins(w: World, killed: bool) -> None:
    await stage(w, 7)
    await w.commit(5)
    await w.commit(6, partition=1)
    await stage(w, 8, partition=1)
    assert unstable(w), "a plain commit ends no transaction"
    if killed:
        await w.kill()
    await end(w)
    assert w.committed() == {0: 5, 1: 8}
    await w.kill()
    assert w.committed() == {0: 5, 1: 8}


async def test_an_offset_that_is_staged_again_after_a_plain_commit_wins(w: World) -> None:
    await stage(w, 7)
    await w.commit(5)
    await stage(w, 9)
    await end(w)
    assert w.committed() == {0: 9}
    await w.kill()
    assert w.committed() == {0: 9}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("ends", [(ONE, TWO), (TWO, ONE)])
@pytest.mark.parametrize("outcomes", [(True, True), (True, False), (False, True)])
async def test_of_two_transactions_the_one_that_staged_later_wins(
    w: World, ends: tuple[int, int], outcomes: tuple[bool, bool], killed: bool
) -> None:
    await w.commit(5)
    await stage(w, 7, ONE)
    await stage(w, 9, TWO)
    if killed:
        await w.kill()
    for producer in ends:
        await end(w, producer, commit=outcomes[producer - ONE])
        if killed:
            await w.kill()
    expected = 9 if outcomes[1] else 7
    assert w.committed() == {0: expected} and not pending(w)
    await w.kill()
    assert w.committed() == {0: expected}


@pytest.mark.parametrize("first", ["plain", "end"])
async def test_a_commit_on_its_way_to_the_disk_when_the_transaction_ends(w: World, first: str) -> None:
    """Memory and disk agree: the plain commit wins, because it is newer than what was staged."""
    await stage(w, 7)
    works = [w.commit(5), end(w)]
    await asyncio.gather(*(works if first == "plain" else reversed(works)))
    assert w.committed() == {0: 5}
    await w.kill()
    assert w.committed() == {0: 5} and not pending(w)


@pytest.mark.parametrize("first", ["stage", "plain"])
async def test_of_two_commits_on_their_way_to_the_disk_the_later_one_wins(w: World, first: str) -> None:
    works = [stage(w, 7), w.commit(5)]
    await asyncio.gather(*(works if first == "stage" else reversed(works)))
    await end(w)
    expected = {0: 5 if first == "stage" else 7}
    assert w.committed() == expected
    await w.kill()
    assert w.committed() == expected


async def test_an_end_that_memory_learns_late_undoes_no_newer_commit(w: World) -> None:
    await stage(w, 7)
    settlement = w.broker.groups.settle_transaction(*producer_of(w, ONE), True)
    written = w.broker.store.submit(settlement.effects)
    await w.commit(5)
    await stage(w, 11, partition=1)
    await written
    settlement.apply()
    assert w.committed() == {0: 5}
    assert (unstable(w), unstable(w, 1)) == (False, True), "the next transaction of the producer has begun"
    await w.kill()
    assert (w.committed(), unstable(w), unstable(w, 1)) == ({0: 5}, False, True)


async def test_what_was_staged_under_another_epoch_is_dropped(w: World) -> None:
    await stage(w, 7, epoch=3)
    await end(w)
    assert w.committed() == {} and not pending(w)
    await w.kill()
    assert w.committed() == {}


async def test_what_is_deleted_takes_staged_offsets_along(w: World) -> None:
    await w.commit(5)
    await w.commit(5, partition=1)
    await stage(w, 7)
    await stage(w, 8, partition=1)
    assert await w.broker.groups.delete_offsets(G, [("t", 0)]) == [OK]
    assert (unstable(w), unstable(w, 1)) == (False, True)
    await w.kill()
    assert (unstable(w), unstable(w, 1)) == (False, True)
    await w.broker.groups.delete(G)
    await w.commit(1)
    await end(w)
    assert w.committed() == {0: 1}
    await w.kill()
    assert w.committed() == {0: 1} and not pending(w)


@pytest.mark.parametrize("killed", [False, True])
async def test_a_topic_of_the_same_name_gets_nothing_of_the_deleted_one(w: World, killed: bool) -> None:
    await w.commit(5)
    await stage(w, 7)
    await w.broker.topics.delete("t")
    assert not pending(w)
    await w.topic("t", 2, records=RECORDS)
    assert not unstable(w)
    if killed:
        await w.kill()
    await stage(w, 3, TWO, partition=1)
    await end(w)
    await end(w, TWO)
    assert w.committed() == {1: 3}
    await w.kill()
    assert w.committed() == {1: 3}


async def test_an_end_whose_topic_is_being_deleted_commits_nothing(w: World) -> None:
    await stage(w, 7)
    await asyncio.gather(w.broker.topics.delete("t"), end(w))
    await w.topic("t", 2, records=RECORDS)
    assert w.committed() == {}
    await w.kill()
    assert w.committed() == {}


@pytest.mark.settings(offsets_retention_ms=10_000)
async def test_a_staged_offset_keeps_the_committed_one_and_the_group(w: World) -> None:
    await w.commit(5)
    await w.commit(6, partition=1)
    await stage(w, 7)
    await stage(w, 1, TWO, group="new")
    await asyncio.sleep(11)
    await w.broker.groups.expire()
    assert w.committed() == {0: 5}
    assert w.broker.groups.describe("new") is not None
    await end(w, commit=False)
    await end(w, TWO, commit=False)
    await w.broker.groups.expire()
    assert w.broker.groups.describe(G) is w.broker.groups.describe("new") is None


async def member(w: World, member_id: str = "", **more: object) -> tuple[str, int]:
    """Join alone and sync; the id and the generation."""
    request = JoinRequest(member_id, "consumer", (("range", b"\0\0\0\0\0\0\0\0\0\0"),), 10_000, 10_000)
    for name, value in more.items():
        setattr(request, name, value)
    reply = await w.broker.groups.join(G, request)
    assert reply.error is OK
    await w.broker.groups.sync(G, SyncRequest(reply.member_id, reply.generation, [(reply.member_id, b"")]))
    return reply.member_id, reply.generation


async def test_a_commit_of_a_member_is_checked_as_kafka_checks_it(w: World) -> None:
    assert await stage(w, 1, generation=3, member_id="a") is ErrorCode.ILLEGAL_GENERATION
    assert w.broker.groups.describe(G) is None
    name, generation = await member(w)
    assert await stage(w, 1) is OK, "versions below 3 name no member"
    assert await stage(w, 1, generation=generation, member_id=name) is OK
    assert await stage(w, 1, generation=generation + 1, member_id=name) is ErrorCode.ILLEGAL_GENERATION
    assert await stage(w, 1, generation=generation, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    static = {"generation": generation, "member_id": name, "group_instance_id": "i"}
    assert await stage(w, 1, **static) is ErrorCode.UNKNOWN_MEMBER_ID
    w.broker.drain()
    assert await stage(w, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_fenced_static_member_stages_nothing(w: World) -> None:
    old, generation = await member(w, group_instance_id="i")
    new, _ = await member(w, group_instance_id="i")
    assert new != old
    fenced = await stage(w, 1, generation=generation, member_id=old, group_instance_id="i")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    assert await stage(w, 1, generation=generation, member_id=new, group_instance_id="i") is OK


async def test_a_member_that_has_not_synced_yet_stages_and_its_predecessor_does_not(w: World) -> None:
    """Case 26: a rebalance between TxnOffsetCommit and EndTxn."""
    name, generation = await member(w)
    assert await stage(w, 7, generation=generation, member_id=name) is OK
    joining = asyncio.create_task(
        w.broker.groups.join(
            G, JoinRequest("", "consumer", (("range", b"\0\0\0\0\0\0\0\0\0\0"),), 10_000, 10_000)
        )
    )
    again = JoinRequest(name, "consumer", (("range", b"\0\0\0\0\0\0\0\0\0\0"),), 10_000, 10_000)
    rejoined, other = await asyncio.gather(w.broker.groups.join(G, again), joining)
    view = w.broker.groups.describe(G)
    assert view is not None and view.state == "CompletingRebalance"
    assert await stage(w, 8, generation=generation, member_id=name) is ErrorCode.ILLEGAL_GENERATION
    other_id = {"generation": other.generation, "member_id": other.member_id}
    assert await stage(w, 9, TWO, partition=1, **other_id) is OK
    assert rejoined.generation == other.generation and unstable(w)
    await end(w)
    assert (w.committed(), unstable(w), unstable(w, 1)) == ({0: 7}, False, True)


async def test_a_loss_of_power_moves_a_staged_offset_back_to_the_end_of_the_log(w: World) -> None:
    await stage(w, 50)
    await w.kill(cut={TopicPartition("t", 0): 0})
    await end(w)
    assert w.committed() == {0: 0}
    await w.kill()
    assert w.committed() == {0: 0}


async def test_staged_offsets_that_no_transactional_id_can_end_are_dropped_at_a_start(w: World) -> None:
    unknown = TransactionalCommit("id-9", 9_999, 0, CommitRequest([Commit("t", 0, 7)]))
    await w.broker.groups.stage_transactional(G, unknown)
    await stage(w, 8, TWO, partition=1)
    await w.kill()
    assert (unstable(w), unstable(w, 1)) == (False, True)
    await end(w, TWO)
    await w.kill()
    assert w.committed() == {1: 8}


async def test_a_transaction_that_takes_too_long_gives_its_partitions_back(w: World) -> None:
    await w.commit(5)
    await stage(w, 7)
    await asyncio.sleep(61)
    await w.broker.transactions.step()  # type: ignore[union-attr]
    for _ in range(2):
        assert (w.committed(), unstable(w), bool(pending(w))) == ({0: 5}, False, False)
        await w.kill()


async def test_each_commit_has_its_own_error(w: World) -> None:
    commits = [Commit("t", 0, 1), Commit("nope", 0, 1), Commit("t", 2, 1), Commit("t", 1, 1, -1, "x" * 5000)]
    request = TransactionalCommit("id-1", *producer_of(w, ONE), CommitRequest(commits))
    results = await w.broker.groups.stage_transactional(G, request)
    assert results == [OK, UNKNOWN, UNKNOWN, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    await end(w)
    assert w.committed() == {0: 1}


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_commits_and_ends_leaves_the_newest(w: World, seed: int) -> None:
    """Against a model that numbers all commits; memory and disk both agree with it."""
    random = Random(seed)
    committed: dict[int, tuple[int, int]] = {}
    staged: dict[int, dict[int, tuple[int, int]]] = {ONE: {}, TWO: {}, THREE: {}}
    for number in range(RECORDS):
        partition, producer = random.randrange(2), random.choice(list(staged))
        action = random.choice(["stage", "stage", "stage", "plain", "commit", "abort", "delete", "kill"])
        if action == "stage":
            await stage(w, number, producer, partition)
            staged[producer][partition] = (number, number)
        elif action == "plain":
            await w.commit(number, partition)
            committed[partition] = (number, number)
        elif action in ("commit", "abort"):
            await end(w, producer, commit=action == "commit")
            for where, one in staged[producer].items():
                if action == "commit" and one > committed.get(where, (-1, -1)):
                    committed[where] = one
            staged[producer] = {}
        elif action == "delete" and (where := w.broker.groups.describe(G)) is not None:
            await w.broker.groups.delete_offsets(G, [("t", partition)])
            committed.pop(partition, None)
            for one in staged.values():
                one.pop(partition, None)
        elif action == "kill" and number % 4 == 0:
            await w.kill()
        assert w.committed() == {where: offset for where, (offset, _) in committed.items()}, number
        for where in range(2):
            assert unstable(w, where) == any(where in one for one in staged.values()), number
    await w.kill()
    assert w.committed() == {where: offset for where, (offset, _) in committed.items()}
