"""What administrators see of transactions and do to them: ages, groups, numbers, and the abort of one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.transactions.totals import LATE_MS, totals
from core.transactions.transaction import Transaction
from core.vocabulary.groups import Commit, CommitRequest, TransactionalCommit
from core.vocabulary.transactions import Outcome, ProducerIdAndEpoch, TransactionState
from tests.core.transactions.test_transactions import A, B, Client, refused, stable, start

ENDED = dict.fromkeys(Outcome, 0)


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await start(config, clock)
    yield opened
    await opened.close()


async def stage(client: Client, group: str, offset: int) -> None:
    """Have the transaction of a client hold an offset of a group."""
    commit = CommitRequest([Commit(A.topic, 0, offset, -1, "")], "", -1, None)
    request = TransactionalCommit(client.name, *client.producer, commit)
    staged = await client.transactions.stage(
        client.name,
        client.producer,
        lambda: client.broker.groups.stage_transactional(group, request),
        begins=True,
    )
    assert staged == [0]


async def test_an_open_transaction_has_an_age_an_end_and_groups(broker: Broker, clock: ManualClock) -> None:
    client = Client(broker)
    await client.init(timeout_ms=20_000)
    begun = clock.wall_ms()
    await client.write(A, "1")
    await stage(client, "g", 0)
    clock.advance(5)
    one = client.transactions.get("x")
    assert (one.age_ms(clock.wall_ms()), one.expires_ms - begun, one.groups) == (5_000, 20_000, ("g",))
    assert client.transactions.all() == [one]
    await client.end(commit=True)
    one = client.transactions.get("x")
    assert (one.age_ms(clock.wall_ms()), one.expires_ms, one.groups, one.start_ms) == (None, -1, (), begun)


async def test_an_abort_by_an_administrator_ends_all_parts_and_fences(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    for tp in (A, B):
        await client.write(tp, "never seen")
    await stage(client, "g", 1)
    assert broker.groups.pending_offsets() == 1
    await client.transactions.terminate("x")
    assert client.transactions.get("x").state is TransactionState.COMPLETE_ABORT
    assert [stable(broker, tp) for tp in (A, B)] == [2, 2]
    assert (broker.groups.pending_offsets(), broker.groups.committed("g", "a", 0)) == (0, None)
    with pytest.raises(BrokerError) as refusal:
        client.append(A, "late")
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await refused(client.end(commit=True)) is ErrorCode.INVALID_TXN_STATE


async def test_there_must_be_something_to_abort(broker: Broker) -> None:
    client = Client(broker)
    assert await refused(client.transactions.terminate("x")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    await client.init()
    assert await refused(client.transactions.terminate("x")) is ErrorCode.INVALID_TXN_STATE
    await client.write(A, "1")
    await client.transactions.terminate("x")
    assert await refused(client.transactions.terminate("x")) is ErrorCode.INVALID_TXN_STATE


async def test_each_kind_of_end_is_counted(broker: Broker, clock: ManualClock) -> None:
    client = Client(broker)
    transactions = client.transactions
    assert transactions.totals().ended == ENDED

    async def begin() -> None:
        await client.init(timeout_ms=10_000)
        await client.write(A, "1")

    await begin()
    await client.end(commit=True)
    await begin()
    await client.end(commit=False)
    # Nothing is open, so nothing ends.
    await client.end(commit=False)
    await begin()
    await begin()
    await client.transactions.terminate("x")
    await begin()
    clock.advance(11)
    await transactions.step()
    assert transactions.totals().ended == dict.fromkeys(Outcome, 1)


async def test_open_transactions_in_numbers(broker: Broker, clock: ManualClock) -> None:
    first, second = Client(broker, "first"), Client(broker, "second")
    for client in (first, second):
        await client.init()
        await client.write(A, "1")
        clock.advance(2)
    found = first.transactions.totals()
    assert (found.ids, found.open, found.oldest_ms, found.late, found.unmarked) == (2, 2, 4_000, 0, 0)
    held = await broker.holdings(10, 10)
    assert [tuple(one) for one in held.unstable] == [("a", 0, 2)]
    for client in (first, second):
        await client.end(commit=True)
    found = first.transactions.totals()
    assert (found.ids, found.open, found.oldest_ms) == (2, 0, 0)
    assert (await broker.holdings(10, 10)).unstable == []


async def test_markers_that_are_not_on_the_disk_are_counted(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.end(commit=True)
    assert client.transactions.totals().unmarked == 1
    log = broker.partitions.log(A)
    await broker._flusher.durable(log, log.offsets.log_end_offset)
    await client.transactions.step()
    assert client.transactions.totals().unmarked == 0


async def test_the_partitions_that_are_held_up_most_are_shown(broker: Broker) -> None:
    client = Client(broker)
    await client.init()
    await client.write(A, "1")
    await client.write(B, "1", "2")
    held = await broker.holdings(1, 10)
    assert ([tuple(one) for one in held.unstable], held.unstable_left_out) == ([("b", 0, 2)], 1)
    await client.end(commit=True)


def test_late_is_longer_than_any_transaction_may_be() -> None:
    longest = 900_000
    one = Transaction("x", ProducerIdAndEpoch(1, 0), 60_000, state=TransactionState.ONGOING, start_ms=0)
    for now, late in ((longest + LATE_MS, 0), (longest + LATE_MS + 1, 1)):
        found = totals([one], now_ms=now, longest_ms=longest, unmarked=0, ended={}, hanging=0)
        assert (found.late, found.oldest_ms) == (late, now)
