"""Transactions in a cluster of brokers: what a reader sees, and what promotions leave of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.config import Endpoint
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.metadata.transactions import load_transactions
from core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from core.protocol.messages.find_coordinator import FindCoordinatorRequest
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.transactions.decisions import Decisions
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest, TransactionalCommit
from core.vocabulary.replicas import METADATA
from core.vocabulary.transactions import TransactionState
from tests.core.listeners.kafka.conftest import Client as Wire
from tests.core.listeners.kafka.test_transactions import INIT, end, init, write
from tests.core.replication.brokers import Brokers, until
from tests.core.transactions.test_transactions import Client

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path, transaction_hold_ms=2_000, transaction_check_interval_ms=20) as brokers:
        await brokers.create("t")
        await brokers.create("u")
        yield brokers


async def begun(brokers: Brokers, *, second: bool = True, timeout_ms: int = 60_000) -> Client:
    """A client with records in both partitions on broker 1."""
    client = Client(brokers[1], second=second)
    await client.init(timeout_ms=timeout_ms)
    await client.write(T, "1", "2")
    await client.write(U, "3")
    return client


async def values(broker: Broker, tp: TopicPartition) -> list[bytes | None]:
    """What a read_committed consumer gets."""
    if broker.partitions.offsets(tp).last_stable_offset == 0:
        return []
    got = await broker.records.read(tp, 0, max_bytes=100_000, max_records=100)
    return [record.value for record in got.records]


async def promote(brokers: Brokers, number: int, *partitions: TopicPartition, unclean: bool = False) -> None:
    """Let a broker lead the metadata and these partitions, by default both."""
    for tp in (METADATA, *(partitions or (T, U))):
        await brokers[number].roles.set(tp, "leader", unclean=unclean)
    await brokers.serving(number)


async def code_of(call: object) -> ErrorCode:
    with pytest.raises(BrokerError) as refusal:
        await call  # type: ignore[misc]
    return refusal.value.code


def stable(broker: Broker, tp: TopicPartition) -> int:
    return broker.partitions.offsets(tp).last_stable_offset


def index(broker: Broker, tp: TopicPartition) -> list[tuple[int, ...]]:
    """What a log has of aborted transactions."""
    log = broker.partitions.log(tp)
    return [tuple(one) for one in log.aborted_between(0, log.offsets.log_end_offset)]


async def decisions(broker: Broker) -> int:
    return len((await broker.store.read(load_transactions))[1])


@pytest.mark.parametrize("second", [False, True])
async def test_an_end_is_visible_at_once_on_the_leader_and_then_on_the_follower(
    two: Brokers, second: bool
) -> None:
    client = await begun(two, second=second)
    assert (stable(two[1], T), stable(two[1], U)) == (0, 0)
    await client.end(commit=True)
    assert (await values(two[1], T), await values(two[1], U)) == ([b"1", b"2"], [b"3"])
    await client.write(T, "4")
    await client.end(commit=False)
    assert await values(two[1], T) == [b"1", b"2"]
    end = two[1].partitions.offsets(T).log_end_offset
    await until(lambda: stable(two[2], T) == stable(two[1], T) == end, "the follower")
    assert index(two[1], T) == index(two[2], T) != []
    await two[1].checkpoint()  # which is what brings markers to the disk
    for _ in range(500):
        if not await decisions(two[1]):
            break
        await asyncio.sleep(0.02)
    assert await decisions(two[1]) == 0, "markers are below the high watermark"


async def test_the_other_broker_sends_clients_to_the_coordinator(two: Brokers) -> None:
    other = two[2].transactions
    assert await code_of(other.init("x", 1_000)) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(BrokerError, match="broker 1 does"):
        other.get("x")
    assert list(other.all()) == []


@pytest.mark.parametrize("second", [False, True])
async def test_a_producer_commits_over_a_promotion_what_it_wrote_before_and_after(
    two: Brokers, second: bool
) -> None:
    client = await begun(two, second=second)
    await promote(two, 2)
    assert await code_of(client.end(commit=True)) is ErrorCode.NOT_COORDINATOR
    client.broker = two[2]
    assert await values(two[2], T) == []
    await client.write(T, "4")
    await client.end(commit=True)
    assert (await values(two[2], T), await values(two[2], U)) == ([b"1", b"2", b"4"], [b"3"])
    await client.write(T, "5")
    await client.end(commit=False)
    assert await values(two[2], T) == [b"1", b"2", b"4"]


async def test_a_promoted_broker_ends_what_no_client_continues(two: Brokers) -> None:
    client = await begun(two, timeout_ms=300)
    await promote(two, 2)
    client.broker = two[2]
    await until(lambda: stable(two[2], T) == 3 and stable(two[2], U) == 2, "the end of the transaction")
    assert (await values(two[2], T), await values(two[2], U)) == ([], [])
    assert await code_of(client.end(commit=True)) is ErrorCode.INVALID_TXN_STATE
    assert await code_of(client.write(T, "late")) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_decision_without_markers_is_carried_out_by_the_promoted_broker(
    two: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await begun(two)
    with monkeypatch.context() as dies:
        dies.setattr(Decisions, "_mark", lambda *_: False)
        before = client.producer
        await client.end(commit=True)
        assert stable(two[1], T) == 0
        await promote(two, 2)
    await until(lambda: stable(two[2], T) == 3 and stable(two[2], U) == 2, "the markers")
    assert (await values(two[2], T), await values(two[2], U)) == ([b"1", b"2"], [b"3"])
    client.broker, client.producer = two[2], before
    await client.end(commit=True)  # its answer was lost: a retry
    assert two[2].transactions.get("x").state is TransactionState.COMPLETE_COMMIT


async def test_a_deposed_coordinator_appends_no_marker(two: Brokers) -> None:
    client = await begun(two)
    old = two[1].transactions._served.coordinator  # type: ignore[union-attr]
    await promote(two, 2, T)  # broker 1 still leads the other partition
    markers = two[1].partitions.offsets(U).log_end_offset
    row = old._decisions.row(old._ids["x"].fence(-1), list(old._ids["x"].parts.items()))
    old._decisions.carry_out(row)
    assert two[1].partitions.offsets(U).log_end_offset == markers
    log = two[2].partitions.log(T)
    client.broker = two[2]
    await two[2].roles.set(U, "leader")
    await client.end(commit=True)
    newest = [one.coordinator_epoch for one in log.active_producers()]
    assert newest == [two[2].metadata.epoch]  # type: ignore[union-attr]
    with pytest.raises(BrokerError) as refusal:
        log.producers.check_marker(client.producer.producer_id, 9, row.coordinator_epoch, bumped=True)
    assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_a_request_that_waits_is_answered_when_its_coordinator_is_deposed(
    two: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await begun(two)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as slow:
        submit = two[1].store.submit
        slow.setattr(
            two[1].store,
            "submit",
            lambda effects, *, local=False: submit(effects, local=True) if local else never,
        )
        ending = asyncio.ensure_future(client.end(commit=True))
        waiting = asyncio.ensure_future(two[1].transactions.init("x", 1_000))
        await until(lambda: len(two[1].transactions._requests) == 2)  # type: ignore[union-attr]
    await promote(two, 2)
    assert await code_of(ending) is ErrorCode.NOT_COORDINATOR
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    client.broker = two[2]
    await client.end(commit=True)
    assert await values(two[2], T) == [b"1", b"2"]


async def test_a_commit_waits_until_its_coordinator_leads_all_of_it(two: Brokers) -> None:
    client = await begun(two)
    await promote(two, 2, T)
    client.broker = two[2]
    assert await code_of(client.end(commit=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await values(two[2], T) == []
    await two[2].roles.set(U, "leader")
    await client.end(commit=True)
    assert (await values(two[2], T), await values(two[2], U)) == ([b"1", b"2"], [b"3"])


@pytest.mark.parametrize("second", [False, True])
async def test_an_abort_reaches_a_partition_once_its_coordinator_leads_it(two: Brokers, second: bool) -> None:
    client = await begun(two, second=second)
    await promote(two, 2, T)
    client.broker = two[2]
    await client.end(commit=False)
    await until(lambda: stable(two[2], T) == 3)
    assert stable(two[1], U) == 0
    await two[2].roles.set(U, "leader")
    # Before any other work of the coordinator: the old end comes first.
    await client.write(U, "new")
    await client.end(commit=True)
    assert (await values(two[2], T), await values(two[2], U)) == ([], [b"new"])


async def test_a_partition_that_another_broker_leads_is_refused_in_words(two: Brokers) -> None:
    await two[2].roles.set(U, "leader")
    client = Client(two[1], second=False)
    await client.init()
    await until(lambda: two[1].roles.leader(U) == 2)
    # It could have been a moment between two promotions.
    assert await code_of(client.write(U, "1")) is ErrorCode.CONCURRENT_TRANSACTIONS
    time_has_passed(two[1])
    assert await code_of(client.write(U, "1")) is ErrorCode.POLICY_VIOLATION
    # A client that asks nothing before it writes meets the leader.
    second = Client(two[2], "x")
    second.producer = client.producer
    assert await code_of(second.write(U, "1")) is ErrorCode.NOT_ENOUGH_REPLICAS
    time_has_passed(two[2])
    with pytest.raises(BrokerError, match="Promote broker 1 for u-0") as refusal:
        await second.write(U, "1")
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    await client.write(T, "1")
    await client.end(commit=True)
    assert await values(two[1], T) == [b"1"]


def time_has_passed(broker: Broker) -> None:
    """Let a broker know for long that the leader of a partition does not coordinate."""
    apart = broker.transactions._apart  # type: ignore[union-attr]
    apart[U] = apart[U]._replace(since=-1_000_000.0)


async def stage(client: Client, offset: int) -> ErrorCode:
    staging = TransactionalCommit(client.name, *client.producer, CommitRequest([Commit("t", 0, offset)]))
    groups = client.broker.groups
    (code,) = await client.transactions.stage(
        client.name, client.producer, lambda: groups.stage_transactional("g", staging), begins=client.second
    )
    return code


@pytest.mark.parametrize("commit", [False, True])
async def test_offsets_that_are_staged_wait_over_a_promotion(two: Brokers, commit: bool) -> None:
    client = Client(two[1])
    await client.init()
    await client.write(T, "1", "2")
    assert await stage(client, 1) is ErrorCode.NONE
    await promote(two, 2)
    groups = two[2].groups
    assert groups.committed("g", "t", 0) is None
    assert groups.is_unstable("g", "t", 0)
    client.broker = two[2]
    await client.end(commit=commit)
    assert not groups.is_unstable("g", "t", 0)
    found = groups.committed("g", "t", 0)
    assert (None if found is None else found.offset) == (1 if commit else None)


async def test_a_part_that_an_unclean_promotion_has_lost_is_told_and_the_rest_is_committed(
    two: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    client = await begun(two)
    await promote(two, 2)
    client.broker = two[2]
    coordinator = two[2].transactions._served.coordinator  # type: ignore[union-attr]
    await until(lambda: coordinator._ids["x"].parts[U].first_offset == 0)
    two[2].partitions.log(U).truncate_to(0)  # as if another log had been promoted
    await client.end(commit=True)
    assert await values(two[2], T) == [b"1", b"2"]
    assert "u-0: the records of producer" in caplog.text
    assert coordinator._decisions.lost == 1


async def test_a_producer_that_names_nothing_writes_and_commits_over_the_kafka_port(two: Brokers) -> None:
    listeners = [KafkaListener(two[number], HANDLERS) for number in (1, 2)]
    for listener in listeners:
        listener.bound(Endpoint("kafka", "127.0.0.1", 9092))
    first, other = map(Wire, listeners)
    await until(lambda: two[2].roles.metadata_leader == 1)
    found = await other.ask(10, 6, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    assert [(one.node_id, one.error_code) for one in found.coordinators] == [(1, 0)]
    assert (
        await other.ask(INIT, 5, InitProducerIdRequest("x", 1_000))
    ).error_code == ErrorCode.NOT_COORDINATOR
    described = await other.ask(65, 0, DescribeTransactionsRequest(["x"]))
    assert described.transaction_states[0].error_code == ErrorCode.NOT_COORDINATOR
    producer = await init(first)
    # Its partition is registered between the request and the append.
    assert await write(first, producer, 13) == 0
    assert await write(first, producer, 12, sequence=1) == 0
    assert await write(first, producer, 11, topic="u") == ErrorCode.INVALID_TXN_STATE
    (row,) = (await two[1].store.read(load_transactions))[0]
    assert [(part.topic, part.partition) for part in row.parts] == [("t", 0)]
    assert (await end(first, producer, 5)).error_code == 0
    assert await values(two[1], T) == [b"v", b"v"]
    assert await write(first, producer, 13) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("partitions", [[T], []])
async def test_an_open_transaction_is_not_aborted_by_a_leader_that_does_not_coordinate(
    two: Brokers, partitions: list[TopicPartition]
) -> None:
    client = await begun(two)
    for tp in partitions:
        await two[2].roles.set(tp, "leader")
    await until(lambda: len(two[2].partitions.log(U).producers.open_transactions()) == 1)
    await two[2].transactions.step()
    assert [len(two[2].partitions.log(tp).producers.open_transactions()) for tp in (T, U)] == [1, 1]
    for tp in partitions:
        await two[1].roles.set(tp, "leader")
    await client.end(commit=True)
    assert (await values(two[1], T), await values(two[1], U)) == ([b"1", b"2"], [b"3"])
