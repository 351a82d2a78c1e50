"""Several transactions and other changes that one decision ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.topics import load_settings, put_setting
from core.vocabulary.transactions import Participant
from tests.core.transactions.test_transactions import (
    COMMITTED,
    ONGOING,
    A,
    B,
    Client,
    die,
    refused,
    stable,
    start,
)


@dataclass
class Other:
    """Another change: a setting in the store, and a list in memory."""

    seen: list[tuple[int, int]] = field(default_factory=list)
    broker: Broker | None = None

    @property
    def effects(self) -> list[Callable[[Any], None]]:
        return [put_setting("test.other", "changed")]

    def apply(self) -> None:
        assert self.broker is not None
        self.seen.append((stable(self.broker, A), stable(self.broker, B)))


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    opened = await start(config, clock)
    yield opened
    await opened.close()


async def two(broker: Broker) -> list[Client]:
    clients = [Client(broker, "1"), Client(broker, "2")]
    for client, tp in zip(clients, (A, B), strict=True):
        await client.init()
        await client.write(tp, "a", "b")
    return clients


def participants(clients: list[Client]) -> list[Participant]:
    return [Participant(one.name, one.producer) for one in clients]


async def setting(broker: Broker) -> str | None:
    return (await broker.store.read(load_settings)).get("test.other")


async def test_transactions_and_another_change_become_visible_in_one_turn(broker: Broker) -> None:
    clients, other = await two(broker), Other(broker=broker)
    following = await broker.transactions.commit_together(participants(clients), lambda: [other])
    assert other.seen == [(3, 3)], "both are visible when the other change is"
    assert [one.producer_epoch for one in following] == [1, 1]
    assert {one.state for one in broker.transactions.all()} == {COMMITTED}
    assert await setting(broker) == "changed"


async def test_what_is_refused_last_leaves_all_of_them_open(broker: Broker) -> None:
    clients = await two(broker)

    def refuse() -> list[Other]:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "another offset is committed")

    ending = broker.transactions.commit_together(participants(clients), refuse)
    assert await refused(ending) is ErrorCode.INVALID_REQUEST
    assert {one.state for one in broker.transactions.all()} == {ONGOING}
    assert (stable(broker, A), stable(broker, B)) == (0, 0)
    for client in clients:
        await client.end(commit=True)
    assert (stable(broker, A), stable(broker, B)) == (3, 3)


async def test_a_fenced_or_ended_or_repeated_participant_leaves_the_others_open(broker: Broker) -> None:
    clients = await two(broker)
    named = participants(clients)
    await Client(broker, "2").init()
    together = broker.transactions.commit_together
    assert await refused(together(named, list)) is ErrorCode.PRODUCER_FENCED
    assert await refused(together([named[0], named[0]], list)) is ErrorCode.INVALID_REQUEST
    assert broker.transactions.get("1").state is ONGOING
    await together(named[:1], list)
    assert await refused(together(named[:1], list)) in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
    )
    assert (stable(broker, A), stable(broker, B)) == (3, 3)


async def test_without_participants_the_other_changes_are_one_decision(broker: Broker) -> None:
    other = Other(broker=broker)
    assert await broker.transactions.commit_together([], lambda: [other]) == []
    assert (other.seen, await setting(broker)) == ([(0, 0)], "changed")


async def test_a_decision_that_a_crash_leaves_without_markers_is_of_all_of_them(
    config: Config, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start(config, clock)
    clients, other = await two(broker), Other(broker=broker)
    monkeypatch.setattr(broker.transactions._decisions, "_mark", lambda *_: False)
    await broker.transactions.commit_together(participants(clients), lambda: [other])
    assert (stable(broker, A), stable(broker, B)) == (0, 0)
    await die(broker)
    broker = await start(config, clock)
    assert (stable(broker, A), stable(broker, B), await setting(broker)) == (3, 3, "changed")
    await broker.close()
