"""Questions about many partitions: split by leader, asked in parallel, asked again where a leader has moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from core.client.failures import LinkLost, error_code, refused
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition

Item = TypeVar("Item")
Result = TypeVar("Result")

Build = Callable[[Mapping[TopicPartition, Item]], Struct]
Answers = Callable[[Any], Iterable[tuple[TopicPartition, int, Result]]]

# After these another broker, or the same one a little later, may answer.
MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class _Cluster(Protocol):
    """What is needed of `ClusterClient`."""

    def leader(self, tp: TopicPartition) -> int: ...

    async def refresh(self, topics: Any = None, *, max_age_ms: int = 0) -> None: ...

    async def pause(self, attempt: int) -> None: ...

    async def ask(
        self, broker_id: int, request: Struct, *, timeout_ms: int | None = None, newest: int | None = None
    ) -> Any: ...

    @property
    def clock(self) -> Any: ...


class LeaderQuestion(Generic[Item, Result]):
    """One question; see `ClusterClient.ask_leaders`."""

    def __init__(
        self,
        cluster: _Cluster,
        build: Build[Item],
        answers: Answers[Result],
        timeout_ms: int | None,
        newest: int | None,
    ) -> None:
        self._cluster = cluster
        self._build = build
        self._answers = answers
        self._timeout_ms = timeout_ms
        self._newest = newest
        self._results: dict[TopicPartition, Result | BrokerError] = {}

    async def run(
        self, items: Mapping[TopicPartition, Item], deadline: float
    ) -> dict[TopicPartition, Result | BrokerError]:
        """Ask until each partition has a result that lasts, or the deadline has passed."""
        left = dict(items)
        attempt = 0
        while left:
            await self._look(left, again=attempt > 0)
            await self._ask(left)
            left = {tp: items[tp] for tp in left if self._may_pass(tp)}
            if not left or self._cluster.clock.monotonic() >= deadline:
                break
            await self._cluster.pause(attempt)
            attempt += 1
        return self._results

    async def _look(self, items: Mapping[TopicPartition, Item], *, again: bool) -> None:
        """Bring the leaders to hand: all of them `again`, or those that are missing."""
        missing = {tp.topic for tp in items if again or isinstance(self._leader(tp), BrokerError)}
        if missing:
            try:
                await self._cluster.refresh(missing)
            except LinkLost as error:
                self._results.update(dict.fromkeys(items, error))

    def _leader(self, tp: TopicPartition) -> int | BrokerError:
        try:
            return self._cluster.leader(tp)
        except BrokerError as error:
            return error

    async def _ask(self, items: Mapping[TopicPartition, Item]) -> None:
        by_leader: dict[int, dict[TopicPartition, Item]] = {}
        for tp, item in items.items():
            leader = self._leader(tp)
            if isinstance(leader, BrokerError):
                self._results[tp] = leader
            else:
                by_leader.setdefault(leader, {})[tp] = item
        await asyncio.gather(*(self._ask_one(leader, part) for leader, part in by_leader.items()))

    async def _ask_one(self, leader: int, items: Mapping[TopicPartition, Item]) -> None:
        request = self._build(items)
        try:
            answer = await self._cluster.ask(
                leader, request, timeout_ms=self._timeout_ms, newest=self._newest
            )
        except BrokerError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            self._results.update(dict.fromkeys(items, error))
            return
        name = type(request).__name__.removesuffix("Request")
        left = set(items)
        for tp, code, result in self._answers(answer):
            left.discard(tp)
            self._results[tp] = refused(code, f"{name} of {tp}") if code else result
        for tp in left:
            self._results[tp] = BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The answer to {name} does not name {tp}."
            )

    def _may_pass(self, tp: TopicPartition) -> bool:
        result = self._results[tp]
        return isinstance(result, BrokerError) and error_code(result.code) in MOVED
