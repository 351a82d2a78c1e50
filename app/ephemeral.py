"""`sluice serve --ephemeral`: a broker for tests. It keeps nothing and ends with the process that started it.

The data lie in a temporary directory, in memory where the system has one, and the ports are the system's choice.
The first line of stdout is a JSON object with the addresses, written when the broker answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from core.config import Config, Endpoint

# The system keeps no list of a process's former parent: a child that was adopted has another one.
_PARENT_CHECK_SECONDS = 0.25
_MEMORY = Path("/dev/shm")
# A directory in memory may hold this much before tests should name one of their own.
_LEAST_FREE_BYTES = 256 * 1024 * 1024


@contextlib.contextmanager
def ephemeral(config: Config, *, given_listeners: bool) -> Iterator[Config]:
    """Give settings with a temporary data directory, ports that the system chooses, and no wait for group members.

    `given_listeners`: the user named listeners; they stay as they are. The directory is removed at the end.
    """
    directory = Path(tempfile.mkdtemp(prefix="sluice-", dir=_memory()))
    try:
        config = replace(config, data_dir=directory / "data", group_initial_rebalance_delay_ms=0)
        if not given_listeners:
            config = replace(config, listeners=tuple(replace(e, port=0) for e in config.listeners))
        yield config
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _memory() -> Path | None:
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free >= _LEAST_FREE_BYTES else None
    except OSError:
        return None


def addresses(endpoints: Sequence[Endpoint]) -> str:
    """Return the addresses as one line of JSON: `http_url`, `kafka_bootstrap_servers`, `listeners`, `pid`."""
    by_scheme = {endpoint.scheme: endpoint for endpoint in reversed(endpoints)}
    line: dict[str, object] = {"pid": os.getpid(), "listeners": [str(endpoint) for endpoint in endpoints]}
    if http := by_scheme.get("http"):
        line["http_url"] = str(http)
    if kafka := by_scheme.get("kafka"):
        line["kafka_bootstrap_servers"] = str(kafka).removeprefix("kafka://")
    return json.dumps(line)


async def watch_parent(parent: int, stop: Callable[[], None]) -> None:
    """Call `stop` when the process `parent` has ended."""
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    stop()
