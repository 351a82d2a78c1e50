"""The links to all brokers of a cluster, by address and lane; each is opened when it is first needed.

A lane is a connection of its own to the same broker. Brokers answer the requests of one connection in order, so that
a request that waits holds up those after it:

    ""         shared by all requests that are answered at once
    "fetch"    long polls; other names work like it
    "alone"    for JoinGroup and SyncGroup: each request has a connection of its own while it waits
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from core.client.counts import ClientCounts
from core.client.link import Link, open_link
from core.client.network import Network
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode

SHARED, FETCH, ALONE = "", "fetch", "alone"
# JoinGroup waits until all members have joined: fewer than there are members of one group in this process would make
# a group wait for itself.
MAX_ALONE = 1_000
# Links of "alone" that are kept open for the next request.
_IDLE_ALONE = 8


class Links:
    """Open links. `get` shares one, `alone` lends one."""

    def __init__(self, settings: ClientSettings, clock: Clock, network: Network) -> None:
        self._settings = settings
        self._clock = clock
        self._network = network
        self.counts = ClientCounts()
        self._links: dict[tuple[Address, str], Link] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[Link]] = {}
        # After a failure: when the address may be tried again, and how many failures there were.
        self._failed: dict[Address, tuple[float, int]] = {}
        self._idle: dict[Address, list[Link]] = {}
        self._lent: set[Link] = set()
        # How many are lent, or are being opened for that.
        self._borrowers: Counter[Address] = Counter()
        self._closed = False

    def use_tls(self, tls: ssl.SSLContext | None) -> None:
        """Open connections to come with another context."""
        self._settings = replace(self._settings, tls=tls)

    def ready(self, address: Address, lane: str = SHARED) -> Link | None:
        """Return an open link, or None."""
        return self._links.get((address, lane))

    def open_to(self, address: Address) -> int:
        """Return the number of open links to a broker."""
        shared = sum(place == address for place, _ in self._links)
        lent = sum(link.address == address for link in self._lent)
        return shared + len(self._idle.get(address, ())) + lent

    def failing(self, address: Address) -> bool:
        """Return whether the last attempt to reach a broker failed."""
        return address in self._failed

    @property
    def open(self) -> list[Link]:
        """Return the open links that are shared."""
        return list(self._links.values())

    def resting(self, address: Address) -> bool:
        """Return whether the last attempt failed so recently that another one must wait."""
        return address in self._failed and self._clock.monotonic() < self._failed[address][0]

    async def get(self, address: Address, lane: str = SHARED) -> Link:
        """Return the link of a lane; callers share one attempt to open it. Raises as `open_link`."""
        key = address, lane
        link = self._links.get(key)
        if link is not None:
            return link
        task = self._opening.get(key)
        if task is None:
            if self._closed:
                raise BrokerError(ErrorCode.NETWORK_EXCEPTION, "The client is closed.")
            task = self._opening[key] = asyncio.get_running_loop().create_task(self._open(key))
            task.add_done_callback(lambda done: self._opened(key, done))
        # A caller that is cancelled leaves the others their link.
        return await asyncio.shield(task)

    async def _open(self, key: tuple[Address, str]) -> Link:
        address = key[0]
        pause = self._failed.get(address, (0.0, 0))[0] - self._clock.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        return await self._connect(address)

    def _opened(self, key: tuple[Address, str], task: asyncio.Task[Link]) -> None:
        self._opening.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        link = task.result()
        if self._closed:
            link.close()
        elif link.lost is None:
            self._links[key] = link
            link.closed.append(lambda closed: self._forget(key, closed))

    def _forget(self, key: tuple[Address, str], link: Link) -> None:
        if self._links.get(key) is link:
            del self._links[key]

    async def _connect(self, address: Address) -> Link:
        try:
            link = await open_link(address, self._settings, self._clock, self._network, self.counts)
        except BrokerError:
            failures = self._failed.get(address, (0.0, 0))[1]
            base = self._settings.retry_backoff_ms * 2 ** min(failures, 20)
            pause = min(base, self._settings.retry_backoff_max_ms) / 1000
            self._failed[address] = (
                self._clock.monotonic() + pause * (0.8 + 0.4 * self._clock.random()),
                failures + 1,
            )
            raise
        self._failed.pop(address, None)
        return link

    @asynccontextmanager
    async def alone(self, address: Address) -> AsyncIterator[Link]:
        """Lend a link to one caller. Raises as `open_link`, THROTTLING_QUOTA_EXCEEDED beyond `MAX_ALONE` of a broker.

        A link with a request that was not answered is closed afterwards.
        """
        idle = self._idle.setdefault(address, [])
        if self._borrowers[address] >= MAX_ALONE:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{MAX_ALONE} requests wait for the coordinator at {address} already; try again later.",
            )
        self._borrowers[address] += 1
        link = None
        try:
            link = next((one for one in reversed(idle) if one.lost is None), None)
            if link is not None:
                idle.remove(link)
            else:
                link = await self._connect(address)
            self._lent.add(link)
            yield link
        finally:
            self._borrowers[address] -= 1
            if link is not None:
                self._take_back(link, idle)

    def _take_back(self, link: Link, idle: list[Link]) -> None:
        self._lent.discard(link)
        idle[:] = [one for one in idle if one.lost is None]
        if link.waiting or self._closed or len(idle) >= _IDLE_ALONE:
            link.close()
        elif link.lost is None:
            idle.append(link)

    def prune(self, current: set[Address], now: float) -> None:
        """Close links without a request under way that are idle for too long, or lead to no broker of the cluster."""
        limit = self._settings.connections_max_idle_ms / 1000
        everything = [*self._links.values(), *(link for idle in self._idle.values() for link in idle)]
        for link in everything:
            if not link.waiting and (link.address not in current or now - link.used > limit):
                link.close()
        for address in [one for one in self._failed if one not in current]:
            del self._failed[address]

    def close(self) -> None:
        """Close all links; requests under way fail."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        idle = [link for links in self._idle.values() for link in links]
        for link in [*self._links.values(), *self._lent, *idle]:
            link.close()
        self._idle.clear()
