"""ZooKeeper as Kafka 0.7 uses it: the nodes of brokers and consumers, and a session that reads and writes them.

    /brokers/ids/[id]                                       creator:host:port, ephemeral
    /brokers/topics/[topic]/[id]                            number of partitions, ephemeral
    /consumers/[group]/ids/[consumer]                       what it subscribes to, ephemeral
    /consumers/[group]/owners/[topic]/[id]-[partition]      the consumer that reads it, ephemeral
    /consumers/[group]/offsets/[topic]/[id]-[partition]     the byte offset where it continues

The nodes above these hold the id of their creator. Source: the 0.7 wire format, "ZooKeeper".

The session is kazoo's, in its own threads, and one thread of ours that waits for its answers. Only paths, values and
kazoo's three states cross to the event loop. Functions that take `_Calls` run in that thread and touch nothing but
the session. That thread also imports kazoo: a broker without `--zookeeper` does not pay for it, and a broker with it
does not wait for the import.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from core.vocabulary.foreign_groups import ByteOffset, ForeignGroup, ForeignMember

CONSUMERS = "/consumers"
CONNECTED, SUSPENDED, LOST = "CONNECTED", "SUSPENDED", "LOST"
# How often a node is tried again that another client creates or deletes between two requests.
_TRIES = 5
# Bytes that are kept of a value. Any client of ZooKeeper can write values of 1 MiB.
_MAX_VALUE = 4_096
_PLACE = re.compile(r"(\d{1,9})-(\d{1,9})")
_LONG = re.compile(r"-?\d{1,18}")

T = TypeVar("T")


class Node(NamedTuple):
    """A node's path and value."""

    path: str
    value: bytes


def creator_of(host: str, started_ms: int) -> str:
    """Return the id with which a broker signs its nodes, as 0.7 builds it. Clients must not rely on its form."""
    return f"{host}-{started_ms}"


def id_node(broker_id: int, creator: str, host: str, port: int) -> Node:
    """Return the node that has the address of a broker."""
    return Node(f"/brokers/ids/{broker_id}", f"{creator}:{host}:{port}".encode())


def topic_node(broker_id: int, topic: str, partitions: int) -> Node:
    """Return the node that has the number of a topic's partitions on a broker."""
    return Node(f"/brokers/topics/{topic}/{broker_id}", str(partitions).encode())


def same_address(one: bytes, other: bytes) -> bool:
    """Return whether two values of id nodes name the same host and port, whichever broker signed them."""
    return one.partition(b":")[2] == other.partition(b":")[2]


def read_groups(nodes: Iterable[Node], broker_id: int) -> list[ForeignGroup]:
    """Return the groups that these leaves below /consumers describe. Leave out nodes of another form."""
    members: dict[str, dict[str, str]] = {}
    owned: dict[str, dict[str, list[tuple[str, int]]]] = {}
    offsets: dict[str, list[ByteOffset]] = {}
    for path, value in nodes:
        # "", consumers, group, kind, and one or two names; a group may have nothing below it
        _, _, group, *below = path.split("/")
        members.setdefault(group, {})
        kind, *names = below or [""]
        text = value.decode("utf-8", "replace")
        if kind == "ids" and len(names) == 1:
            members[group][names[0]] = text
        place = _PLACE.fullmatch(names[-1]) if len(names) == 2 else None
        if place is None:
            continue
        topic, found_id, partition = names[0], int(place[1]), int(place[2])
        if kind == "offsets" and _LONG.fullmatch(text):
            offsets.setdefault(group, []).append(ByteOffset(topic, found_id, partition, int(text)))
        elif kind == "owners" and found_id == broker_id:
            owned.setdefault(group, {}).setdefault(text, []).append((topic, partition))
    return [
        ForeignGroup(
            group,
            tuple(
                ForeignMember(one, text, tuple(sorted(places.get(one, ()))))
                for one, text in sorted(known.items())
            ),
            tuple(sorted(offsets.get(group, ()))),
        )
        for group, known in sorted(members.items())
        for places in [_by_member(owned.get(group, {}))]
    ]


def _by_member(owned: dict[str, list[tuple[str, int]]]) -> dict[str, list[tuple[str, int]]]:
    """Return what each member owns: each of its threads owns under the member's id, a dash and a number.

    Each owner is looked at once. Any client of ZooKeeper can write thousands of them.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for owner, places in owned.items():
        found.setdefault(owner, []).extend(places)
        member, dash, number = owner.rpartition("-")
        if dash and number.isdigit():
            found.setdefault(member, []).extend(places)
    return found


class SessionError(Exception):
    """A request to ZooKeeper failed: it is not connected, too slow, or refuses. Try again later."""


class HeldError(Exception):
    """A node exists and belongs to another session; `value` is what it holds."""

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
        """Begin to connect, and retry until there is a connection. Return at once."""
        loop = asyncio.get_running_loop()

        def tell(state: str) -> None:
            if not self._stopping.is_set():
                loop.call_soon_threadsafe(self._on_state, str(state))

        loop.run_in_executor(self._executor, self._connect, tell)

    async def stop(self) -> None:
        """End the session, which deletes its ephemeral nodes. Waits at most as long as one call may take."""
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
        await self._in_thread(partial(_put, node=node, creator=creator, may_replace=may_replace))

    async def remove(self, path: str) -> None:
        """Delete a node of ours, if it exists. Raises SessionError."""
        await self._in_thread(partial(_remove, path=path))

    async def owns(self, path: str) -> bool:
        """Return whether a node exists and is of this session. Raises SessionError."""
        return await self._in_thread(partial(_owns, path=path))

    async def leaves(self, path: str, limit: int) -> tuple[list[Node], bool]:
        """Return the leaves below a path, and whether `limit` requests were too few for all. Raises SessionError."""
        return await self._in_thread(partial(_leaves, path=path, limit=limit))

    async def _in_thread(self, work: Callable[[_Calls], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._call, work)
        except RuntimeError as error:  # the executor is shut down
            raise SessionError(str(error)) from None

    # --- in threads ----------------------------------------------------------------------------------------

    def _connect(self, tell: Callable[[str], None]) -> None:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        # It logs a line for each attempt; the registration logs the outcome.
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
            # kazoo's thread may have closed its own wake-up socket in between, which kazoo does not expect.
            with contextlib.suppress(AttributeError):
                client.stop()
        self._executor.shutdown(wait=True)
        if client is not None:
            client.close()

    def _call(self, work: Callable[[_Calls], T]) -> T:
        from kazoo.exceptions import KazooException

        if self._client is None or not self._client.connected:
            raise SessionError("there is no connection")
        try:
            return work(_Calls(self._client, self._call_timeout))
        except (KazooException, self._client.handler.timeout_exception) as error:
            raise SessionError(f"{type(error).__name__} {error}".strip()) from None


class _Calls:
    """The calls that are used of kazoo, each with a time limit, which its own synchronous ones lack."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def _wait(self, asked: Any) -> Any:
        return asked.get(timeout=self._timeout)

    def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Create a node."""
        self._wait(self._client.create_async(path, value, ephemeral=ephemeral))

    def get(self, path: str) -> tuple[bytes, Any]:
        """Return a node's value and kazoo's ZnodeStat."""
        value, stat = self._wait(self._client.get_async(path))
        return value or b"", stat

    def set(self, path: str, value: bytes) -> None:
        """Set a node's value."""
        self._wait(self._client.set_async(path, value))

    def delete(self, path: str) -> None:
        """Delete a node."""
        self._wait(self._client.delete_async(path))

    def owner(self, path: str) -> int | None:
        """Return the session that owns a node, 0 for a lasting one; None if there is no such node."""
        stat = self._wait(self._client.exists_async(path))
        return None if stat is None else int(stat.ephemeralOwner)

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below a node."""
        return sorted(self._wait(self._client.get_children_async(path)))

    def ensure_path(self, path: str) -> None:
        """Create a node and those above it, if they are missing."""
        self._wait(self._client.ensure_path_async(path))

    @property
    def session_id(self) -> int:
        """Return the id that ZooKeeper stores as the owner of our ephemeral nodes."""
        return int(self._client.client_id[0])

    def replace(self, node: Node, version: int) -> None:
        """Delete a node and create it as ours in one step, so that no client sees it missing."""
        transaction = self._client.transaction()
        transaction.delete(node.path, version=version)
        transaction.create(node.path, node.value, ephemeral=True)
        for result in self._wait(transaction.commit_async()):
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
            continue  # another client has changed it since
    raise SessionError(f"{node.path} changes all the time")


def _make_parents(calls: _Calls, path: str, creator: bytes) -> None:
    from kazoo.exceptions import NodeExistsError, NoNodeError

    calls.ensure_path("/")  # the path after the hosts, if there is one
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
    return calls.owner(path) == calls.session_id


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
            below = calls.children(here)
            if below:
                # No more of them than can be asked for: one node may have a million.
                waiting += [f"{here}/{name}" for name in reversed(below[: limit - asked + 1])]
            elif here != path:
                found.append(Node(here, calls.get(here)[0][:_MAX_VALUE]))
        except NoNodeError:
            continue
    return found, False
