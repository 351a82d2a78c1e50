"""A broker under load for a long time, and whether anything of it grows: memory, descriptors, threads, SQLite, disk.

The run is cut into parts. The first is for warming up: caches fill, keys and groups reach the age at which they
expire. After it each figure's median over the last part must not be above that over the second by more than its
allowance.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.limits.churn import CONFIGS, PARTITIONS, PAUSE_SECONDS, STEADY, WORKERS, Soak

MIB = 1024 * 1024
PARTS = 4
# Whatever expires has to do so within the first part of a short run, so that the rest of it is flat.
EXPIRY = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50",
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "1000",
    "SLUICE_TEXT_SESSION_TIMEOUT_MS": "6000",
    "SLUICE_OFFSETS_RETENTION_CHECK_INTERVAL_MS": "1000",
    "SLUICE_IDEMPOTENCY_CHECK_INTERVAL_MS": "1000",
}
EXPIRING = ("SLUICE_OFFSETS_RETENTION_MS", "SLUICE_IDEMPOTENCY_TTL_MS", "SLUICE_PRODUCER_ID_EXPIRATION_MS")


@dataclass(frozen=True)
class Sample:
    """What the process holds at one moment: bytes, and numbers."""

    memory: int
    descriptors: int
    threads: int
    sqlite: int
    disk: int


# What the last part's median may be above the second's.
ALLOWED = Sample(memory=6 * MIB, descriptors=15, threads=2, sqlite=MIB // 2, disk=4 * MIB)


def take(broker: BrokerProcess) -> Sample:
    """Look at the process and its directory."""
    process = psutil.Process(broker.pid)
    sqlite = disk = 0
    # Directories are made and removed meanwhile; os.walk skips those that are removed.
    for folder, _, names in os.walk(broker.data_dir):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size = os.stat(os.path.join(folder, name)).st_size
                sqlite, disk = (
                    (sqlite + size, disk) if name.startswith("metadata.db") else (sqlite, disk + size)
                )
    return Sample(process.memory_info().rss, process.num_fds(), process.num_threads(), sqlite, disk)


def growth(samples: list[Sample]) -> dict[str, tuple[float, float, bool]]:
    """Of each figure: its median in the second part and in the last, and whether that is too much more."""
    size = len(samples) // PARTS
    early, late = samples[size : 2 * size], samples[-size:]
    found = {}
    for one in fields(Sample):
        before = statistics.median(getattr(sample, one.name) for sample in early)
        after = statistics.median(getattr(sample, one.name) for sample in late)
        found[one.name] = (before, after, after - before > getattr(ALLOWED, one.name))
    return found


def run(
    directory: Path,
    seconds: float,
    rate: int,
    say: Callable[[str], None],
    pause: float = PAUSE_SECONDS,
) -> tuple[Soak, list[Sample]]:
    """Soak a broker; what was done, and samples at equal distances. Raises AssertionError if something went wrong."""
    expiring = dict.fromkeys(EXPIRING, str(max(5000, int(seconds * 1000 / PARTS / 2))))
    broker = BrokerProcess(directory / "data", environment={**EXPIRY, **expiring}, schemes=("text",)).start()
    soak = Soak(broker, rate, pause)
    try:
        with Wire(broker.kafka_address) as wire:
            wire.create_topic(STEADY, partitions=PARTITIONS, **CONFIGS)
        threads = [soak.worker(work) for work in WORKERS]
        for thread in threads:
            thread.start()
        samples: list[Sample] = []
        begun, step = time.monotonic(), max(0.5, seconds / 200)
        while (passed := time.monotonic() - begun) < seconds and not soak.stop.wait(step):
            samples.append(take(broker))
            if len(samples) % 10 == 0:
                say(f"{passed:7.0f} s  {shown(samples[-1])}  {dict(soak.done)}")
        soak.stop.set()
        for thread in threads:
            thread.join(60)
        assert not soak.failures, (soak.failures, broker.read_log()[-3000:])
        assert not [thread.name for thread in threads if thread.is_alive()]
        assert broker.running, broker.read_log()[-3000:]
        assert broker.stop() == 0
        assert "Traceback" not in broker.read_log(), broker.read_log()[-5000:]
        return soak, samples
    finally:
        soak.stop.set()
        broker.kill()


def shown(sample: Sample) -> str:
    """A sample in one line."""
    return (
        f"{sample.memory / MIB:6.1f} MiB, {sample.descriptors} descriptors, {sample.threads} threads, "
        f"SQLite {sample.sqlite / MIB:.2f} MiB, logs {sample.disk / MIB:.1f} MiB"
    )
