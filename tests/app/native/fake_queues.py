"""Queues in memory, as far as the tests of the HTTP surface need them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.queues import (
    EARLIEST,
    InFlight,
    Leased,
    Outcome,
    PartitionStats,
    QueueSettings,
    QueueStats,
    QueueView,
    Receipt,
    Receive,
    Received,
    Settle,
    Settled,
    Start,
    Verb,
)  # fmt: skip


class FakeQueues:
    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.views: dict[str, QueueView] = {}
        self.state: dict[tuple[str, TopicPartition, int], list[Any]] = {}  # [state, count, lease, until]
        self.begin: dict[tuple[str, TopicPartition], int] = {}
        self.leases = 0x7E
        self.taken_back: list[int] = []
        self.attempts: dict[str, Received] = {}

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        known = self.views.get(name)
        if if_version is not None and (known.version if known else 0) != if_version:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "version")
        if known and known.settings == settings:
            return known
        view = QueueView(
            name, settings, known.version + 1 if known else 1, False, self.broker.clock.wall_ms()
        )
        self.views[name] = view
        return view

    def get(self, name: str) -> QueueView:
        if name not in self.views:
            if name.startswith("classic"):
                raise BrokerError(
                    ErrorCode.GROUP_ID_NOT_FOUND, "It is a consumer group.", reason="group-type"
                )
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no queue {name!r}.")
        return self.views[name]

    def names(self) -> Sequence[str]:
        return sorted(self.views)

    def topics(self, name: str) -> Sequence[str]:
        return self.get(name).settings.topics

    async def delete(self, name: str, *, force: bool = False) -> None:
        self.get(name)
        if not force and any(k[0] == name and v[0] == "leased" for k, v in self.state.items()):
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, "leases live")
        del self.views[name]

    def _tps(self, name: str) -> list[TopicPartition]:
        return [
            TopicPartition(t, p)
            for t in self.topics(name)
            for p in range(self.broker.topics.get(t).partitions)
        ]

    def _candidates(self, name: str) -> list[tuple[TopicPartition, Any]]:
        found = []
        for tp in self._tps(name):
            info = self.broker.partitions.info(tp).offsets
            start = self.begin.setdefault(
                (name, tp),
                info.log_start_offset
                if self.get(name).settings.start.at == EARLIEST
                else info.high_watermark,
            )
            offset = start
            while offset < info.high_watermark:
                result = self.broker.records.read_now(tp, offset, max_bytes=1 << 20, max_records=1)
                for record in result.records:
                    cell = self.state.get((name, tp, record.offset))
                    if cell is None or cell[0] == "available":
                        found.append((tp, record))
                offset = result.next_offset
        return found

    async def receive(self, name: str, request: Receive) -> Received:
        if name not in self.views:
            if request.create is None:
                self.get(name)
            await self.put(name, request.create)  # type: ignore[arg-type]
        if request.attempt in self.attempts:
            return self.attempts[request.attempt]
        view = self.get(name)
        end = self.broker.clock.monotonic() + request.wait_ms / 1000
        while True:
            found = [] if view.paused else self._candidates(name)[: request.max_records]
            if found or self.broker.clock.monotonic() >= end:
                break
            await asyncio.sleep(0.01)
        if not found:
            return Received(None, 0, (), "paused" if view.paused else None)
        self.leases += 1
        until = self.broker.clock.wall_ms() + (request.lock_ms or view.settings.lock_ms)
        records = []
        for tp, record in found:
            cell = self.state.setdefault((name, tp, record.offset), ["available", 0, None, None])
            cell[:] = ["leased", cell[1] + 1, self.leases, until]
            topic_id = self.broker.topics.get(tp.topic).topic_id
            records.append(
                Leased(tp, record, cell[1], Receipt(7, self.leases, topic_id, tp.partition, record.offset))
            )
        received = Received(self.leases, until, records)
        if request.attempt:
            self.attempts[request.attempt] = received
        return received

    async def take_back(self, name: str, lease: int) -> None:
        self.taken_back.append(lease)
        for key, cell in self.state.items():
            if key[0] == name and cell[2] == lease:
                cell[:] = ["available", cell[1] - 1, None, None]

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        self.get(name)
        outcomes = []
        for item in items:
            if item.receipt is not None:
                tp = TopicPartition(self.broker.topics.name_of(item.receipt.topic_id), item.receipt.partition)
                cell = self.state.get((name, tp, item.receipt.offset))
                if cell is None:
                    outcomes.append(Settled(Outcome.INVALID))
                elif cell[0] == "settled":
                    outcomes.append(Settled(Outcome.ALREADY_SETTLED))
                elif cell[2] != item.receipt.lease:
                    outcomes.append(Settled(Outcome.LEASE_LOST))
                else:
                    self._apply(cell, item)
                    outcomes.append(Settled(Outcome.SETTLED))
                continue
            cells = [
                c for k, c in self.state.items() if k[0] == name and c[2] == item.lease and c[0] == "leased"
            ]
            for cell in cells:
                self._apply(cell, item)
            outcomes.append(Settled(Outcome.SETTLED if cells else Outcome.LEASE_LOST, len(cells)))
        return outcomes

    def _apply(self, cell: list[Any], item: Settle) -> None:
        if item.verb in (Verb.ACCEPT, Verb.REJECT):
            cell[0] = "settled"
        elif item.verb is Verb.RELEASE:
            until = self.broker.clock.wall_ms() + (item.delay_ms or 0)
            cell[:] = ["delayed" if item.delay_ms else "available", cell[1] - (not item.counted), None, until]
        else:
            cell[3] = self.broker.clock.wall_ms() + (item.lock_ms or 30_000)

    async def pause(self, name: str) -> QueueView:
        self.views[name] = replace(self.get(name), paused=True)
        return self.views[name]

    async def resume(self, name: str) -> QueueView:
        self.views[name] = replace(self.get(name), paused=False)
        return self.views[name]

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        view = self.get(name)
        if not force and any(k[0] == name and v[0] == "leased" for k, v in self.state.items()):
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP, "leases live")
        self.views[name] = replace(view, settings=replace(view.settings, start=start))
        self.state = {k: v for k, v in self.state.items() if k[0] != name}
        self.begin = {k: v for k, v in self.begin.items() if k[0] != name}

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        void = Receipt(0, 0, self.broker.topics.get(self.topics(name)[0]).topic_id, 0, 0)
        return [Leased(tp, record, 0, void) for tp, record in self._candidates(name)[:limit]]

    def stats(self, name: str) -> QueueStats:
        parts = []
        for tp in self._tps(name):
            cells = {k[2]: v[0] for k, v in self.state.items() if k[:2] == (name, tp)}
            count = list(cells.values()).count
            available = len([1 for one, _ in self._candidates(name) if one == tp])
            parts.append(
                PartitionStats(
                    tp, 0, max(cells, default=-1) + 1, available, count("leased"), count("delayed"), 0, None
                )
            )
        return QueueStats(parts, 0, {"deliveries": self.leases})

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        self.get(name)
        found = sorted(k for k, v in self.state.items() if k[0] == name and v[0] in ("leased", "delayed"))
        return [InFlight(k[1], k[2], *self.state[k]) for k in found if after is None or (k[1], k[2]) > after][
            :limit
        ]

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        if tp not in self._tps(name):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The queue does not read {tp}.")
        return InFlight(tp, offset, *self.state.get((name, tp, offset), ["available", 0, None, None]))
