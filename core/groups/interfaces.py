"""What groups need from outside: a store, timers, topics and partitions. A test passes dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from core.errors import BrokerError
from core.facade import Logs
from core.groups.effects import Change, StoredState


class GroupStore(Protocol):
    """Durable storage of groups."""

    async def load(self) -> StoredState:
        """Return all that is stored."""
        ...

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Store `changes` in one transaction; calls take effect in their order.

        The future is done once the changes are durable, and fails with a BrokerError when they could not be stored.
        Futures are done in the order of the calls. Raises a BrokerError when too many changes wait already.
        """
        ...


class Timer(Protocol):
    """A callback that will be called."""

    def cancel(self) -> object:
        """Do not call the callback."""
        ...


class Scheduler(Protocol):
    """Timers that wake the groups; asyncio's event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` in `delay` seconds."""
        ...


def partition_count(broker: Logs, topic: str) -> int:
    """Return the number of partitions of a topic, 0 if it does not exist."""
    try:
        return broker.topics.get(topic).partitions
    except BrokerError:
        return 0
