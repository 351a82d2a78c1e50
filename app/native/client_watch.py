"""Noticing that a client has gone while its request waits."""

from __future__ import annotations

import asyncio

from app.http.request import Request
from core.facade import Facade


class ClientWatch:
    """Watches the connection of one request that waits for records; the token of its wait in the broker.

    One small task for each; the wait itself needs none. Close it when the request is answered.
    """

    __slots__ = ("_broker", "_task", "gone")

    def __init__(self, request: Request, broker: Facade) -> None:
        self.gone = False
        self._broker = broker
        self._task = asyncio.ensure_future(request.disconnected())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.gone = True
            self._broker.changes.wake(self)

    def close(self) -> None:
        """Stop watching."""
        self._task.cancel()
