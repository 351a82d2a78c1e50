"""Following: one long poll for each leader and isolation level, over all windows that were read to their ends.

A window that joins while the long poll is under way gets short polls, over another connection, until the long one has
ended and takes it. So it need not wait, and in the long run there is one request for each leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from core.client.cluster import ClusterClient
from core.client.fetching import Ask, Got, fetch
from core.client.windows import Window
from core.errors import BrokerError

logger = logging.getLogger(__name__)

# How long a window that joins may have to wait for one that joined before it.
_JOINED_MS = 50

# The least time of a long poll for each of its partitions, and for all: four times what they cost.
_PACE_SECONDS = 20e-6
_MAX_PACE = 0.02

Took = Callable[[Got], bool]
"""Takes what a fetch said; returns whether the window is still to be followed."""


class LeaderPoll:
    """The long polls of one leader. `took` is called for each answer, `failed` with windows whose leader is lost."""

    def __init__(
        self,
        cluster: ClusterClient,
        broker_id: int,
        committed: bool,
        took: Took,
        failed: Callable[[Iterable[Window]], None],
    ) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._lane = "committed" if committed else "uncommitted"
        self._took = took
        self._failed = failed
        self._windows: dict[Window, None] = {}
        # Those that no long poll has asked for yet.
        self._joined: dict[Window, None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = 0

    def add(self, window: Window) -> None:
        """Follow a window."""
        if window in self._windows:
            return
        self._windows[window] = None
        if "main" not in self._tasks:
            self._start("main")
        else:
            self._joined[window] = None
            if "joined" not in self._tasks:
                self._start("joined")

    def _start(self, name: str) -> None:
        work = self._run() if name == "main" else self._run_joined()
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("following broker %d failed", self._broker_id, exc_info=error)
            self._give_back()

    async def close(self) -> None:
        """Stop."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        # Windows that are added in this turn of the loop share the first request.
        await asyncio.sleep(0)
        while self._windows:
            self._joined.clear()
            if not await self._poll(list(self._windows), self._lane, self._cluster.settings.fetch_wait_ms):
                break
        # At once: a window that is added now needs another task.
        self._tasks.pop("main", None)

    async def _run_joined(self) -> None:
        await asyncio.sleep(0)
        while self._joined:
            if not await self._poll(list(self._joined), f"{self._lane}, joined", _JOINED_MS):
                break
        self._tasks.pop("joined", None)

    async def _poll(self, windows: list[Window], lane: str, wait_ms: int) -> bool:
        """Ask once for all windows; return False if the broker is lost."""
        settings = self._cluster.settings
        # The first one with records gets them even if they are large (KIP-74): each is the first in its turn.
        self._turn += 1
        start = self._turn % len(windows)
        offsets = {one: one.end for one in windows[start:] + windows[:start] if one.end >= 0}
        for window in [one for one in windows if one.end < 0]:
            self._windows.pop(window, None)
            self._joined.pop(window, None)
        if not offsets:
            return True
        ask = Ask(
            self._broker_id,
            offsets,
            wait_ms,
            settings.max_partition_fetch_bytes,
            settings.fetch_max_bytes,
            lane,
            following=True,
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answers, silence_ms = await fetch(self._cluster, ask)
        except BrokerError as error:
            logger.debug("following broker %d: %s", self._broker_id, error.message)
            self._give_back()
            return False
        for got in answers:
            if not self._took(got):
                self._windows.pop(got.window, None)
                self._joined.pop(got.window, None)
        # A request and its answer name each partition: with many of them, one after the other would fill the loop.
        pause = max(silence_ms / 1000, began + min(len(offsets) * _PACE_SECONDS, _MAX_PACE) - loop.time())
        if pause > 0:
            await asyncio.sleep(pause)
        return True

    def _give_back(self) -> None:
        windows = list(self._windows)
        self._windows.clear()
        self._joined.clear()
        self._failed(windows)
