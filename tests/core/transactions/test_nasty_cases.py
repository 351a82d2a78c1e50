"""Cases in which transactions can be torn, lost or undone, as docs/proof/transactions.md names them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.metadata.transactions import TransactionalIdRow, put_transactional_id
from core.types import TopicPartition
from core.vocabulary.transactions import MAX_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from tests.core.transactions.test_transaction import EMPTY, SECOND_KIND
from tests.core.transactions.test_transactions import (
    ABORTED,
    COMMITTED,
    ONGOING,
    A,
    B,
    Client,
    aborted,
    die,
    refused,
    stable,
    start,
)

KINDS = pytest.mark.parametrize("second", [False, True], ids=["first kind", "second kind"])


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await start(config, clock)
    yield opened
    await opened.close()


async def values(broker: Broker, tp: TopicPartition = A, *, start: int = 0) -> list[bytes | None]:
    """What readers of committed records see from an offset on."""
    found: list[bytes | None] = []
    while start < stable(broker, tp):
        got = await broker.records.read(tp, start, max_bytes=100_000, max_records=100)
        found += [record.value for record in got.records]
        start = got.next_offset
    return found


@contextmanager
def no_markers(monkeypatch: pytest.MonkeyPatch, topic: str) -> Iterator[None]:
    """A disk that has no space for the markers of a topic, and only for those."""
    append = Log.append_marker

    def full(log: Log, *arguments: object, **named: object) -> object:
        if log.tp.topic == topic:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        return append(log, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append_marker", full)
        yield


@contextmanager
def no_store(broker: Broker) -> Iterator[None]:
    """A database that refuses every commit."""
    submit = broker.store.submit

    def refuse(effects: object, **named: bool) -> asyncio.Future[None]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space"))
        return failed

    broker.store.submit = refuse  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        broker.store.submit = submit  # type: ignore[method-assign]


async def at_epoch(client: Client, epoch: int) -> Broker:
    """Take a client to an epoch that needs thousands of transactions; return the broker, started again."""
    client.producer = client.producer._replace(producer_epoch=epoch)
    row = TransactionalIdRow(client.name, *client.producer, *NO_PRODUCER, 60_000, 0, 0, [])
    await client.broker.store.submit([put_transactional_id(row)])
    config, clock = client.broker.config, client.broker.clock
    await die(client.broker)
    assert isinstance(clock, ManualClock)
    client.broker = await start(config, clock)
    return client.broker


# --- timeouts --------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("commit", [False, True])
async def test_a_timeout_does_not_undo_an_end_that_came_first(
    broker: Broker, clock: ManualClock, second: bool, commit: bool
) -> None:
    """Many time out in one step, and one of them ends while the step waits for another."""
    others = [Client(broker, f"other{i}") for i in range(3)]
    client = Client(broker, second=second)
    for one in (*others, client):
        await one.init(timeout_ms=1_000)
        await one.write(A, one.name)
    clock.advance(1.1)
    await asyncio.gather(client.transactions.step(), client.end(commit=commit))
    found = client.transactions.get("x")
    assert (found.state, found.producer) == (COMMITTED if commit else ABORTED, client.producer)
    assert await values(broker) == ([b"x"] if commit else [])
    await client.write(A, "next")
    await client.end(commit=True)
    assert (await values(broker))[-1] == b"next"


# --- markers that find no space --------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("commit", [False, True])
async def test_the_next_transaction_waits_for_a_marker_that_had_no_space(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, second: bool, commit: bool
) -> None:
    client = Client(broker, second=second)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    with no_markers(monkeypatch, "a"):
        await client.end(commit=commit)
        assert (stable(broker, A), stable(broker, B)) == (0, 2)
        with pytest.raises(BrokerError) as refusal:
            await client.write(A, "3")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await client.write(A, "3")
    await client.write(B, "4")
    assert await values(broker) == ([b"1"] if commit else [])
    await client.end(commit=not commit)
    assert await values(broker) == ([b"1"] if commit else [b"3"])
    assert await values(broker, B) == ([b"2"] if commit else [b"4"])


@KINDS
async def test_a_start_without_space_for_markers_reopens_nothing_that_is_decided(
    config: Config, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init(timeout_ms=1_000)
    await client.write(A, "1")
    await client.write(B, "2")
    with no_markers(monkeypatch, "a"):
        await client.end(commit=True)
        await die(broker)
        broker = client.broker = await start(config, clock)
        assert (stable(broker, A), stable(broker, B)) == (0, 2)
        assert client.transactions.get("x").state is COMMITTED
        clock.advance(2)
        await client.transactions.step()
    await client.transactions.step()
    assert await values(broker) == [b"1"]
    assert (client.transactions.get("x").state, aborted(broker, A)) == (COMMITTED, [])
    await client.write(A, "3")
    await client.end(commit=True)
    assert await values(broker) == [b"1", b"3"]
    await broker.close()


# --- stops -----------------------------------------------------------------------------------------------


@pytest.mark.settings(drain_timeout_ms=20)
@KINDS
@pytest.mark.parametrize("commit", [False, True])
async def test_a_stop_while_an_end_cannot_be_stored_leaves_the_transaction_open(
    config: Config, clock: ManualClock, second: bool, commit: bool
) -> None:
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    with no_store(broker):
        ending = asyncio.ensure_future(client.end(commit=commit))
        await asyncio.sleep(0.01)
        assert not ending.done()
        await broker.close()
    ending.cancel()
    broker = client.broker = await start(config, clock)
    assert client.transactions.get("x").state is ONGOING
    await client.end(commit=commit)
    assert await values(broker) == ([b"1"] if commit else [])
    assert await values(broker, B) == ([b"2"] if commit else [])
    await broker.close()


@KINDS
async def test_open_transactions_outlive_a_stop_that_is_longer_than_their_time(
    config: Config, clock: ManualClock, second: bool
) -> None:
    """Their time begins again with the start, and ends although no log is open; the wall clock does not count."""
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init(timeout_ms=1_000)
    await client.write(A, "1")
    await broker.close()
    clock.advance(3_600)
    broker = client.broker = await start(config, clock)
    assert (client.transactions.get("x").state, broker.logs.open_count) == (ONGOING, 0)
    for day in (86_400, -2 * 86_400):
        clock.jump_wall(day)
        await client.transactions.step()
    assert client.transactions.get("x").state is ONGOING
    clock.advance(1.1)
    await client.transactions.step()
    assert (client.transactions.get("x").state, await values(broker), stable(broker, A)) == (ABORTED, [], 2)
    await broker.close()


# --- a death at each effect of an end --------------------------------------------------------------------


class DeadError(BaseException):
    """The process ends here."""


def _die_at(effect: str, patched: pytest.MonkeyPatch, broker: Broker) -> None:
    """Let the process end before or after one effect of the end of a transaction in the partitions A and B."""
    append, submit, marked = Log.append_marker, broker.store.submit, 0

    def marker(log: Log, *arguments: object, **named: object) -> object:
        nonlocal marked
        if effect == f"before marker {marked}":
            raise DeadError
        marked += 1
        done = append(log, *arguments, **named)  # type: ignore[arg-type]
        if effect == "after the last marker" and marked == 2:
            raise DeadError
        return done

    def store(effects: object, **named: bool) -> object:
        if effect == "before the decision":
            raise DeadError
        return submit(effects, **named)  # type: ignore[arg-type]

    patched.setattr(Log, "append_marker", marker)
    patched.setattr(broker.store, "submit", store)


EFFECTS = ("before the decision", "before marker 0", "before marker 1", "after the last marker")


@pytest.mark.parametrize("second, epoch", [(False, 0), (True, 0), (True, MAX_EPOCH)])
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_an_end_that_is_asked_for_again_after_a_death_is_done_once(
    config: Config,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    effect: str,
    epoch: int,
    commit: bool,
    second: bool,
) -> None:
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init()
    if epoch:
        broker = await at_epoch(client, epoch)
    await client.write(A, "1")
    await client.write(B, "2")
    before = client.producer
    with monkeypatch.context() as patched:
        _die_at(effect, patched, broker)
        with pytest.raises(DeadError):
            await client.end(commit=commit)
    await die(broker)
    broker = client.broker = await start(config, clock)
    decided = effect != "before the decision"
    assert (await values(broker), await values(broker, B)) == (
        ([b"1"], [b"2"]) if decided and commit else ([], [])
    )
    assert (client.transactions.get("x").state is ONGOING) is not decided
    for _ in range(2):
        # The same request each time: the client does not know that it was done.
        client.producer = before
        await client.end(commit=commit)
    if not second:
        assert client.producer == before
    elif epoch < MAX_EPOCH:
        assert client.producer == (before.producer_id, epoch + 1)
    else:
        assert client.producer.producer_id != before.producer_id and client.producer.producer_epoch == 0
    assert (await values(broker), await values(broker, B)) == (([b"1"], [b"2"]) if commit else ([], []))
    assert [broker.partitions.offsets(tp).log_end_offset for tp in (A, B)] == [2, 2]
    await client.write(A, "3")
    await client.end(commit=True)
    assert (await values(broker))[-1] == b"3"
    await broker.close()


# --- what comes late -------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_record_that_comes_after_the_timeout_opens_nothing(
    config: Config, clock: ManualClock, restarted: bool, second: bool
) -> None:
    """Also when the logs have forgotten the producer."""
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init(timeout_ms=1_000)
    await client.write(A, "1")
    clock.advance(1.1)
    await client.transactions.step()
    if restarted:
        await die(broker)
        broker = client.broker = await start(config, clock)
    broker.partitions.log(A).producers.expire(2**62)
    for tp in (A, B):
        with pytest.raises(BrokerError) as refusal:
            client.append(tp, "late")
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (stable(broker, A), broker.partitions.offsets(B).log_end_offset) == (2, 0)
    await broker.close()


@pytest.mark.parametrize("commit", [False, True])
async def test_a_marker_that_power_took_does_not_end_the_next_transaction(
    config: Config, clock: ManualClock, commit: bool
) -> None:
    """The first kind keeps its epoch: the decision finds its own transaction by the first offset alone."""
    broker = await start(config, clock)
    client = Client(broker, second=False)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "2")
    size = broker.partitions.log(B).size
    await client.end(commit=commit)
    await client.write(A, "3")
    path = Path(broker.config.data_dir) / "b-0" / f"{0:020d}.log"
    await die(broker)
    os.truncate(path, size)
    broker = client.broker = await start(config, clock)
    assert (await values(broker), await values(broker, B)) == (([b"1"], [b"2"]) if commit else ([], []))
    assert (client.transactions.get("x").state, stable(broker, A)) == (ONGOING, 2)
    await client.end(commit=not commit)
    assert (await values(broker), await values(broker, B)) == (([b"1"], [b"2"]) if commit else ([b"3"], []))
    await broker.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "cell", range(len(SECOND_KIND)), ids=lambda i: f"{SECOND_KIND[i][0].name}-{SECOND_KIND[i][1]}"
)
async def test_the_table_of_ends_over_a_start(
    config: Config, clock: ManualClock, cell: int, restarted: bool
) -> None:
    state, commit, before, current = SECOND_KIND[cell]
    broker = await start(config, clock)
    for asked, expected in ((True, before), (False, current)):
        client = Client(broker, f"retry {asked}")
        await client.init()
        old = client.producer
        await client.init(known=True)
        if state is not EMPTY:
            old = client.producer
            await client.write(A, "1")
        if state is ONGOING:
            old = old._replace(producer_epoch=old.producer_epoch - 1)
        elif state is not EMPTY:
            await client.end(commit=state is COMMITTED)
        if restarted:
            await die(broker)
            broker = client.broker = await start(config, clock)
        now = client.producer
        client.producer = old if asked else now
        if isinstance(expected, ErrorCode):
            assert await refused(client.end(commit=commit)) is expected
        else:
            await client.end(commit=commit)
            raised = now._replace(producer_epoch=now.producer_epoch + 1)
            assert client.producer == (now if expected == "retry" else raised)
    await broker.close()


# --- epochs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_epoch_that_is_used_up_is_followed_by_a_new_producer(
    config: Config, clock: ManualClock, restarted: bool
) -> None:
    client = Client(await start(config, clock))
    await client.init()
    broker = await at_epoch(client, MAX_EPOCH - 1)
    seen = [client.producer]
    for number in range(3):
        await client.write(A, str(number))
        await client.end(commit=True)
        if restarted:
            await die(broker)
            broker = client.broker = await start(config, clock)
        for _ in range(2):
            after, client.producer = client.producer, seen[-1]
            await client.end(commit=True)
            assert client.producer == after
        seen.append(client.producer)
    old = seen[0].producer_id
    assert seen[:2] == [(old, MAX_EPOCH - 1), (old, MAX_EPOCH)]
    assert [one.producer_epoch for one in seen[2:]] == [0, 1] and seen[2].producer_id != old
    assert await values(broker) == [b"0", b"1", b"2"]
    for late in (MAX_EPOCH, MAX_EPOCH + 1):
        client.producer = ProducerIdAndEpoch(old, late)
        with pytest.raises(BrokerError) as refusal:
            client.append(A, "late")
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await broker.close()


# --- topics and records that disappear -------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("commit", [False, True])
async def test_a_topic_that_is_deleted_and_made_again_has_a_part_of_its_own(
    config: Config, clock: ManualClock, commit: bool, second: bool
) -> None:
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init()
    for tp in (A, B):
        await client.write(tp, "old")
    await broker.topics.delete("b")
    await broker.topics.get_or_create("b")
    client.sequences.pop(B)
    assert broker.partitions.offsets(B).log_end_offset == 0
    await client.write(B, "new")
    await die(broker)
    broker = client.broker = await start(config, clock)
    await client.end(commit=commit)
    assert (await values(broker), await values(broker, B)) == (([b"old"], [b"new"]) if commit else ([], []))
    assert (stable(broker, A), stable(broker, B)) == (2, 2)
    await broker.close()


@KINDS
@pytest.mark.parametrize("decided", [False, True])
async def test_records_that_are_deleted_from_an_open_transaction_leave_the_rest(
    config: Config,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    decided: bool,
    second: bool,
) -> None:
    """The log begins within the transaction; then the process dies, before the end or before its markers."""
    broker = await start(config, clock)
    client = Client(broker, second=second)
    await client.init()
    for number in range(4):
        await client.write(A, str(number))
        broker.partitions.log(A).roll()
    assert await broker.partitions.delete_records([(A, 2)]) == [2]
    assert (broker.partitions.offsets(A).log_start_offset, stable(broker, A)) == (2, 2)
    if decided:
        with no_markers(monkeypatch, "a"):
            await client.end(commit=True)
    await die(broker)
    broker = client.broker = await start(config, clock)
    if not decided:
        assert client.transactions.get("x").state is ONGOING
        await client.end(commit=True)
    assert client.transactions.get("x").state is COMMITTED
    assert await values(broker, start=2) == [b"2", b"3"]
    await client.write(A, "4")
    await client.end(commit=False)
    assert (await values(broker, start=2), stable(broker, A)) == ([b"2", b"3"], 7)
    await broker.close()


# --- disks and limits --------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("commit", [False, True])
async def test_nothing_else_ends_a_transaction_whose_end_cannot_be_stored(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, commit: bool, second: bool
) -> None:
    monkeypatch.setattr("core.transactions.transactions._AGAIN_SECONDS", 0.001)
    client, rival = Client(broker, second=second), Client(broker)
    await client.init(timeout_ms=1_000)
    await client.write(A, "1")
    with no_store(broker):
        ending = asyncio.ensure_future(client.end(commit=commit))
        await asyncio.sleep(0)
        clock.advance(2)
        await client.transactions.step()
        taking = asyncio.ensure_future(rival.init())
        await asyncio.sleep(0.01)
        assert not ending.done() and not taking.done()
        assert (stable(broker, A), client.transactions.get("x").state.kafka_name) == (
            0,
            "PrepareCommit" if commit else "PrepareAbort",
        )
    await asyncio.gather(ending, taking)
    assert (await values(broker), aborted(broker, A)) == (([b"1"], []) if commit else ([], [0]))


@pytest.mark.settings(max_transaction_partitions=100)
async def test_markers_of_many_partitions_are_appended_in_one_turn(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await broker.topics.create("many", partitions=100)
    everywhere = [TopicPartition("many", i) for i in range(100)]
    for tp in everywhere:
        await client.write(tp, "v")
    seen: set[int] = set()
    ending = asyncio.ensure_future(client.end(commit=True))
    while not ending.done():
        seen.add(sum(stable(broker, tp) for tp in everywhere))
        await asyncio.sleep(0)
    await ending
    assert seen <= {0, 200}
    assert [broker.partitions.offsets(tp).log_end_offset for tp in everywhere] == [2] * 100


@pytest.mark.parametrize("second", [False, True])
async def test_many_transactions_that_time_out_at_once_let_others_work_meanwhile(
    broker: Broker, clock: ManualClock, second: bool
) -> None:
    """They end one by one: between two of them the loop serves other requests."""
    clients = [Client(broker, str(i), second=second) for i in range(100)]
    await asyncio.gather(*(client.init(timeout_ms=1_000) for client in clients))
    for client in clients:
        await client.write(A, client.name)
    clock.advance(1.1)
    stepping = asyncio.ensure_future(clients[0].transactions.step())
    other = Client(broker, "other", second=second)
    await other.init()
    await other.write(B, "served")
    await other.end(commit=True)
    assert not stepping.done()
    await stepping
    assert (await values(broker), await values(broker, B)) == ([], [b"served"])
    assert stable(broker, A) == 200
