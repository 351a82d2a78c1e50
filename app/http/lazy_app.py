"""An ASGI application that is loaded by the first request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.http.exchange import ASGIApp
from app.http.request import Receive, Scope, Send


class LazyApp:
    """Loads an ASGI application at the first request, and passes all requests to it.

    `load` runs in a thread, so that the event loop is not blocked; requests wait for it. It imports and builds, and
    touches no object that the loop uses. After a failure the next request tries again.
    """

    def __init__(self, load: Callable[[], ASGIApp]) -> None:
        self._load = load
        self._app: ASGIApp | None = None
        self._loading: asyncio.Future[ASGIApp] | None = None

    @property
    def loaded(self) -> bool:
        """Whether the application is loaded."""
        return self._app is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        app = self._app or await self._loaded()
        await app(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._load)
        try:
            # A request that is cancelled meanwhile must not cancel the load for the others.
            self._app = await asyncio.shield(self._loading)
        except Exception:
            self._loading = None
            raise
        return self._app
