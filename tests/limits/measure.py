"""Runs one attack against a broker process of its own: memory before and under it, and how a bystander fares."""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.protocol.messages.metadata import MetadataRequest
from tests.broker_process import BrokerProcess
from tests.clients.wire import METADATA, Wire, batch, frame
from tests.limits.attacks import MIB, Case, connect, sized

# Round trips of the bystander before the attack, and under it.
ROUND_TRIPS = 300
_DESCRIPTORS = 20_000


@dataclass(frozen=True)
class Measured:
    """What an attack did: bytes of memory, and the bystander's 99th percentile in milliseconds."""

    case: Case
    growth: int
    calm_p99: float
    p99: float
    growth_limit: int

    @property
    def held(self) -> bool:
        """Whether the memory stayed under its bound."""
        return self.growth <= self.growth_limit

    def __str__(self) -> str:
        return (
            f"{self.case.name:14} {self.growth / MIB:7.1f} MiB of {self.growth_limit / MIB:5.0f}"
            f"   bystander p99 {self.calm_p99:6.2f} → {self.p99:6.2f} ms   {self.case.what}"
        )


def measure(case: Case, directory: Path, scale: float) -> Measured:
    """Start a broker, attack it, stop it. AssertionError when a bystander is not served or a traceback is logged."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _DESCRIPTORS), hard))
    broker = BrokerProcess(directory / "data", schemes=("text",)).start()
    try:
        _prepare(broker)
        found = asyncio.run(_measure(case, broker, scale))
    finally:
        broker.stop()
    assert "Traceback" not in broker.read_log(), broker.read_log()[-3000:]
    return found


def _prepare(broker: BrokerProcess) -> None:
    with Wire(broker.kafka_address) as wire:
        for name, configs in (("quiet", {}), ("large", {}), ("compacted", {"cleanup_policy": "compact"})):
            wire.create_topic(name, **configs)
        for _ in range(60):
            wire.produce("large", batch([bytes(900_000)]), acks=1)


async def _measure(case: Case, broker: BrokerProcess, scale: float) -> Measured:
    process = psutil.Process(broker.pid)
    await _bystander(broker, 100)
    calm = await _bystander(broker, ROUND_TRIPS)
    before = process.memory_info().rss
    peak = before
    watching = True

    async def watch() -> None:
        nonlocal peak
        while watching:
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.02)

    watcher = asyncio.ensure_future(watch())
    async with case.begin(broker, scale):
        await asyncio.sleep(0.5)
        under = await _bystander(broker, ROUND_TRIPS)
    watching = False
    await watcher
    return Measured(case, peak - before, calm, under, int(case.growth * (scale if case.by_number else 1)))


async def _bystander(broker: BrokerProcess, count: int) -> float:
    """Return the 99th percentile of the round trips of an honest client, in milliseconds."""
    reader, writer = await connect(broker)
    request = sized(frame(METADATA, 9, 1, MetadataRequest(topics=[])))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        writer.write(request)
        (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 20))
        await reader.readexactly(size)
        times.append(time.perf_counter() - start)
        await asyncio.sleep(0.001)
    writer.close()
    return sorted(times)[int(count * 0.99)] * 1000
