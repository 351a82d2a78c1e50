"""Kill and promote: two brokers under load, one of them killed again and again, the other one told to lead.

Idempotent producers write numbered values with acks=all all the time, and a committer commits offsets of a group.
In each round one broker is killed with SIGKILL, the leader or the follower as it comes; or, without a kill, the other
one is told to lead. Then the broker that is left is told to lead everything, and the dead one comes back. Checked:

- a promotion that cannot lose anything is not refused;
- both logs are equal, byte for byte, up to the high watermark;
- what was acknowledged lies at the offset that was answered, once, and in order;
- a committed offset that was answered is there, and never decreases;
- what a consumer has read at an offset is read there again;
- of a transaction, a read_committed consumer gets all or nothing, and what was answered (`promoted_transactions`).
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient

from core.records.batch import batches
from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.crash import promoted_transactions as ended
from tests.ports import free_ports

TOPIC, PARTITIONS = "promised", 2
GROUP = "committers"
IN_SYNC_SECONDS = 60.0


@dataclass
class Ledger:
    """What was acknowledged, read and committed, over all rounds."""

    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    committed: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)

    def fail(self, what: str) -> None:
        """Note a broken promise; it ends the loop."""
        self.failures.append(what)
        self.stop.set()


def produce(bootstrap: str, ledger: Ledger, name: str) -> None:
    """An idempotent producer with acks=all, which retries without an end and follows the leader by Metadata."""

    def delivered(error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            ledger.fail(f"producer {name} gave up on {message.value()!r}: {error}")
            return
        place = (message.partition(), message.offset())
        before = ledger.acknowledged.setdefault(place, message.value())
        if before != message.value():
            ledger.fail(f"{place} was given to {before!r} and to {message.value()!r}")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 240_000,
            "request.timeout.ms": 5_000,
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    number = 0
    while not ledger.stop.is_set():
        if len(producer) < 500:
            value = f"{name}-{number}".encode()
            producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
        producer.poll(0 if number % 20 else 0.01)
    left = producer.flush(0 if ledger.failures else 60)
    if left and not ledger.failures:
        ledger.fail(f"{left} messages of producer {name} were never answered")


def commit(bootstrap: str, ledger: Ledger) -> None:
    """Commit rising offsets of a group; one that was answered must not go back."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    number = 1
    while not ledger.stop.is_set():
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False)
            ledger.committed = number
        except KafkaException:
            time.sleep(0.05)
        number += 1
        time.sleep(0.02)
    consumer.close()


class Pair:
    """Two brokers in processes of their own."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2)
        self.brokers: list[BrokerProcess] = []
        for i, port in enumerate(ports):
            other = 1 - i
            broker = BrokerProcess(
                directory / f"broker-{i + 1}",
                options=["--broker-id", str(i + 1), "--peer", f"{other + 1}=127.0.0.1:{ports[other]}"],
                environment={
                    "SLUICE_REPLICA_RETRY_MS": "50",
                    "SLUICE_PEER_TIMEOUT_MS": "1000",
                    "SLUICE_CHECKPOINT_INTERVAL_MS": "700",
                    "SLUICE_AUTO_CREATE_TOPICS": "false",
                },
            )
            broker.ports["kafka"] = port
            self.brokers.append(broker)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)

    def call(self, number: int, method: str, path: str, **body: Any) -> httpx.Response:
        """A call of the HTTP API of one broker."""
        with httpx.Client(base_url=self.brokers[number].http, timeout=30, trust_env=False) as http:
            return http.request(method, f"/api/v1{path}", json=body or None)

    def role(self, number: int, topic: str, partition: int) -> dict[str, Any]:
        """What one broker knows of a partition."""
        answer = self.call(number, "GET", f"/topics/{topic}/partitions/{partition}/role")
        return dict(answer.json()) if answer.status_code == 200 else {}

    def lead(self, number: int) -> None:
        """Let one broker lead everything; a refusal is a failure unless it passes."""
        deadline = time.monotonic() + IN_SYNC_SECONDS
        while True:
            answer = self.call(number, "POST", "/cluster:lead", unclean=False)
            answer.raise_for_status()
            if not answer.json()["refused"]:
                return
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)

    def start(self) -> None:
        """Start both, and create the topics of the writers."""
        for broker in self.brokers:
            broker.spawn()
        for broker in self.brokers:
            broker.wait_ready()
        deadline = time.monotonic() + IN_SYNC_SECONDS
        body = {"partitions": PARTITIONS, "replication_factor": 2, "configs": {"segment.bytes": 200_000}}
        for topic in (TOPIC, ended.TOPIC):
            while self.call(0, "PUT", f"/topics/{topic}", **body).status_code not in (200, 201):
                assert time.monotonic() < deadline, "the topic could not be created"
                time.sleep(0.1)
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Wait until both brokers are in sync in every partition."""
        deadline = time.monotonic() + IN_SYNC_SECONDS
        wanted = [
            ("__cluster_metadata", 0),
            *((t, p) for t in (TOPIC, ended.TOPIC) for p in range(PARTITIONS)),
        ]
        while True:
            shown = [self.role(n, *where) for where in wanted for n in (0, 1)]
            in_sync = [one for one in shown if one.get("role") == "leader" and len(one["in_sync"]) == 2]
            if len(in_sync) == len(wanted):
                return
            assert time.monotonic() < deadline, json.dumps(shown)
            time.sleep(0.05)

    def log(self, number: int, topic: str, partition: int) -> bytes:
        """All bytes of a log on the disk."""
        directory = self.brokers[number].data_dir / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def compare_logs(self) -> None:
        """Both logs are equal up to the high watermark of the leader, and up to the shorter one's end."""
        compared = [(topic, p) for topic in (TOPIC, ended.TOPIC) for p in range(PARTITIONS)]
        for topic, partition in [*compared, ("__cluster_metadata", 0)]:
            known = [self.role(n, topic, partition) for n in (0, 1)]
            committed = max(one.get("high_watermark", 0) for one in known)
            one, other = (_up_to(self.log(n, topic, partition), committed) for n in (0, 1))
            assert one == other, f"the logs of {topic}-{partition} differ below offset {committed}"


def _up_to(data: bytes, offset: int) -> bytes:
    """The batches below an offset."""
    end = 0
    for position, header in batches(data, 0, _whole(data)):
        if header.next_offset > offset:
            break
        end = position + header.size
    return data[:end]


def _whole(data: bytes) -> int:
    """Where the last whole batch ends: the leader may be writing."""
    position = 0
    while position + 12 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        position += size
    return position


def read(pair: Pair, ledger: Ledger, number: int) -> dict[tuple[int, int], bytes]:
    """All that a consumer is shown by the broker that leads; it must be dense, and as it was before."""
    found = {}
    with Wire(pair.brokers[number].kafka_address) as wire:
        for partition in range(PARTITIONS):
            for offset, message in enumerate(wire.read_from(TOPIC, 0, partition=partition)):
                assert message.offset == offset, f"a hole in partition {partition} before {message.offset}"
                assert message.value is not None
                found[partition, offset] = message.value
    for place, value in ledger.seen.items():
        assert found.get(place) == value, f"{value!r} was read at {place}, now it is {found.get(place)!r}"
    ledger.seen.update(found)
    return found


def check(
    ledger: Ledger, acknowledged: dict[tuple[int, int], bytes], found: dict[tuple[int, int], bytes]
) -> None:
    """Everything acknowledged is there, nothing twice, each producer's values in order."""
    for place, value in acknowledged.items():
        assert found.get(place) == value, (
            f"{value!r} was acknowledged at {place}; there is {found.get(place)!r}"
        )
    places = defaultdict(list)
    last: dict[tuple[str, int], int] = {}
    for (partition, offset), value in sorted(found.items()):
        places[value].append((partition, offset))
        name, number = value.decode().split("-")
        assert int(number) > last.get((name, partition), -1), f"out of order at {partition}/{offset}"
        last[name, partition] = int(number)
    twice = {value: where for value, where in places.items() if len(where) > 1}
    assert not twice, f"{len(twice)} values are duplicates, as {next(iter(twice.items()))}"


def check_commits(pair: Pair, ledger: Ledger, at_least: int) -> None:
    """The group's offset is the last one that was answered, or a later one."""
    admin = AdminClient({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    asked = [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])]
    deadline = time.monotonic() + 30
    while True:
        try:
            result = admin.list_consumer_group_offsets(asked)[GROUP].result(timeout=10)
            break
        except KafkaException:
            assert time.monotonic() < deadline, "the committed offsets cannot be asked for"
            time.sleep(0.1)
    offset = result.topic_partitions[0].offset
    assert offset >= at_least, f"{at_least} was committed and answered, now it is {offset}"


def promote_loop(directory: Path, rounds: int, seed: int) -> str:
    """Run the loop; raises AssertionError at the first broken promise."""
    chance = random.Random(seed)
    pair = Pair(directory)
    ledger = Ledger()
    threads = [threading.Thread(target=produce, args=(pair.bootstrap, ledger, name)) for name in "ab"]
    threads.append(threading.Thread(target=commit, args=(pair.bootstrap, ledger)))
    outcomes = ended.Outcomes(stop=ledger.stop)
    threads.append(threading.Thread(target=ended.write, args=(pair.bootstrap, outcomes)))
    kills = promotions = 0
    try:
        pair.start()
        for thread in threads:
            thread.start()
        for number in range(1, rounds + 1):
            ledger.stop.wait(chance.uniform(0.3, 2.0))
            victim = chance.choice([0, 1, None])
            if victim is not None:
                kills += 1
                pair.brokers[victim].kill()
                time.sleep(chance.choice([0, 0.2]))
            survivor = chance.choice([0, 1]) if victim is None else 1 - victim
            pair.lead(survivor)
            promotions += 1
            if victim is not None:
                pair.brokers[victim].start()
            pair.wait_in_sync()
            failures = ledger.failures + outcomes.failures
            assert not failures, (failures, [b.read_log()[-3000:] for b in pair.brokers])
            acknowledged, committed = dict(ledger.acknowledged), ledger.committed
            told = set(outcomes.committed), set(outcomes.aborted)
            found = read(pair, ledger, survivor)
            check(ledger, acknowledged, found)
            ended.check(ended.read(pair.bootstrap), *told, whole=False)
            check_commits(pair, ledger, committed)
            pair.compare_logs()
            print(f"round {number}: {len(acknowledged)} acknowledged, {committed} commits", flush=True)
        ledger.stop.set()
        for thread in threads:
            thread.join()
        assert not ledger.failures + outcomes.failures, (ledger.failures, outcomes.failures)
        leader = next(n for n in (0, 1) if pair.role(n, TOPIC, 0).get("role") == "leader")
        check(ledger, ledger.acknowledged, read(pair, ledger, leader))
        check_commits(pair, ledger, ledger.committed)
        ended.check(ended.read(pair.bootstrap), outcomes.committed, outcomes.aborted, whole=True)
        for broker in pair.brokers:
            assert "Traceback" not in broker.read_log(), broker.read_log()[-5000:]
    finally:
        ledger.stop.set()
        for broker in pair.brokers:
            broker.kill()
    assert len(ledger.acknowledged) > 100 * rounds, "hardly anything was written"
    return (
        f"{rounds} rounds, {kills} kills, {promotions} promotions, {len(ledger.acknowledged)} acknowledged, "
        f"{ledger.committed} commits, {len(outcomes.committed)} transactions committed, "
        f"{len(outcomes.aborted)} aborted"
    )
