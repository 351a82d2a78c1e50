"""Limit how many requests of each client wait: long polls, joins, streams.

A waiting request holds a connection and its state for minutes. A client that asks for more than its share is refused
with 429 and Retry-After; a request that is answered at once is not counted. A client is identified by its name once
there are credentials, by its address until then.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from app.http.principal import principal_of
from app.http.request import ClientGoneError, Request, Scope
from core.errors import BrokerError, ErrorCode
from core.idempotency.idempotency import ANONYMOUS

T = TypeVar("T")
# The key of the counts in the ASGI scope, for routes that wait.
WAITING = "sluice.waiting"


class Waiting:
    """The counts by client; `limit` is the share of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def check(self, client: str) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED when a client has taken its share."""
        if self._counts.get(client, 0) >= self._limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{self._limit} requests of this client wait already; ask again without waiting, or later.",
                limit=self._limit,
            )

    def enter(self, client: str) -> None:
        """One more waits."""
        self._counts[client] = self._counts.get(client, 0) + 1

    def leave(self, client: str) -> None:
        """One waits no more; nothing is kept of a client without any."""
        left = self._counts[client] - 1
        if left:
            self._counts[client] = left
        else:
            del self._counts[client]

    def __len__(self) -> int:
        return sum(self._counts.values())


def check_share(scope: Scope) -> None:
    """Raise THROTTLING_QUOTA_EXCEEDED when the client of a request has taken its share."""
    waiting = scope.get(WAITING)
    if waiting is not None:
        waiting.check(client_of(scope))


@contextmanager
def counted(scope: Scope) -> Iterator[None]:
    """Count a request as waiting, whose share was checked before its answer began."""
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
    """Count a request while it waits. Raises THROTTLING_QUOTA_EXCEEDED where its client's share is taken."""
    check_share(scope)
    with counted(scope):
        yield


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the outcome of `work`; cancel it and raise ClientGoneError when the client closes its connection.

    The request counts as waiting meanwhile.
    """
    if not request.body_was_read:
        await request.body()
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(request.disconnected())
    try:
        with counted(request.scope):
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for one in (task, watch):
            if not one.done():
                one.cancel()


def client_of(scope: Scope) -> str:
    """Return the client of a request: its principal, or its address; of IPv6 the network of one site (64 bits)."""
    principal = principal_of(scope)
    if principal != ANONYMOUS:
        return principal
    host = (scope.get("client") or ("",))[0]
    if ":" not in host:
        return f"@{host}"
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return f"@{host}"
    return f"@{address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64)}"
