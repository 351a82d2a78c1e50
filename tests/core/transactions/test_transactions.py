"""core.transactions.transactions: a broker without listeners, over deaths and failures of its disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.transactions import load_transactions
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.transactions.clustered import ClusterTransactions
from core.transactions.decisions import Decisions
from core.transactions.transactions import Transactions
from core.types import TopicPartition
from core.vocabulary.records import FetchRead
from core.vocabulary.transactions import NO_PRODUCER, ProducerIdAndEpoch, TransactionState

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ONGOING, COMMITTED, ABORTED = (
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


class Client:
    """A producer with a transactional id. `second`: it begins with Produce, and EndTxn raises its epoch (KIP-890)."""

    def __init__(self, broker: Broker, name: str = "x", *, second: bool = True) -> None:
        self.broker = broker
        self.name = name
        self.second = second
        self.producer = NO_PRODUCER
        self.sequences: dict[TopicPartition, int] = {}

    @property
    def transactions(self) -> Transactions | ClusterTransactions:
        return self.broker.transactions

    async def init(self, *, known: bool = False, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
        before = self.producer if known else NO_PRODUCER
        self._became(await self.transactions.init(self.name, timeout_ms, before))
        return self.producer

    async def write(self, tp: TopicPartition, *values: str) -> int:
        """Append one batch to the open transaction, which it opens if need be; return its offset."""
        if not self.second:
            await self.transactions.join(self.name, self.producer, [tp])
        writing = self.transactions.writing(self.name, begins=self.second)
        if new := writing.unregistered([tp]):
            await writing.register(self.producer, new)
        return self.append(tp, *values)

    def append(self, tp: TopicPartition, *values: str) -> int:
        sequence = self.sequences.get(tp, 0)
        batch = build_batch(
            [NewRecord(None, value.encode()) for value in values],
            now_ms=self.broker.clock.wall_ms(),
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        writing = self.transactions.writing(self.name, begins=self.second)
        done = self.broker.partitions.append(tp, memoryview(batch), acks=-1, transaction=writing)
        self.sequences[tp] = sequence + len(values)
        return done.base_offset

    async def end(self, *, commit: bool) -> None:
        self._became(await self.transactions.end(self.name, self.producer, commit=commit, raises=self.second))

    def _became(self, producer: ProducerIdAndEpoch) -> None:
        if producer != self.producer:
            self.sequences = {}
        self.producer = producer


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await start(config, clock)
    yield opened
    await opened.close()


async def start(config: Config, clock: ManualClock) -> Broker:
    broker = Broker(config, clock)
    await broker.open()
    for tp in (A, B):
        await broker.topics.get_or_create(tp.topic)
    return broker


async def die(broker: Broker) -> None:
    """End a broker without what a stop would write."""
    for task in broker._background:
        task.cancel()
    await asyncio.gather(*broker._background, return_exceptions=True)
    await broker.store.close()
    for tp in (A, B):
        broker.partitions.log(tp).abandon()


def stable(broker: Broker, tp: TopicPartition) -> int:
    return broker.partitions.log(tp).last_stable_offset


def aborted(broker: Broker, tp: TopicPartition) -> list[int]:
    """First offsets of the aborted transactions that a reader of all committed records is told."""
    read = FetchRead(tp, 0, 1_000_000, committed=True)
    (found,) = broker.partitions.fetch_now([read], max_bytes=1_000_000).answers
    assert found.read is not None
    return [one.first_offset for one in found.read.aborted or ()]


async def refused(call: object) -> ErrorCode:
    with pytest.raises(BrokerError) as refusal:
        await call  # type: ignore[misc]
    return refusal.value.code


@pytest.mark.parametrize("second", [False, True])
async def test_a_commit_shows_all_partitions_at_once_and_an_abort_none(broker: Broker, second: bool) -> None:
    client = Client(broker, second=second)
    await client.init()
    await client.write(A, "1", "2")
    await client.write(B, "3")
    assert (stable(broker, A), stable(broker, B)) == (0, 0)
    await client.end(commit=True)
    assert (stable(broker, A), stable(broker, B)) == (3, 2)
    await client.write(A, "4")
    await client.end(commit=False)
    assert (stable(broker, A), aborted(broker, A), aborted(broker, B)) == (5, [3], [])
    assert client.transactions.get("x").state is ABORTED


async def test_the_second_kind_raises_the_epoch_and_the_first_does_not(broker: Broker) -> None:
    first, second = Client(broker, "1", second=False), Client(broker, "2")
    for client, epochs in ((first, [0, 0]), (second, [1, 2])):
        await client.init()
        seen = []
        for _ in epochs:
            await client.write(A, "v")
            await client.end(commit=True)
            seen.append(client.producer.producer_epoch)
        assert seen == epochs


async def test_records_outside_of_an_open_transaction_are_refused(broker: Broker) -> None:
    client = Client(broker, second=False)
    await client.init()
    with pytest.raises(BrokerError) as refusal:
        client.append(A, "delayed")
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE
    await client.write(A, "1")
    await client.end(commit=False)
    with pytest.raises(BrokerError):
        client.append(A, "delayed")
    assert broker.partitions.offsets(A).log_end_offset == 2


async def test_a_new_producer_fences_the_one_before_and_aborts_its_transaction(broker: Broker) -> None:
    old, new = Client(broker), Client(broker)
    await old.init()
    await old.write(A, "1")
    await new.init()
    assert new.producer == (old.producer.producer_id, 1)
    assert aborted(broker, A) == [0]
    with pytest.raises(BrokerError) as refusal:
        old.append(A, "2")
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await refused(old.end(commit=True)) is ErrorCode.PRODUCER_FENCED
    await new.write(A, "3")
    await new.end(commit=True)
    assert stable(broker, A) == 4


async def test_many_inits_at_once_leave_one_producer(broker: Broker) -> None:
    clients = [Client(broker) for _ in range(20)]
    epochs = [one.producer_epoch for one in await asyncio.gather(*(client.init() for client in clients))]
    assert sorted(epochs) == list(range(20))
    assert broker.transactions.get("x").producer.producer_epoch == 19


async def test_an_end_is_done_once_however_often_it_is_asked_for(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    asked = client.producer
    ends = [client.transactions.end("x", asked, commit=True, raises=True) for _ in range(5)]
    assert set(await asyncio.gather(*ends)) == {ProducerIdAndEpoch(asked.producer_id, 1)}
    assert broker.partitions.offsets(A).log_end_offset == 2


async def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: Broker, clock: ManualClock) -> None:
    client = Client(broker)
    await client.init(timeout_ms=1_000)
    await client.write(A, "1")
    clock.advance(0.9)
    await client.transactions.step()
    assert client.transactions.get("x").state is ONGOING
    clock.advance(0.2)
    await client.transactions.step()
    assert (aborted(broker, A), stable(broker, A)) == ([0], 2)
    assert await refused(client.end(commit=True)) is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(BrokerError) as refusal:
        client.append(A, "2")
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    # The client recovers (KIP-588).
    assert (await client.init(known=True)).producer_epoch == 1
    await client.write(A, "3")
    await client.end(commit=True)
    assert stable(broker, A) == 4


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_transaction_needs_a_time_that_the_broker_allows(broker: Broker, timeout_ms: int) -> None:
    assert await refused(Client(broker).init(timeout_ms=timeout_ms)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await refused(Client(broker, "").init()) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("second", [False, True])
async def test_an_open_transaction_continues_after_a_start(
    config: Config, clock: ManualClock, second: bool, clean: bool
) -> None:
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    await (broker.close() if clean else die(broker))
    broker = client.broker = await start(config, clock)
    assert client.transactions.get("x").state is ONGOING
    await client.write(A, "3")
    await client.end(commit=True)
    assert (stable(broker, A), stable(broker, B)) == (3, 2)
    await broker.close()


@pytest.mark.parametrize("commit", [False, True])
async def test_a_transaction_without_records_continues_after_a_death(
    config: Config, clock: ManualClock, commit: bool
) -> None:
    broker = await start(config, clock)
    client, idle = Client(broker, second=False), Client(broker, "idle", second=False)
    for one in (client, idle):
        await one.init()
        await one.transactions.join(one.name, one.producer)
    await die(broker)
    broker = client.broker = idle.broker = await start(config, clock)
    client.append(A, "1")
    await client.end(commit=commit)
    await idle.end(commit=commit)
    assert (stable(broker, A), aborted(broker, A)) == (2, [] if commit else [0])
    # From now on the broker knows what is open.
    with pytest.raises(BrokerError):
        client.append(A, "2")
    await broker.close()


async def test_a_decision_without_its_markers_is_carried_out_at_the_next_start(
    config: Config, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start(config, clock)
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    with monkeypatch.context() as dead:
        dead.setattr(Decisions, "_mark", lambda *_: True)
        await client.end(commit=False)
    assert (stable(broker, A), stable(broker, B)) == (0, 0)
    await die(broker)
    broker = client.broker = await start(config, clock)
    assert (aborted(broker, A), aborted(broker, B)) == ([0], [0])
    assert client.transactions.get("x").start_ms > 0
    await client.write(A, "3")
    await client.end(commit=True)
    # An old decision must not end a newer transaction.
    await client.write(A, "4")
    await die(broker)
    broker = client.broker = await start(config, clock)
    assert client.transactions.get("x").state is ONGOING
    await client.end(commit=True)
    assert client.transactions.get("x").start_ms > 0
    assert broker.partitions.offsets(A).log_end_offset == stable(broker, A) == 6
    await broker.close()


async def test_decisions_are_forgotten_once_their_markers_are_on_the_disk(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.end(commit=True)
    _, decisions = await broker.store.read(load_transactions)
    assert len(decisions) == 1
    await broker.checkpoint()
    await client.transactions.step()
    _, decisions = await broker.store.read(load_transactions)
    assert decisions == []


async def test_a_marker_that_a_start_has_found_is_waited_for_as_well(
    config: Config, clock: ManualClock
) -> None:
    """It may be in the page cache alone: without the decision, a loss of power would open the transaction again."""
    broker = await start(config, clock)
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.end(commit=True)
    await die(broker)
    broker = client.broker = await start(config, clock)
    await client.transactions.step()
    _, decisions = await broker.store.read(load_transactions)
    assert len(decisions) == 1
    await broker.checkpoint()
    await client.transactions.step()
    _, decisions = await broker.store.read(load_transactions)
    assert decisions == []
    await broker.close()


@pytest.mark.parametrize("second", [False, True])
async def test_records_are_written_while_offsets_are_staged(broker: Broker, second: bool) -> None:
    client = Client(broker, second=second)
    await client.init()
    await client.write(A, "1")
    stored = asyncio.Event()
    staging = asyncio.ensure_future(
        client.transactions.stage("x", client.producer, stored.wait, begins=second)
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.append(A, "2")
    ending = asyncio.ensure_future(client.end(commit=True))
    await asyncio.sleep(0.01)
    assert not ending.done() and stable(broker, A) == 0
    stored.set()
    await asyncio.gather(staging, ending)
    assert stable(broker, A) == 3


async def test_a_commit_that_the_store_refuses_is_stored_again_until_it_holds(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.transactions.transactions._AGAIN_SECONDS", 0.001)
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    submit, left = broker.store.submit, 3

    def refuse(effects: object, **named: bool) -> asyncio.Future[None]:
        nonlocal left
        left -= 1
        if left < 0:
            return submit(effects, **named)  # type: ignore[arg-type]
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space"))
        return failed

    monkeypatch.setattr(broker.store, "submit", refuse)
    await client.end(commit=True)
    assert (left, stable(broker, A)) == (-1, 2)


async def test_a_disk_that_refuses_the_records_leaves_the_transaction_open(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")

    def refuse(*_: object) -> asyncio.Future[None]:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")

    with monkeypatch.context() as full:
        full.setattr(broker._flusher, "durable", refuse)
        assert await refused(client.end(commit=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (client.transactions.get("x").state, stable(broker, A)) == (ONGOING, 0)
    await client.end(commit=True)
    assert stable(broker, A) == 2


async def test_a_deleted_topic_leaves_the_rest_of_its_transaction(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    await broker.topics.delete("b")
    await broker.topics.get_or_create("b")
    await client.end(commit=True)
    assert (stable(broker, A), stable(broker, B)) == (2, 0)


@pytest.mark.settings(max_transactional_ids=3)
async def test_the_id_that_was_used_least_recently_is_forgotten_but_no_open_one(broker: Broker) -> None:
    clients = [Client(broker, str(i)) for i in range(5)]
    await clients[0].init()
    await clients[0].write(A, "1")
    for client in clients[1:]:
        await client.init()
    assert sorted(one.transactional_id for one in broker.transactions.all()) == ["0", "3", "4"]


@pytest.mark.settings(max_transaction_partitions=1)
async def test_a_transaction_has_a_limit_of_partitions(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    with pytest.raises(BrokerError) as refusal:
        await client.write(B, "2")
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    await client.write(A, "3")
    await client.end(commit=False)
    assert broker.partitions.offsets(B).log_end_offset == 0


@pytest.mark.settings(max_transactional_ids=2)
async def test_a_transaction_is_a_use_of_its_id(broker: Broker) -> None:
    used, idle = Client(broker, "used"), Client(broker, "idle")
    for client in (used, idle):
        await client.init()
    await used.write(A, "1")
    await used.end(commit=True)
    await Client(broker, "new").init()
    assert sorted(one.transactional_id for one in broker.transactions.all()) == ["new", "used"]


async def test_unused_ids_expire(broker: Broker, clock: ManualClock) -> None:
    used, idle = Client(broker, "used"), Client(broker, "idle")
    await idle.init()
    clock.advance(broker.config.transactional_id_expiration_ms / 1000 + 1)
    await used.init()
    await used.transactions.expire()
    assert [one.transactional_id for one in broker.transactions.all()] == ["used"]
    assert await refused(idle.end(commit=True)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_an_open_transaction_of_no_known_id_is_aborted_at_a_start(
    config: Config, clock: ManualClock, tmp_path: Path
) -> None:
    broker = await start(config, clock)
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await die(broker)
    (tmp_path / "metadata.db-wal").unlink(missing_ok=True)
    forgotten = Broker(config, clock)
    await forgotten.open()
    state = [one.transactional_id for one in forgotten.transactions.all()]
    assert (state, stable(forgotten, A)) in ((["x"], 0), ([], 2))
    await forgotten.close()
