"""One broker for each test: `broker` with a clock that the test moves, or `w` in virtual time.

A module changes its settings by SETTINGS, a test by `@pytest.mark.settings(name=value)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from tests.core.consumers.consumer_world import World
from tests.virtual_time import VirtualLoop, threads_stop_time


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test that uses `w` runs on a loop in which waiting takes no time."""
    virtual = "w" in getattr(item, "fixturenames", ())
    return {"virtual": VirtualLoop} if virtual else {"real": asyncio.new_event_loop}


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the module changes, then its test, then the row of a parametrized test."""
    changes: dict[str, Any] = dict(getattr(request.module, "SETTINGS", {}))
    for marker in request.node.iter_markers("settings"):
        changes |= marker.kwargs
    return changes


@pytest.fixture
def config(tmp_path: Path, settings: dict[str, Any]) -> Config:
    return Config(data_dir=tmp_path, **settings)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(config: Config, clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker without listeners. A module that wants topics in it overrides this fixture."""
    opened = Broker(config, clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def w(tmp_path: Path, settings: dict[str, Any]) -> AsyncIterator[World]:
    """A broker with shorthands for managed consumers; it can be killed. Tests that use it run in virtual time."""
    with threads_stop_time():
        world = await World(tmp_path, **settings).start()
        yield world
        await world.close()
