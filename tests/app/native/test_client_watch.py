"""Noticing that a client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from app.http.request import InFlight, Request
from app.native.client_watch import ClientWatch
from core.config import Config

pytestmark = pytest.mark.asyncio


class Broker:
    """Remembers who was woken."""

    def __init__(self) -> None:
        self.woken: list[Hashable] = []
        self.changes = self

    def wake(self, token: Hashable) -> None:
        self.woken.append(token)


def watching(messages: asyncio.Queue[dict[str, Any]]) -> tuple[Any, ClientWatch]:
    broker: Any = Broker()
    config = Config()
    return broker, ClientWatch(Request({}, messages.get, {}, config, InFlight(1)), broker)


async def test_a_client_that_goes_wakes_its_wait() -> None:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    broker, watch = watching(messages)
    messages.put_nowait({"type": "http.request", "body": b"ignored"})
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (False, [])
    messages.put_nowait({"type": "http.disconnect"})
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (True, [watch])
    watch.close()


async def test_a_watch_that_is_closed_wakes_nobody_and_leaves_no_task() -> None:
    broker, watch = watching(asyncio.Queue())
    await asyncio.sleep(0)
    watch.close()
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (False, [])
    assert len(asyncio.all_tasks()) == 1
