"""An application that is loaded by the first request for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from app.http.lazy_app import LazyApp

SCOPE = {"type": "http"}


async def nothing(*_: Any) -> Any:
    return None


class Loads:
    """Counts loads; the first may fail, or wait until it may continue."""

    def __init__(self, fails: int = 0) -> None:
        self.count, self.fails = 0, fails
        self.threads: list[threading.Thread] = []
        self.go = threading.Event()
        self.calls = 0

    def __call__(self) -> Any:
        self.count += 1
        self.threads.append(threading.current_thread())
        self.go.wait(5)
        if self.count <= self.fails:
            raise ImportError("broken")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert scope is SCOPE
            self.calls += 1

        return app


async def test_requests_that_come_meanwhile_wait_for_one_load_in_a_thread() -> None:
    loads = Loads()
    lazy = LazyApp(loads)
    waiting = [asyncio.create_task(lazy(SCOPE, nothing, nothing)) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert not lazy.loaded and loads.calls == 0
    loads.go.set()
    await asyncio.gather(*waiting)
    await lazy(SCOPE, nothing, nothing)
    assert (loads.count, loads.calls, lazy.loaded) == (1, 4, True)
    assert threading.current_thread() not in loads.threads


async def test_a_client_that_disconnects_does_not_cancel_it_for_the_others() -> None:
    loads = Loads()
    lazy = LazyApp(loads)
    first, second = (asyncio.create_task(lazy(SCOPE, nothing, nothing)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    loads.go.set()
    await second
    assert loads.calls == 1 and first.cancelled()


async def test_after_a_failure_the_next_request_tries_again() -> None:
    loads = Loads(fails=1)
    loads.go.set()
    lazy = LazyApp(loads)
    with pytest.raises(ImportError):
        await lazy(SCOPE, nothing, nothing)
    await lazy(SCOPE, nothing, nothing)
    assert (loads.count, loads.calls) == (2, 1)


def test_the_start_does_not_load_what_only_control_routes_need() -> None:
    modules = ("fastapi", "pydantic", "uvicorn", "app.fastapi_app")
    code = f"import sys, app.serve; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
