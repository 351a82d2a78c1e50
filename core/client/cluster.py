"""A Kafka cluster as one client sees it: brokers, topics, leaders, coordinators, and requests to each of them.

What is known is at hand (`topics`, `brokers`, `leader`); `refresh` brings it up to date. At most one Metadata request
is under way; calls that come meanwhile share the next one. Topics that were used in the last minutes are read again
every `metadata_max_age_ms`.

If no known broker answers, the bootstrap addresses are asked again (KIP-899); a broker may ask for that, too
(KIP-1102). A cluster with another id than the first one is refused: its offsets mean nothing here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct

from core.client.coordinators import CoordinatorKind, Coordinators
from core.client.failures import LinkLost, codes_of, error_code, refused
from core.client.leaders import Answers, Build, Item, LeaderQuestion, Result
from core.client.link import Link
from core.client.links import ALONE, SHARED, Links
from core.client.metadata import BrokerMetadata, PartitionMetadata, TopicMetadata, topic_of
from core.client.network import Network, Tcp
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from core.types import TopicPartition

logger = logging.getLogger(__name__)

# A topic is kept up to date this long after its last use.
_USED_SECONDS = 300.0
# Names without a topic that are remembered.
_MAX_ERRORS = 10_000
_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

T = TypeVar("T")
Changed = Callable[[Collection[str]], None]


class _Question:
    """The topics of the next Metadata request (None: all), and what waits for it."""

    def __init__(self) -> None:
        self.topics: set[str] | None = set()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ClusterClient:
    """Connections to a cluster, and what is known of it. `open` it before use, `close` it in the end.

    `changed` is called with the names of topics that were created, deleted, or whose metadata differ.
    """

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        network: Network | None = None,
        changed: Changed = lambda names: None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.changed = changed
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        # Why the last answer had no topic of this name.
        self.errors: dict[str, ErrorCode] = {}
        # When brokers were read last, and when all topics were, in the clock's monotonic time.
        self.read_at = self.all_read_at = float("-inf")
        self.links = Links(settings, clock, network or Tcp())
        self._coordinators = Coordinators()
        self._used: dict[str, float] = {}
        self._next: _Question | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runner: asyncio.Task[None] | None = None
        self._finding: dict[tuple[CoordinatorKind, str], asyncio.Task[int]] = {}
        self._turn = 0
        self._closed = False

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Ask a bootstrap broker for the cluster, and keep the metadata up to date from then on.

        Raises LinkLost if none answers within the request timeout, and what a login raises.
        """
        await self.refresh(())
        self._spawn(self._age())

    async def close(self) -> None:
        """Close all connections; requests under way fail with LinkLost."""
        self._closed = True
        self.links.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports tell their protocols in the next turn.
        await asyncio.sleep(0)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _age(self) -> None:
        """Refresh what is in use, and close idle links."""
        clock = self.clock
        while True:
            await asyncio.sleep(self.settings.metadata_max_age_ms / 1000 * (0.8 + 0.4 * clock.random()))
            now = clock.monotonic()
            self._used = {name: at for name, at in self._used.items() if now - at < _USED_SECONDS}
            try:
                await self.refresh(tuple(self._used))
            except BrokerError as error:
                logger.warning("the metadata of the cluster could not be refreshed: %s", error.message)
            current = {one.address for one in self.brokers.values()}
            self.links.prune(current, asyncio.get_running_loop().time())

    # --- what is known -------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata:
        """Return a topic that is at hand. Raises UNKNOWN_TOPIC_OR_PARTITION, or why the cluster does not show it."""
        found = self.topics.get(name)
        if found is None:
            code = self.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise BrokerError(code, f"The cluster does not show a topic {name!r}: {code.name}.")
        self._used[name] = self.clock.monotonic()
        return found

    def partition(self, tp: TopicPartition) -> PartitionMetadata:
        """Return a partition that is at hand. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.topic(tp.topic).partition(tp.partition)
        if found is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {tp.topic!r} has no partition {tp.partition}."
            )
        return found

    def leader(self, tp: TopicPartition) -> int:
        """Return the broker id of the leader that is at hand.

        Raises UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE.
        """
        leader = self.partition(tp).leader
        if leader < 0 or leader not in self.brokers:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {tp} has no leader now.")
        return leader

    def learn_leader(
        self, tp: TopicPartition, leader: int, epoch: int, endpoints: Iterable[Any] = ()
    ) -> bool:
        """Take the leader that an answer names (KIP-951); return whether it is news.

        `endpoints` are the `node_endpoints` of the answer.
        """
        for one in endpoints:
            if one.node_id not in self.brokers:
                address = Address(one.host, one.port)
                self.brokers[one.node_id] = BrokerMetadata(one.node_id, address, one.rack)
        topic = self.topics.get(tp.topic)
        known = None if topic is None else topic.partition(tp.partition)
        if topic is None or known is None or leader not in self.brokers or epoch <= known.leader_epoch:
            return False
        new = known._replace(leader=leader, leader_epoch=epoch)
        partitions = tuple(new if one is known else one for one in topic.partitions)
        self.topics[tp.topic] = topic._replace(partitions=partitions)
        return True

    # --- metadata ------------------------------------------------------------------------------------------

    async def refresh(self, topics: Collection[str] | None = None, *, max_age_ms: int = 0) -> None:
        """Read topics again, None: all of them, and the brokers; only what is older than `max_age_ms`.

        A topic that the cluster does not have is not created; see `errors`. Raises LinkLost if no broker answers
        within the request timeout.
        """
        since = self.clock.monotonic() - max_age_ms / 1000
        if max_age_ms and self._is_fresh(topics, since):
            return
        question = self._next
        if question is None:
            question = self._next = _Question()
            if self._runner is None:
                self._runner = self._spawn(self._run())
        if topics is None:
            question.topics = None
        elif question.topics is not None:
            question.topics.update(topics)
        await asyncio.shield(question.done)

    def _is_fresh(self, topics: Collection[str] | None, since: float) -> bool:
        if self.read_at <= since:
            return False
        if self.all_read_at > since:
            return True
        if topics is None:
            return False
        return all(name in self.topics and self.topics[name].read_at > since for name in topics)

    def refresh_soon(self, topics: Collection[str] = ()) -> None:
        """Begin a refresh without waiting for it; its failure is logged."""
        if not self._closed:
            self._spawn(self._refresh_quietly(topics))

    async def _refresh_quietly(self, topics: Collection[str]) -> None:
        try:
            await self.refresh(topics)
        except BrokerError as error:
            logger.debug("no metadata: %s", error.message)

    async def _run(self) -> None:
        """Send one Metadata request after another, as long as one is wanted."""
        question: _Question | None = None
        try:
            # The callers of this turn of the loop share the first one.
            await asyncio.sleep(0)
            while (question := self._next) is not None:
                self._next = None
                try:
                    self._take(await self._ask_metadata(question.topics), question.topics)
                except BrokerError as error:
                    question.done.set_exception(error)
                    # It may be that every caller was cancelled.
                    question.done.exception()
                else:
                    question.done.set_result(None)
        finally:
            self._runner = None
            for left in (question, self._next):
                if left is not None and not left.done.done():
                    left.done.cancel()

    async def _ask_metadata(self, topics: set[str] | None) -> MetadataResponse:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        deadline = self.clock.monotonic() + self.settings.request_timeout_ms / 1000
        attempt = 0
        while True:
            last: BrokerError | None = None
            for address in self._candidates():
                try:
                    link = await self.links.get(address)
                    answer: MetadataResponse = await link.call(request)
                    self._check(answer, address)
                except BrokerError as error:
                    if not error.code.retriable and error.code is not ErrorCode.REBOOTSTRAP_REQUIRED:
                        raise
                    last = error
                    continue
                return answer
            assert last is not None
            if self.clock.monotonic() >= deadline:
                raise last
            await self.pause(attempt)
            attempt += 1

    def _candidates(self) -> list[Address]:
        """Return where to ask: open links first, then the other brokers, then the bootstrap addresses (KIP-899)."""
        self._turn += 1
        known = [one.address for one in self.brokers.values()]
        if known:
            start = self._turn % len(known)
            known = known[start:] + known[:start]
        addresses = list(dict.fromkeys([*known, *self.settings.bootstrap]))

        def order(address: Address) -> tuple[bool, bool]:
            return self.links.resting(address), self.links.ready(address) is None

        # The bootstrap addresses stay after the brokers: a sort keeps the order of equals.
        return sorted(addresses, key=order)

    def _check(self, answer: MetadataResponse, address: Address) -> None:
        code = error_code(answer.error_code)
        if code is ErrorCode.REBOOTSTRAP_REQUIRED:
            logger.info("the broker at %s asks for another bootstrap", address)
            self.brokers.clear()
        if code is not ErrorCode.NONE:
            raise refused(answer.error_code, f"Metadata at {address}")
        found = answer.cluster_id or ""
        if self.cluster_id and found and found != self.cluster_id:
            raise LinkLost(
                f"The broker at {address} belongs to the cluster {found!r}, not to {self.cluster_id!r}.",
                sent=False,
            )

    def _take(self, answer: MetadataResponse, asked: set[str] | None) -> None:
        now = self.clock.monotonic()
        self.read_at = now
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self.brokers = {
                one.node_id: BrokerMetadata(one.node_id, Address(one.host, one.port), one.rack)
                for one in answer.brokers
            }
        if len(self.errors) > _MAX_ERRORS:
            self.errors.clear()
        changed: set[str] = set()
        found: set[str] = set()
        for one in answer.topics:
            name, code = one.name or "", error_code(one.error_code)
            found.add(name)
            old = self.topics.get(name)
            if code is ErrorCode.NONE:
                self.errors.pop(name, None)
                new = self.topics[name] = topic_of(one, now, old)
                if old is None or not new.same_as(old):
                    changed.add(name)
            else:
                self.errors[name] = code
                # A topic whose partitions are being made, or whose leaders are away, still exists.
                if code is not ErrorCode.LEADER_NOT_AVAILABLE and self.topics.pop(name, None) is not None:
                    changed.add(name)
        if asked is None:
            self.all_read_at = now
            for name in self.topics.keys() - found:
                del self.topics[name]
                changed.add(name)
        if changed:
            self.changed(changed)

    # --- requests ------------------------------------------------------------------------------------------

    async def pause(self, attempt: int) -> None:
        """Wait before another attempt; the first one is number 0. The pause doubles up to `retry_backoff_max_ms`."""
        settings = self.settings
        ms = min(settings.retry_backoff_ms * 2 ** min(attempt, 20), settings.retry_backoff_max_ms)
        await asyncio.sleep(ms / 1000 * (0.8 + 0.4 * self.clock.random()))

    async def link(self, broker_id: int, lane: str = SHARED) -> Link:
        """Return the open link to a broker. Raises LinkLost, BROKER_NOT_AVAILABLE for an id that Metadata lacks."""
        address = await self._address(broker_id)
        ready = self.links.ready(address, lane)
        return ready if ready is not None else await self.links.get(address, lane)

    async def _address(self, broker_id: int) -> Address:
        if broker_id not in self.brokers:
            await self.refresh(())
        found = self.brokers.get(broker_id)
        if found is None:
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"The cluster does not show a broker {broker_id}."
            )
        return found.address

    @asynccontextmanager
    async def _lend(self, broker_id: int, lane: str) -> AsyncIterator[Link]:
        if lane != ALONE:
            yield await self.link(broker_id, lane)
            return
        async with self.links.alone(await self._address(broker_id)) as link:
            yield link

    async def ask(
        self,
        broker_id: int,
        request: Struct,
        *,
        lane: str = SHARED,
        timeout_ms: int | None = None,
        newest: int | None = None,
        client_id: str | None = None,
    ) -> Any:
        """Send a request to one broker and return its answer, whatever error codes it has.

        A request that was not written, because its connection had ended, is sent once more. `lane`: see
        `core.client.links`. `timeout_ms`, `newest`, `client_id`: see `Link.call`. Raises LinkLost,
        BROKER_NOT_AVAILABLE, UNSUPPORTED_VERSION, and what a login raises.
        """
        try:
            return await self._ask_once(broker_id, request, lane, timeout_ms, newest, client_id)
        except LinkLost as error:
            self._coordinators.forget_broker(broker_id)
            self.refresh_soon()
            if error.sent:
                raise
        return await self._ask_once(broker_id, request, lane, timeout_ms, newest, client_id)

    async def _ask_once(
        self,
        broker_id: int,
        request: Struct,
        lane: str,
        timeout_ms: int | None,
        newest: int | None,
        client_id: str | None,
    ) -> Any:
        async with self._lend(broker_id, lane) as link:
            return await link.call(request, timeout_ms=timeout_ms, newest=newest, client_id=client_id)

    async def ask_any(
        self, request: Struct, *, timeout_ms: int | None = None, newest: int | None = None
    ) -> Any:
        """Send a request that every broker can answer to one of them, then to the others if it is lost.

        The request may be carried out more than once. Raises LinkLost if none answers.
        """
        last: BrokerError | None = None
        for address in self._candidates():
            try:
                link = await self.links.get(address)
                return await link.call(request, timeout_ms=timeout_ms, newest=newest)
            except LinkLost as error:
                last = error
        assert last is not None
        raise last

    async def ask_controller(self, request: Struct, *, timeout_ms: int | None = None) -> Any:
        """Send a request to the controller and return its answer; again if it is not the controller any more.

        Without a known controller any broker gets it: those of Kafka 3 and later pass it on. Raises LinkLost if it is
        not known whether a request was carried out.
        """
        deadline = self._deadline(timeout_ms)
        attempt = 0
        while True:
            if self.controller_id not in self.brokers:
                await self.refresh(())
            answer = None
            try:
                if self.controller_id in self.brokers:
                    answer = await self.ask(self.controller_id, request, timeout_ms=timeout_ms)
                else:
                    answer = await self.ask_any(request, timeout_ms=timeout_ms)
            except LinkLost as error:
                if error.sent or self.clock.monotonic() >= deadline:
                    raise
            if answer is not None and ErrorCode.NOT_CONTROLLER not in codes_of(answer):
                return answer
            if answer is not None and self.clock.monotonic() >= deadline:
                return answer
            await self.pause(attempt)
            attempt += 1
            await self.refresh(())

    # --- coordinators --------------------------------------------------------------------------------------

    async def find_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Return the broker id of a coordinator, from memory or by FindCoordinator; one attempt.

        Raises COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        known = self._coordinators.get(kind, key)
        if known is not None and known in self.brokers:
            return known
        task = self._finding.get((kind, key))
        if task is None:
            task = self._finding[kind, key] = self._spawn(self._find(kind, key))
            task.add_done_callback(lambda done: self._found(kind, key, done))
        return await asyncio.shield(task)

    def _found(self, kind: CoordinatorKind, key: str, task: asyncio.Task[int]) -> None:
        self._finding.pop((kind, key), None)
        if not task.cancelled():
            task.exception()

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        request = FindCoordinatorRequest(key=key, key_type=int(kind), coordinator_keys=[key])
        answer: FindCoordinatorResponse = await self.ask_any(request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise refused(found.error_code, f"FindCoordinator of {key!r}", found.error_message)
        if found.node_id not in self.brokers:
            address = Address(found.host, found.port)
            self.brokers[found.node_id] = BrokerMetadata(found.node_id, address)
        self._coordinators.learn(kind, key, found.node_id)
        return found.node_id

    async def ask_coordinator(
        self,
        key: str,
        request: Struct,
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        lane: str = SHARED,
        timeout_ms: int | None = None,
        patience_ms: int | None = None,
        newest: int | None = None,
        client_id: str | None = None,
    ) -> Any:
        """Send a request to the coordinator of a group or a transactional id, and return its answer.

        It is sent again, to the coordinator of that moment, as long as the connection is lost or the answer says
        NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or COORDINATOR_LOAD_IN_PROGRESS, for `patience_ms` (None: the
        request timeout); then that answer is returned, or LinkLost raised. So a request may be carried out more than
        once: those to coordinators carry ids and generations that make this harmless. `timeout_ms` is for one
        attempt: add what JoinGroup and SyncGroup may wait, and use the lane "alone" for them.
        """
        deadline = self._deadline(patience_ms)
        attempt = 0
        while True:
            broker_id = -1
            try:
                broker_id = await self.find_coordinator(key, kind)
                answer = await self.ask(
                    broker_id, request, lane=lane, timeout_ms=timeout_ms, newest=newest, client_id=client_id
                )
                if _COORDINATOR_ERRORS.isdisjoint(map(error_code, codes_of(answer))):
                    return answer
                if self.clock.monotonic() >= deadline:
                    return answer
            except BrokerError as error:
                lost = isinstance(error, LinkLost) or error.code is ErrorCode.BROKER_NOT_AVAILABLE
                if not (lost or error.code in _COORDINATOR_ERRORS) or self.clock.monotonic() >= deadline:
                    raise
            self._coordinators.forget(kind, key, broker_id)
            await self.pause(attempt)
            attempt += 1

    # --- leaders -------------------------------------------------------------------------------------------

    async def ask_leaders(
        self,
        items: Mapping[TopicPartition, Item],
        build: Build[Item],
        answers: Answers[Result],
        *,
        patience_ms: int | None = None,
        timeout_ms: int | None = None,
        newest: int | None = None,
    ) -> dict[TopicPartition, Result | BrokerError]:
        """Ask the leaders of partitions, one request for each leader, and return what each partition got.

        `build` makes the request for some of the items; `answers` returns (tp, error code, result) of an answer. A
        partition whose leader has moved, or whose broker is lost, is asked again for `patience_ms` (None: the request
        timeout); so the request must be harmless if carried out twice. Errors are results; nothing is raised but what
        a login raises.
        """
        question = LeaderQuestion(self, build, answers, timeout_ms, newest)
        return await question.run(items, self._deadline(patience_ms))

    def _deadline(self, ms: int | None) -> float:
        return self.clock.monotonic() + (self.settings.request_timeout_ms if ms is None else ms) / 1000
