"""The broker under measurement, a child process: what it used of processor, memory and descriptors."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

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


class Cores:
    """Which cores this process and the servers under measurement run on.

    Left to itself the scheduler puts a client and a server that take turns on one core or on two, as it likes,
    and waking a core that sleeps costs more than all else in a round trip.
    """

    def __init__(self) -> None:
        self._all = os.sched_getaffinity(0)
        self._server = {max(self._all)}
        self._client = self._all - self._server or self._all

    @contextmanager
    def apart(self, *pids: int) -> Iterator[None]:
        """Keep the servers on one core and this process on the others, as a client elsewhere would be."""
        for pid in pids:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), self._server)
        with self._here(self._client):
            yield

    @contextmanager
    def together(self, *pids: int) -> Iterator[None]:
        """Keep the servers and this process on one core: a server that is never waited for never sleeps."""
        with self.apart(*pids), self._here(self._server):
            yield

    @contextmanager
    def _here(self, cores: set[int]) -> Iterator[None]:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


CORES = Cores()


def touch_memory(size: int, piece: int) -> None:
    """Have `size` bytes of the page cache touched and free again, for the next write to a file.

    A virtual machine's memory may not be there until it is first touched, and returns to the host soon after it is
    freed; the first touch of a page costs ten times what copying into it costs. The kernel hands freed pages out
    again to writes of the same size on the same core: call it there, with the size that the broker writes.
    """
    data = b"\0" * (piece | 1)
    with tempfile.TemporaryFile(prefix="sluice-bench-", buffering=0) as file:
        for _ in range(size // len(data)):
            file.write(data)


@contextmanager
def broker(*options: str) -> Iterator[BrokerProcess]:
    """A broker over an empty directory, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = BrokerProcess(Path(directory) / "data", options=options)
        try:
            yield process.start()
        finally:
            process.kill()


class Running(Protocol):
    """A server that runs on this machine, whosever it is."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...


@contextmanager
def measured_cpu(process: Running) -> Iterator[list[float]]:
    """Collects the processor seconds that a server uses inside the block, as the one item of a list."""
    used: list[float] = []
    before = cpu_ns(process.pid)
    yield used
    used.append((cpu_ns(process.pid) - before) / 1e9)
