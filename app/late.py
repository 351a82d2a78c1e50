"""An application that is loaded by the first request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.http.exchange import ASGIApp
from app.http.request import Receive, Scope, Send


class LateApp:
    """Stands for an ASGI application until there is one.

    It is loaded in a thread, so that the loop goes on meanwhile; requests for it wait. `load` imports and puts
    together, and touches nothing that the loop is at work on. After a failure the next request tries again.
    """

    def __init__(self, load: Callable[[], ASGIApp]) -> None:
        self._load = load
        self._app: ASGIApp | None = None
        self._loading: asyncio.Future[ASGIApp] | None = None
        # What is to be done once it is there, in the thread that loaded it.
        self.when_loaded: Callable[[], None] | None = None

    @property
    def loaded(self) -> bool:
        """Whether it is there."""
        return self._app is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        app = self._app or await self._loaded()
        await app(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._load_it)
        try:
            # Whoever goes away meanwhile does not take it from the others.
            self._app = await asyncio.shield(self._loading)
        except Exception:
            self._loading = None
            raise
        return self._app

    def _load_it(self) -> ASGIApp:
        app = self._load()
        if self.when_loaded is not None:
            self.when_loaded()
        return app
