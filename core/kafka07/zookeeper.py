"""A session with ZooKeeper: kazoo in its own threads, and one thread of ours that waits for its answers.

Only bytes and words cross to the event loop: paths, values, and the three states of kazoo. Everything here that
is not `async` runs in a thread and touches nothing but the session. kazoo is imported by that thread as well: a
gateway without `--zookeeper` does not pay for it, and one with it does not wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.kafka07.zookeeper_tree import Node

CONNECTED, SUSPENDED, LOST = "CONNECTED", "SUSPENDED", "LOST"
# A node that goes away between two requests, or comes, is tried again, but not for ever.
_TRIES = 5


class SessionError(Exception):
    """ZooKeeper did not do what it was asked, for now: it is away, or slow, or refuses."""


class HeldError(Exception):
    """A node is there, made by somebody else's session; `value` is what it holds."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self.value = value


class ZooKeeperSession:
    """One session after the other, until `stop`. `on_state` is called on the event loop."""

    def __init__(
        self, hosts: str, *, session_timeout_ms: int, call_timeout_ms: int, on_state: Callable[[str], None]
    ) -> None:
        self._hosts = hosts
        self._session_timeout = session_timeout_ms / 1000
        self._call_timeout = call_timeout_ms / 1000
        self._on_state = on_state
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")
        self._client: Any = None
        # Set by `stop`: a thread that would begin to connect then does not.
        self._stopping = threading.Event()

    async def start(self) -> None:
        """Begin to connect, and go on until there is a connection. Returns at once."""
        loop = asyncio.get_running_loop()

        def tell(state: str) -> None:
            if not self._stopping.is_set():
                loop.call_soon_threadsafe(self._on_state, str(state))

        loop.run_in_executor(self._executor, self._connect, tell)

    async def stop(self) -> None:
        """End the session, with which its ephemeral nodes go; waits no longer than a call may take."""
        self._stopping.set()
        loop = asyncio.get_running_loop()
        # Not in our own thread: that one may wait for an answer, which this ends.
        await loop.run_in_executor(None, self._close)

    async def put(
        self, node: Node, creator: bytes, may_replace: Callable[[bytes], bool] | None = None
    ) -> None:
        """Make an ephemeral node of this session, with the nodes above it, which hold `creator`.

        One that an earlier session made is replaced in one step if `may_replace` says so of its value; without
        it, always. Raises HeldError otherwise, and SessionError.
        """
        await self._in_thread(_put, node, creator, may_replace)

    async def remove(self, path: str) -> None:
        """Remove a node of ours; nothing is wrong if it is gone. Raises SessionError."""
        await self._in_thread(_remove, path)

    async def owns(self, path: str) -> bool:
        """Whether a node is there and of this session. Raises SessionError."""
        return bool(await self._in_thread(_owns, path))

    async def leaves(self, path: str, limit: int) -> tuple[list[Node], bool]:
        """The nodes below a path that have none below them, and whether `limit` cut them. Raises SessionError."""
        found: tuple[list[Node], bool] = await self._in_thread(_leaves, path, limit)
        return found

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._call, work, arguments)
        except RuntimeError as error:  # the executor is shut down
            raise SessionError(str(error)) from None

    # --- in threads ----------------------------------------------------------------------------------------

    def _connect(self, tell: Callable[[str], None]) -> None:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        # It logs a line for each attempt; the registration logs what comes of them.
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        if self._stopping.is_set():
            return
        for_ever = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=2, max_jitter=0.3)
        self._client = KazooClient(
            hosts=self._hosts, timeout=self._session_timeout, connection_retry=for_ever
        )
        self._client.add_listener(tell)
        self._client.start_async()

    def _close(self) -> None:
        client = self._client
        if client is not None:
            client.stop()
        self._executor.shutdown(wait=True)
        if client is not None:
            client.close()

    def _call(self, work: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        from kazoo.exceptions import KazooException

        if self._client is None or not self._client.connected:
            raise SessionError("there is no connection")
        try:
            return work(_Calls(self._client, self._call_timeout), *arguments)
        except (KazooException, self._client.handler.timeout_exception) as error:
            raise SessionError(f"{type(error).__name__} {error}".strip()) from None


class _Calls:
    """The calls that are used of kazoo, each with a time limit, which its own synchronous ones lack."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name + "_async")
        return lambda *arguments, **options: call(*arguments, **options).get(timeout=self._timeout)

    @property
    def session_id(self) -> int:
        """The id that ZooKeeper writes down as the owner of our ephemeral nodes."""
        return int(self._client.client_id[0])

    def replace(self, node: Node, version: int) -> None:
        """Delete a node and make it anew as ours, so that nobody sees it gone."""
        transaction = self._client.transaction()
        transaction.delete(node.path, version=version)
        transaction.create(node.path, node.value, ephemeral=True)
        for result in transaction.commit_async().get(timeout=self._timeout):
            if isinstance(result, Exception):
                raise result


def _put(calls: _Calls, node: Node, creator: bytes, may_replace: Callable[[bytes], bool] | None) -> None:
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    for _ in range(_TRIES):
        try:
            calls.create(node.path, node.value, ephemeral=True)
            return
        except NoNodeError:
            _make_parents(calls, node.path, creator)
            continue
        except NodeExistsError:
            pass
        try:
            value, stat = calls.get(node.path)
            if stat.ephemeralOwner == calls.session_id:
                if value != node.value:
                    calls.set(node.path, node.value)
                return
            if may_replace is not None and not may_replace(value):
                raise HeldError(value)
            calls.replace(node, stat.version)
            return
        except (NoNodeError, NodeExistsError, BadVersionError):
            continue  # it changed under our hands
    raise SessionError(f"{node.path} changes all the time")


def _make_parents(calls: _Calls, path: str, creator: bytes) -> None:
    from kazoo.exceptions import NodeExistsError, NoNodeError

    calls.ensure_path("/")  # the path behind the hosts, if there is one
    parts = path.split("/")
    for depth in range(2, len(parts)):
        try:
            calls.create("/".join(parts[:depth]), creator)
        except (NodeExistsError, NoNodeError):
            continue


def _remove(calls: _Calls, path: str) -> None:
    from kazoo.exceptions import NoNodeError

    try:
        calls.delete(path)
    except NoNodeError:
        return


def _owns(calls: _Calls, path: str) -> bool:
    stat = calls.exists(path)
    return stat is not None and stat.ephemeralOwner == calls.session_id


def _leaves(calls: _Calls, path: str, limit: int) -> tuple[list[Node], bool]:
    from kazoo.exceptions import NoNodeError

    found: list[Node] = []
    waiting = [path]
    asked = 0
    while waiting:
        here = waiting.pop()
        if asked >= limit:
            return found, True
        asked += 1
        try:
            below = calls.get_children(here)
            if below:
                waiting += [f"{here}/{name}" for name in sorted(below, reverse=True)]
            elif here != path:
                found.append(Node(here, calls.get(here)[0] or b""))
        except NoNodeError:
            continue
    return found, False
