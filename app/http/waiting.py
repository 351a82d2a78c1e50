"""Requests that wait: long polls, joins, streams. How many each client may have, and clients that disconnect.

A waiting request holds a connection and its state for minutes. A client that asks for more than its share is refused
with 429 and Retry-After; a request that is answered at once is not counted. A client is identified by its name once
there are credentials, by its address until then.

A wait ends when its client closes the connection: `while_connected` cancels the work of such a request, `ClientWatch`
wakes its wait in the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from app.http.loop_time import SHARE, Share
from app.http.principal import principal_of
from app.http.request import ClientGoneError, Request, Scope
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.security.addresses import network_of
from core.vocabulary.idempotency import NO_PRINCIPAL

T = TypeVar("T")
# The key in the ASGI scope under which routes that wait find the counts.
WAITING = "sluice.waiting"


class Waiting:
    """Counts waiting requests by client; `limit` is the share of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def check(self, client: str) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED if a client's share is used up."""
        if self._counts.get(client, 0) >= self._limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{self._limit} requests of this client wait already; ask again without waiting, or later.",
                limit=self._limit,
            )

    def enter(self, client: str) -> None:
        """Add one request to a client's count."""
        self._counts[client] = self._counts.get(client, 0) + 1

    def leave(self, client: str) -> None:
        """Subtract one request; forget a client that has none left."""
        left = self._counts[client] - 1
        if left:
            self._counts[client] = left
        else:
            del self._counts[client]

    def __len__(self) -> int:
        return sum(self._counts.values())


def check_share(scope: Scope) -> None:
    """Raise THROTTLING_QUOTA_EXCEEDED if the share of a request's client is used up."""
    waiting = scope.get(WAITING)
    if waiting is not None:
        waiting.check(client_of(scope))


@contextmanager
def counted(scope: Scope) -> Iterator[None]:
    """Count a request while it waits. Check the share before the answer begins."""
    waiting = scope.get(WAITING)
    if waiting is None:
        yield
        return
    client = client_of(scope)
    waiting.enter(client)
    try:
        yield
    finally:
        waiting.leave(client)


@contextmanager
def share(scope: Scope) -> Iterator[None]:
    """Count a request while it waits. Raises THROTTLING_QUOTA_EXCEEDED if its client's share is used up."""
    check_share(scope)
    with counted(scope):
        yield


def client_of(scope: Scope) -> str:
    """Return the client of a request: its principal, or its address; of IPv6 the network of one site (64 bits)."""
    principal = principal_of(scope)
    if principal != NO_PRINCIPAL:
        return principal
    return f"@{network_of((scope.get('client') or ('',))[0])}"


# --- clients that disconnect --------------------------------------------------------------------------------


class Connected(Protocol):
    """A request with its connection: ours, or FastAPI's, whose body FastAPI has read."""

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """ASGI's scope."""
        ...

    @property
    def receive(self) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
        """ASGI's receive."""
        ...


async def while_connected(
    request: Connected, work: Coroutine[Any, Any, T], *, undelivered: Callable[[T], None] | None = None
) -> T:
    """Return the outcome of `work`. If the client disconnects, cancel it and raise ClientGoneError.

    The request counts as waiting meanwhile. `undelivered` gets a result that came too late for the client.
    """
    if isinstance(request, Request) and not request.body_was_read:
        try:
            await request.body()
        except BaseException:
            work.close()
            raise
    share: Share | None = request.scope.get(SHARE)
    task = asyncio.ensure_future(work if share is None else share.timed(work))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        with counted(request.scope):
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.done():
            return task.result()
        if task.done() and task.exception() is None and undelivered is not None:
            undelivered(task.result())
        raise ClientGoneError
    finally:
        for one in (task, gone):
            if not one.done():
                one.cancel()


class ClientWatch:
    """Watches the connection of a request that waits in the broker; the token of that wait.

    It takes one small task. Close it when the request is answered.
    """

    __slots__ = ("_broker", "_task", "gone")

    def __init__(self, request: Connected, broker: Facade) -> None:
        self.gone = False
        self._broker = broker
        self._task = asyncio.ensure_future(_disconnected(request))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.gone = True
            self._broker.changes.wake(self)

    def close(self) -> None:
        """Stop watching."""
        self._task.cancel()


async def _disconnected(request: Connected) -> None:
    """Return when the client has closed its connection. The body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
