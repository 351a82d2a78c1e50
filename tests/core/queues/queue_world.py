"""Shorthands for tests of queues over a broker in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from core.types import TopicPartition
from core.vocabulary.queues import (
    EARLIEST,
    Leased,
    Outcome,
    QueueSettings,
    QueueView,
    Receive,
    Received,
    Settle,
    Start,
    Verb,
)
from tests.core.consumers.consumer_world import World

Q = "q"
T0 = TopicPartition("t", 0)


def settings(*topics: str, **changes: Any) -> QueueSettings:
    """Settings of a queue that reads `topics`, or topic t, from the beginning."""
    return QueueSettings(**({"topics": topics or ("t",), "start": Start(EARLIEST)} | changes))


async def queue(w: World, *topics: str, name: str = Q, **changes: Any) -> QueueView:
    return await w.broker.queues.put(name, settings(*topics, **changes))


async def receive(w: World, count: int = 10, name: str = Q, **request: Any) -> Received:
    return await w.broker.queues.receive(name, Receive(count, **request))


async def settle(
    w: World, records: Sequence[Leased], verb: Verb = Verb.ACCEPT, name: str = Q, **item: Any
) -> list[Outcome]:
    items = [Settle(verb, record.receipt, **item) for record in records]
    return [settled.outcome for settled in await w.broker.queues.settle(name, items)]


def offsets(received: Received | Sequence[Leased]) -> list[int]:
    records = received.records if isinstance(received, Received) else received
    return [leased.record.offset for leased in records]


async def all_of(w: World, name: str = Q, **request: Any) -> list[int]:
    """Receive and accept all there is; return the offsets."""
    found: list[int] = []
    while (got := await receive(w, 100, name, **request)).records:
        await settle(w, got.records, name=name)
        found += offsets(got)
    return found


def begin(work: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(work)
