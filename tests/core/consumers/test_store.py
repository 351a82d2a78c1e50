"""core.consumers.store: what was stored of a consumer is what is loaded, also after a write that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.consumers.state import Consumer
from core.consumers.store import ConsumerStore
from core.errors import BrokerError
from core.metadata.store import Store
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import ConsumerOptions, Range, Subscription

P0, P1 = Tp("t", 0), Tp("u", 1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ConsumerStore]:
    opened = Store(tmp_path / "metadata.db")
    await opened.open(check=False)
    yield ConsumerStore(opened, ManualClock())
    await opened.close()


def made(name: str = "c") -> Consumer:
    options = ConsumerOptions(start=123, ttl_ms=7, group_instance_id="i", settings={"format": "json"})
    consumer = Consumer("g", name, "abcd", Subscription(pattern="t.*"), options, 99)
    consumer.member_id = "m"
    consumer.generation = 4
    consumer.deadline = 1001.5
    consumer.assigned = (P0, P1)
    consumer.move(P0, 10)
    consumer.move(P1, 20)
    return consumer


async def loaded(store: ConsumerStore) -> Consumer:
    ((consumer, _),) = await store.load()
    return consumer


async def test_everything_comes_back(store: ConsumerStore) -> None:
    consumer = made()
    consumer.give([Range("t", 0, 10, 12)], advancing=False)
    consumer.paused, consumer.paused_all = {P1}, True
    await store.save(consumer)
    ((back, deadline_ms),) = await store.load()
    for name in (
        "group_id", "name", "nonce", "subscription", "options", "created_ms", "member_id", "generation", "positions",
        "assigned", "sequence", "outstanding", "paused", "paused_all",
    ):  # fmt: skip
        assert getattr(back, name) == getattr(consumer, name), name
    assert back.token == consumer.token and isinstance(back.paused.pop(), Tp)
    assert deadline_ms == ManualClock().wall_ms() + 1500


async def test_progress_stores_what_moved_and_forgets_what_went(store: ConsumerStore) -> None:
    consumer = made()
    await store.save(consumer)
    consumer.move(P0, 11)
    consumer.generation, consumer.member_id = 5, "n"
    del consumer.positions[P1]
    await store.progress(consumer, [P1])
    back = await loaded(store)
    assert (back.positions, back.generation, back.member_id) == ({P0: 11}, 5, "n")
    assert back.options == consumer.options


async def test_a_batch_without_a_token_is_not_kept(store: ConsumerStore) -> None:
    consumer = made()
    consumer.give([Range("t", 0, 10, 12)], advancing=True)
    await store.save(consumer)
    assert (await loaded(store)).outstanding == {}


async def test_a_removed_consumer_leaves_nothing(store: ConsumerStore) -> None:
    await store.save(made("a"))
    await store.save(made("b"))
    await store.remove(made("a"))
    assert [one.consumer.name for one in await store.load()] == ["b"]
    assert (await loaded(store)).positions == {P0: 10, P1: 20}


@pytest.mark.parametrize("gone", [False, True])
async def test_what_could_not_be_stored_is_stored_with_the_next_write(
    store: ConsumerStore, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    consumer = made()
    await store.save(consumer)
    consumer.move(P0, 11)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("core.metadata.store.Store._transaction", full)
        writing = store.progress(consumer)
        if gone:
            writing.cancel()
        with pytest.raises((BrokerError, asyncio.CancelledError)):
            await writing
    await asyncio.sleep(0)
    assert consumer.unsaved == {P0: None}
    await store.progress(consumer)
    assert (await loaded(store)).positions[P0] == 11


async def test_a_store_that_takes_no_more_fails_the_write_and_not_the_call(
    store: ConsumerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.metadata.store.MAX_WAITING_JOBS", 0)
    with pytest.raises(BrokerError):
        await store.progress(made())
