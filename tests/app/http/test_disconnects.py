"""app.http.waiting: a wait ends when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from app.http.request import ClientGoneError, InFlight, Request
from app.http.waiting import ClientWatch, while_connected
from core.config import Config

pytestmark = pytest.mark.asyncio


class Broker:
    """A broker whose `changes` remember which waits were woken."""

    def __init__(self) -> None:
        self.woken: list[Hashable] = []

    @property
    def changes(self) -> Broker:
        return self

    def wake(self, token: Hashable) -> None:
        self.woken.append(token)


def request(messages: asyncio.Queue[dict[str, Any]]) -> Request:
    made = Request({}, messages.get, {}, Config(), InFlight(1))
    made.body_was_read = True
    return made


def watching(messages: asyncio.Queue[dict[str, Any]]) -> tuple[Any, ClientWatch]:
    broker: Any = Broker()
    return broker, ClientWatch(request(messages), broker)


async def test_a_client_that_disconnects_wakes_its_wait() -> None:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    broker, watch = watching(messages)
    messages.put_nowait({"type": "http.request", "body": b"ignored"})
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (False, [])
    messages.put_nowait({"type": "http.disconnect"})
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (True, [watch])
    watch.close()


async def test_a_watch_that_is_closed_wakes_no_wait_and_leaves_no_task() -> None:
    broker, watch = watching(asyncio.Queue())
    await asyncio.sleep(0)
    watch.close()
    await asyncio.sleep(0.001)
    assert (watch.gone, broker.woken) == (False, [])
    assert len(asyncio.all_tasks()) == 1


async def test_work_ends_with_its_client() -> None:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    assert await while_connected(request(messages), asyncio.sleep(0, "done")) == "done"
    messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ClientGoneError):
        await while_connected(request(messages), asyncio.sleep(60))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_result_that_comes_with_the_disconnect_is_undelivered() -> None:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.disconnect"})
    taken: list[str] = []
    with pytest.raises(ClientGoneError):
        await while_connected(request(messages), asyncio.sleep(0, "late"), undelivered=taken.append)
    with pytest.raises(ClientGoneError):
        messages.put_nowait({"type": "http.disconnect"})
        await while_connected(request(messages), _at_once("late"), undelivered=taken.append)
    assert taken[-1:] == ["late"]


async def _at_once(result: str) -> str:
    return result
