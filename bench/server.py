"""The broker under measurement, a child process: what it used of processor, memory and descriptors."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker_process import BrokerProcess

# The clock id of another process's CPU time (clock_getcpuclockid(3)): all threads, in nanoseconds.
_CPUCLOCK_SCHED = 2


def cpu_ns(pid: int) -> int:
    """Processor time that a process has used so far, user and system, all threads, in nanoseconds."""
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@contextmanager
def on_other_cores(*pids: int) -> Iterator[None]:
    """Keep this process on one core and those on the others, as a client elsewhere would be.

    Left to itself the scheduler puts a client and a server that take turns on one core or on two, as it
    likes; waking a core that sleeps costs more than all else in a round trip.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield
        return
    own = min(cores)
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores - {own})
    os.sched_setaffinity(0, {own})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def broker(*options: str) -> Iterator[BrokerProcess]:
    """A broker over an empty directory, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = BrokerProcess(Path(directory) / "data", options=options)
        try:
            yield process.start()
        finally:
            process.kill()


@contextmanager
def measured_cpu(process: BrokerProcess) -> Iterator[list[float]]:
    """Collects the processor seconds that the broker uses inside the block, as the one item of a list."""
    used: list[float] = []
    before = cpu_ns(process.pid)
    yield used
    used.append((cpu_ns(process.pid) - before) / 1e9)
