"""The kill loop: a broker under the load of clients of all doors is killed with SIGKILL, again and again.

    python -m tests.crash.kill_loop --rounds 200 [--seed N] [--keep DIR]

Writers of every door write numbered values all the time (`writers`), groups of three kinds read and commit
(`readers`), and all of it goes into one history (`history`). After every restart the newest part of the log is
compared with what was acknowledged and read before; in the end everything is, and the history is checked for
every anomaly that the Kafka model knows. Topics and settings stay as they were; a start is soon over.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.crash.history import History, Place, check
from tests.crash.readers import READERS
from tests.crash.writers import PARTITIONS, WRITERS

# Small segments, so that kills meet rolls and old segments as well.
CONFIGS = {"segment_bytes": "200000"}
ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "200"}
SCHEMES = ("text", "kafka07?magic=1")
# Processor time until it is ready again, so that a busy machine does not fail the test.
READY_CPU_SECONDS = 3.0
# Values of these topics are sent until they are answered, or sent once: twice they must not be there.
ONCE = set(WRITERS)
# Seconds that clients have to come to their end.
FINISH_SECONDS = 120.0


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
            assert place in found, f"lost write: {value!r} was at {place} and is gone"
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

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.broker = BrokerProcess(directory / "data", environment=ENVIRONMENT, schemes=SCHEMES)
        self.history = History()
        self.seen: dict[Place, bytes] = {}
        self.slowest = 0.0
        self.threads = [
            threading.Thread(target=write, args=(self.broker, self.history), name=name)
            for name, write in WRITERS.items()
        ] + [
            threading.Thread(target=read, args=(self.broker, self.history, name), name=name)
            for name, read in READERS
        ]

    def run(self, rounds: int) -> str:
        """Kill so many times; raises AssertionError at the first broken promise."""
        self.broker.start()
        try:
            with Wire(self.broker.kafka_address) as wire:
                for topic in WRITERS:
                    wire.create_topic(topic, partitions=PARTITIONS, **CONFIGS)
            settings = shown_settings(self.broker)
            for thread in self.threads:
                thread.start()
            for number in range(1, rounds + 1):
                self._round(number, settings)
            return self._reckon(rounds)
        finally:
            self.history.stop.set()
            self.broker.kill()

    def _round(self, number: int, settings: Any) -> None:
        self.history.stop.wait(self.chance.uniform(0.2, 3.0))
        self.broker.kill()
        self.broker.start()
        ready = cpu_seconds(self.broker.pid)
        self.slowest = max(self.slowest, ready)
        assert shown_settings(self.broker) == settings
        known = {**self.seen, **dict(self.history.acknowledged)}
        since = recent(known)
        found = read_from(self.broker, since)
        compare(known, found, since)
        self.seen.update(found)
        assert not self.history.failures, (self.history.failures, self.broker.read_log()[-5000:])
        print(f"round {number}: ready after {ready:.2f} s of work, {len(known)} records known", flush=True)

    def _reckon(self, rounds: int) -> str:
        """Everything at the end."""
        self.history.stop.set()
        for thread in self.threads:
            thread.join(FINISH_SECONDS)
        hanging = [thread.name for thread in self.threads if thread.is_alive()]
        assert not hanging, f"{hanging} do not end"
        log = read_from(self.broker, {})
        compare(self.seen, log, {})
        anomalies = check(self.history, log, once=ONCE, ordered=ONCE)
        assert not anomalies, (len(anomalies), anomalies[:10], self.broker.read_log()[-3000:])
        assert "Traceback" not in self.broker.read_log(), self.broker.read_log()[-5000:]
        assert self.slowest <= READY_CPU_SECONDS, f"a start took {self.slowest:.2f} s of processor time"
        polled = sum(len(session.polled) for session in self.history.sessions)
        missing = [topic for topic in WRITERS if not any(place[0] == topic for place in log)]
        assert not missing and polled, f"nothing happened in {missing}, {polled} records were polled"
        return (
            f"{rounds} kills, {len(log)} records, {len(self.history.acknowledged)} acknowledged, {polled} polled in "
            f"{len(self.history.sessions)} assignments, {len(self.history.confirmed)} committed positions, "
            f"slowest start {self.slowest:.2f} s of work; no anomaly"
        )


def main() -> None:
    """The loop by hand, with as many rounds as you like."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--keep", type=Path, help="keep the data and the broker's log in this directory")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        print(KillLoop(arguments.keep, arguments.seed).run(arguments.rounds))
        return
    with tempfile.TemporaryDirectory() as directory:
        print(KillLoop(Path(directory), arguments.seed).run(arguments.rounds))


if __name__ == "__main__":
    main()
