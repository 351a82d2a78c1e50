"""The kill loop: a broker under load is killed with SIGKILL again and again, and must keep its word.

    python -m tests.crash.kill_loop --rounds 200 [--seed N] [--keep DIR]

Three kinds of producers write numbered values all the time: an idempotent one (librdkafka, acks=all, retries
for ever), a plain one (acks=1, one try) and one over HTTP (one try). Each notes what was acknowledged, and
where. After every restart, and at the end over everything:

- what was acknowledged lies at the offset that was answered;
- offsets rise without holes, and no value is there twice;
- what was read at an offset before the kill is read there again;
- an idempotent producer's values keep their order within a partition;
- topics and their settings are as they were, and the broker was soon ready again.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire, batch

PARTITIONS = 3
TOPICS = ("idempotent", "plain", "rest")
# Small segments, so that kills meet rolls and old segments as well.
CONFIGS = {"segment_bytes": "200000"}
# Processor time until it is ready again, so that a busy machine does not fail the test.
READY_CPU_SECONDS = 3.0
PAUSE = 0.002

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass
class Ledger:
    """What was acknowledged and what was read, over all rounds. Shared by the producer threads."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    seen: dict[Place, bytes] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)

    def acknowledge(self, place: Place, value: bytes) -> None:
        """Note an answer of the broker; the same place for two values is a failure at once."""
        before = self.acknowledged.setdefault(place, value)
        if before != value:
            self.fail(f"{place} was given to {before!r} and to {value!r}")

    def fail(self, what: str) -> None:
        """Note a broken promise; it ends the loop."""
        self.failures.append(what)
        self.stop.set()


def produce_idempotent(broker: BrokerProcess, ledger: Ledger) -> None:
    """librdkafka's idempotent producer; it retries what was not answered, also over a restart."""

    def delivered(error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            ledger.fail(f"the idempotent producer gave up on {message.value()!r}: {error}")
        else:
            place = (message.topic(), message.partition(), message.offset())
            ledger.acknowledge(place, message.value())

    producer = Producer(
        {
            "bootstrap.servers": broker.kafka,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    number = 0
    while not ledger.stop.is_set():
        if len(producer) < 5000:
            producer.produce(
                "idempotent", b"i-%d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
            number += 1
        producer.poll(0 if number % 10 else PAUSE)
    left = producer.flush(0 if ledger.failures else 60)
    if left and not ledger.failures:
        ledger.fail(f"{left} messages of the idempotent producer were never answered")


def produce_plain(broker: BrokerProcess, ledger: Ledger) -> None:
    """acks=1 in small batches over a raw connection; what gets no answer is not tried again."""
    number, wire = 0, None
    while not ledger.stop.is_set():
        values = [b"p-%d" % (number + i) for i in range(3)]
        partition = number % PARTITIONS
        number += len(values)
        try:
            wire = wire or Wire(broker.kafka_address, timeout=10)
            answer = wire.produce("plain", batch(values), partition=partition, acks=1)
        except (OSError, AssertionError):
            if wire is not None:
                wire.close()
            wire = None
            time.sleep(0.02)
            continue
        if answer.error_code:
            ledger.fail(f"plain produce was refused: {answer.error_code}")
            continue
        for i, value in enumerate(values):
            ledger.acknowledge(("plain", partition, answer.base_offset + i), value)
        time.sleep(PAUSE)
    if wire is not None:
        wire.close()


def produce_rest(broker: BrokerProcess, ledger: Ledger) -> None:
    """Keyed records over HTTP, acks=all; what gets no answer is not tried again."""
    number = 0
    with httpx.Client(base_url=broker.http, timeout=10, trust_env=False) as http:
        while not ledger.stop.is_set():
            values = [f"r-{number + i}" for i in range(3)]
            number += len(values)
            records = [{"key": value, "value": value} for value in values]
            try:
                answer = http.post("/api/v1/topics/rest/records", json={"records": records})
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if answer.status_code == 503:  # it is stopping or starting and says so
                continue
            if answer.status_code != 200:
                ledger.fail(f"REST produce: {answer.status_code} {answer.text}")
                continue
            for value, written in zip(values, answer.json()["records"], strict=True):
                ledger.acknowledge(("rest", written["partition"], written["offset"]), value.encode())
            time.sleep(PAUSE)


PRODUCERS = (produce_idempotent, produce_plain, produce_rest)


def shown_settings(broker: BrokerProcess) -> Any:
    """Every topic with its id, partitions and settings, as REST shows them."""
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=30, trust_env=False) as http:
        shown = {topic: http.get(f"/topics/{topic}").raise_for_status().json() for topic in TOPICS}
    kept = ("name", "topic_id", "partitions", "configs", "effective_configs", "created")
    return {topic: {key: answer[key] for key in kept} for topic, answer in shown.items()}


def read_from(broker: BrokerProcess, start: dict[tuple[str, int], int]) -> dict[Place, bytes]:
    """All values from these offsets on, with their places; asserts that offsets rise by one."""
    found: dict[Place, bytes] = {}
    with Wire(broker.kafka_address) as wire:
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                offset = start.get((topic, partition), 0)
                for message in wire.read_from(topic, offset, partition=partition):
                    assert message.offset == offset, f"a hole in {topic}-{partition} before {message.offset}"
                    assert message.value is not None
                    found[topic, partition, offset] = message.value
                    offset += 1
    return found


def compare(ledger: Ledger, found: dict[Place, bytes], start: dict[tuple[str, int], int]) -> None:
    """Hold what was read now against what was acknowledged and what was read before."""
    for name, before in (("acknowledged", ledger.acknowledged), ("read", ledger.seen)):
        for place, value in list(before.items()):
            topic, partition, offset = place
            if offset >= start.get((topic, partition), 0):
                assert place in found, f"{value!r} was {name} at {place} and is gone"
                assert found[place] == value, f"{place}: {value!r} was {name}, now it is {found[place]!r}"
    ledger.seen.update(found)


def check_everything(ledger: Ledger, found: dict[Place, bytes]) -> None:
    """The checks that need all of the data: nothing twice, idempotent values in their order."""
    compare(ledger, found, {})
    places = defaultdict(list)
    for place, value in found.items():
        places[place[0], value].append(place)
    twice = {value: where for value, where in places.items() if len(where) > 1}
    assert not twice, f"{len(twice)} values are there twice, as {next(iter(twice.items()))}"
    last: dict[int, int] = {}
    for (topic, partition, offset), value in sorted(found.items()):
        if topic == "idempotent":
            number = int(value[2:])
            assert number > last.get(partition, -1), f"out of order in partition {partition} at {offset}"
            last[partition] = number


def recent(ledger: Ledger, back: int = 2000) -> dict[tuple[str, int], int]:
    """Where to read again after a kill: so far before the end of what is known. The rest is read at the end."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for topic, partition, offset in [*ledger.seen, *list(ledger.acknowledged)]:
        ends[topic, partition] = max(ends[topic, partition], offset)
    return {place: max(0, end - back) for place, end in ends.items()}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, all threads (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def kill_loop(directory: Path, rounds: int, seed: int) -> str:
    """Run the loop over a data directory; raises AssertionError at the first broken promise."""
    chance = random.Random(seed)
    broker = BrokerProcess(directory / "data").start()
    ledger, slowest = Ledger(), 0.0
    threads = [threading.Thread(target=target, args=(broker, ledger)) for target in PRODUCERS]
    try:
        with Wire(broker.kafka_address) as wire:
            for topic in TOPICS:
                wire.create_topic(topic, partitions=PARTITIONS, **CONFIGS)
        settings = shown_settings(broker)
        for thread in threads:
            thread.start()
        for number in range(1, rounds + 1):
            ledger.stop.wait(chance.uniform(0.2, 3.0))
            broker.kill()
            broker.start()
            slowest = max(slowest, ready := cpu_seconds(broker.pid))
            assert shown_settings(broker) == settings
            since = recent(ledger)
            known = Ledger(acknowledged=dict(ledger.acknowledged), seen=ledger.seen)
            compare(known, read_from(broker, since), since)
            assert not ledger.failures, (ledger.failures, broker.read_log()[-5000:])
            print(
                f"round {number}: ready after {ready:.2f} s of work, {len(ledger.acknowledged)} acknowledged",
                flush=True,
            )
        ledger.stop.set()
        for thread in threads:
            thread.join()
        check_everything(ledger, found := read_from(broker, {}))
        assert not ledger.failures, (ledger.failures, broker.read_log()[-5000:])
        assert "Traceback" not in broker.read_log(), broker.read_log()[-5000:]
        assert slowest <= READY_CPU_SECONDS, f"a start took {slowest:.2f} s of processor time"
    finally:
        ledger.stop.set()
        broker.kill()
    counts = {topic: sum(place[0] == topic for place in ledger.acknowledged) for topic in TOPICS}
    return (
        f"{rounds} kills, {len(found)} records, acknowledged {counts}, slowest start {slowest:.2f} s of work"
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
        print(kill_loop(arguments.keep, arguments.rounds, arguments.seed))
        return
    with tempfile.TemporaryDirectory() as directory:
        print(kill_loop(Path(directory), arguments.rounds, arguments.seed))


if __name__ == "__main__":
    main()
