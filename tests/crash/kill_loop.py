"""The kill loop: a broker under the load of clients of all protocols is killed with SIGKILL, again and again.

Writers of every protocol write numbered values all the time (`writers`), groups of four kinds read and commit
(`readers`), and all of it is recorded in one history (`history`). Transactions have their own producers, reader and
ledger (`transactors`), and so have the workers of a queue (`queue_workers`). After every restart the newest part of
the log is compared with what was acknowledged and read before; in the end everything is, and the history is checked
for every anomaly that the Kafka model knows. Between the last fault and the end everything has to be read within a
minute. The second form (R10) has other faults as well: the process is stopped (SIGSTOP) for up to 8 s, longer than
the sessions of the groups' members, or is stopped in order. Topics and settings stay as they were; a start is soon
over.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.crash import transactors
from tests.crash.history import History, Place, check, unseen
from tests.crash.queue_workers import QueueWorkers
from tests.crash.readers import READ_BY, READERS
from tests.crash.transactors import Transactors
from tests.crash.writers import PARTITIONS, WRITERS

# Small segments, so that kills meet rolls and old segments as well.
CONFIGS = {"segment_bytes": "200000"}
ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "200"}
SCHEMES = ("text", "kafka07?magic=1")
# Processor time until it is ready again, so that a busy machine does not fail the test.
READY_CPU_SECONDS = 3.0
# Values of these topics are sent until they are answered, or sent once: twice they must not be there.
ONCE = set(WRITERS)
# Seconds that clients have to come to their end, and that readers have to read what is there.
FINISH_SECONDS = 120.0
DRAIN_SECONDS = 60.0
FAULTS = ("kill", "pause", "restart")
# Seconds between two faults, and of a pause.
BETWEEN = (0.2, 3.0)
PAUSES = (0.5, 8.0)


def shown_settings(broker: BrokerProcess) -> Any:
    """Every topic with its id and settings, as REST shows them."""
    kept = ("name", "topic_id", "configs", "effective_configs", "created")
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=30, trust_env=False) as http:
        shown = {topic: http.get(f"/topics/{topic}").raise_for_status().json() for topic in WRITERS}
    return {topic: {key: answer[key] for key in kept} for topic, answer in shown.items()}


def read_from(broker: BrokerProcess, start: dict[tuple[str, int], int]) -> dict[Place, bytes]:
    """All values from these offsets on, with their places; asserts that offsets rise by one."""
    found: dict[Place, bytes] = {}
    with Wire(broker.kafka_address) as wire:
        for topic in WRITERS:
            for partition in range(PARTITIONS):
                offset = start.get((topic, partition), 0)
                for message in wire.read_from(topic, offset, partition=partition):
                    assert message.offset == offset, f"a hole in {topic}-{partition} before {message.offset}"
                    assert message.value is not None
                    found[topic, partition, offset] = message.value
                    offset += 1
    return found


def compare(before: dict[Place, bytes], found: dict[Place, bytes], start: dict[tuple[str, int], int]) -> None:
    """What was known before the kill is there, unchanged, as far as it was read again."""
    for place, value in before.items():
        if place[2] >= start.get(place[:2], 0):
            assert place in found, f"lost write: {value!r} was at {place} and is lost"
            assert found[place] == value, f"{place}: {value!r} became {found[place]!r}"


def recent(known: dict[Place, bytes], back: int = 1000) -> dict[tuple[str, int], int]:
    """Where to read again after a kill: so far before the end of what is known. The rest is read at the end."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for topic, partition, offset in known:
        ends[topic, partition] = max(ends[topic, partition], offset)
    return {place: max(0, end - back) for place, end in ends.items()}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, all threads (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class KillLoop:
    """One run of the loop over one data directory."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        faults: Sequence[str] = ("kill",),
        between: tuple[float, float] = BETWEEN,
    ) -> None:
        self.chance = random.Random(seed)
        self.faults, self.between = faults, between
        self.broker = BrokerProcess(directory / "data", environment=ENVIRONMENT, schemes=SCHEMES)
        self.history = History()
        self.seen: dict[Place, bytes] = {}
        self.slowest = 0.0
        self.writers = [
            threading.Thread(target=write, args=(self.broker, self.history), name=name)
            for name, write in WRITERS.items()
        ]
        self.transactors = Transactors(self.broker, self.history, seed)
        self.writers += self.transactors.writers
        self.queue = QueueWorkers(self.broker, self.history, seed)
        self.writers += self.queue.writers
        self.threads = (
            self.writers
            + self.transactors.readers
            + self.queue.workers
            + [
                threading.Thread(target=read, args=(self.broker, self.history, name), name=name)
                for name, read in READERS
            ]
        )

    def run(self, rounds: int) -> str:
        """Kill that number of times. Raises AssertionError at the first broken promise."""
        self.broker.start()
        try:
            with Wire(self.broker.kafka_address) as wire:
                for topic in WRITERS:
                    wire.create_topic(topic, partitions=PARTITIONS, **CONFIGS)
                wire.create_topic(transactors.TOPIC, partitions=transactors.PARTITIONS, **CONFIGS)
            self.queue.prepare()
            settings = shown_settings(self.broker)
            for thread in self.threads:
                thread.start()
            for number in range(1, rounds + 1):
                self._round(number, settings)
            return self._reckon(rounds)
        finally:
            self.history.end()
            self.broker.kill()

    def _round(self, number: int, settings: Any) -> None:
        self.history.stop.wait(self.chance.uniform(*self.between))
        fault = self.chance.choice(self.faults)
        if fault == "pause":
            self.broker.pause()
            time.sleep(self.chance.uniform(*PAUSES))
            self.broker.resume()
        else:
            if fault == "kill":
                self.broker.kill()
            else:
                assert self.broker.stop() == 0
            self.broker.start()
            self.slowest = max(self.slowest, cpu_seconds(self.broker.pid))
        assert shown_settings(self.broker) == settings
        known = {**self.seen, **dict(self.history.acknowledged)}
        since = recent(known)
        found = read_from(self.broker, since)
        compare(known, found, since)
        self.seen.update(found)
        assert not self.history.failures, (self.history.failures, self.broker.read_log()[-5000:])
        print(f"round {number}: {fault}, {len(known)} records known", flush=True)

    def _reckon(self, rounds: int) -> str:
        """Everything at the end."""
        self.history.enough.set()
        for thread in self.writers:
            thread.join(FINISH_SECONDS)
        until = time.monotonic() + DRAIN_SECONDS
        while (left := unseen(self.history, READ_BY)) and time.monotonic() < until:
            self.history.stop.wait(1)
        assert not left, (len(left), left[:10])
        self.queue.drain()
        self.history.stop.set()
        for thread in self.threads:
            thread.join(FINISH_SECONDS)
        hanging = [thread.name for thread in self.threads if thread.is_alive()]
        assert not hanging, f"{hanging} do not end"
        log = read_from(self.broker, {})
        compare(self.seen, log, {})
        transactions = self.transactors.check()
        queue = self.queue.check()
        anomalies = check(self.history, log, once=ONCE, ordered=ONCE)
        assert not anomalies, (len(anomalies), anomalies[:10], self.broker.read_log()[-3000:])
        assert "Traceback" not in self.broker.read_log(), self.broker.read_log()[-5000:]
        assert self.slowest <= READY_CPU_SECONDS, f"a start took {self.slowest:.2f} s of processor time"
        polled = sum(len(session.polled) for session in self.history.sessions)
        missing = [topic for topic in WRITERS if not any(place[0] == topic for place in log)]
        assert not missing and polled, f"nothing happened in {missing}, {polled} records were polled"
        return (
            f"{rounds} faults ({', '.join(self.faults)}), {len(log)} records, "
            f"{len(self.history.acknowledged)} acknowledged, none unseen, {polled} polled in "
            f"{len(self.history.sessions)} assignments, {len(self.history.confirmed)} committed positions, "
            f"{transactions}, {queue}, slowest start {self.slowest:.2f} s of work; no anomaly"
        )
