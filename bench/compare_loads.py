"""The loads of `python -m bench compare`: real clients against a broker of ours or a real Kafka.

`python -m bench.compare_loads consume|round_trip|transactions BOOTSTRAP TOPIC COUNT` is the child process, which has
librdkafka.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.clients import (
    BATCH,
    LEAST_RATE,
    MOST_BEYOND,
    MOST_CPU,
    PARTITIONS,
    RECORD,
    answer_us,
    fdatasync_us,
    turn,
)
from bench.load import METADATA, Connection, batch_of, produce_frame
from bench.peer import DELETE_TOPICS, DELETE_TOPICS_VERSION
from bench.server import measured_cpu, resident_bytes
from bench.size import METADATA_VERSION, MIB
from core.protocol.messages.delete_topics import DeleteTopicsRequest
from core.protocol.messages.metadata import MetadataRequest
from tests.broker_process import BrokerProcess
from tests.peers.kafka import SCRIPTS_JVM, KafkaProcess, java

RELEASE = "kafka-4.1"
TOOLS = "org.apache.kafka.tools"
FILLED = "filled"
# Kafka's default of flush.messages.
NEVER = str(2**63 - 1)
CLIENT_SECONDS = 900
# What a client and a broker do for the first time is not what they do.
WARM_UP = 50
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


@dataclass(frozen=True)
class Size:
    """How much is done in one turn of each load; `warm`: it runs once unmeasured before that."""

    records: int
    seconds: float
    single: int
    pause: float
    warm: bool


WHOLE = Size(records=500_000, seconds=4.0, single=1000, pause=3.0, warm=True)
SHORT = Size(records=20_000, seconds=1.0, single=100, pause=1.0, warm=False)


@dataclass(frozen=True)
class Server:
    """What runs over a directory of its own; `fsync`: it flushes each batch that it appends, by Kafka's setting."""

    title: str
    make: Callable[[Path], BrokerProcess | KafkaProcess]
    fsync: bool = False


class Broker:
    """A running broker over an empty directory, and how long its start took."""

    def __init__(
        self, process: BrokerProcess | KafkaProcess, directory: Path, *, fsync: bool = False
    ) -> None:
        self.directory = directory
        self._process = process
        self._fsync = fsync
        self._topics = 0
        begin = time.monotonic()
        process.start()
        with self.connected() as connection:
            connection.call(METADATA, METADATA_VERSION, MetadataRequest(topics=[]))
        self.start_seconds = time.monotonic() - begin

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def kafka(self) -> str:
        """Its bootstrap server, `host:port`."""
        return self._process.kafka

    def records(self, size: Size) -> int:
        """How many records a producer writes: a fifth where each batch is flushed, which takes that much longer."""
        return size.records // 5 if self._fsync else size.records

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of our own to it."""
        host, _, port = self.kafka.rpartition(":")
        connection = Connection((host, int(port)))
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        """A topic for one load, deleted after it."""
        self._topics += 1
        name = f"bench-{self._topics}"
        with self.connected() as connection:
            connection.create_topic(name, partitions)
        yield name
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        with self.connected() as connection:
            connection.call(DELETE_TOPICS, DELETE_TOPICS_VERSION, request)

    def fill(self, size: Size) -> None:
        """Write the records that consumers read; Kafka does not flush each batch of them."""
        settings = {"flush_messages": NEVER} if self._fsync else {}
        with self.connected() as connection:
            connection.create_topic(FILLED, PARTITIONS, **settings)
        _java_produce(self, FILLED, size.records)


def _sluice(directory: Path) -> BrokerProcess:
    # As in KafkaProcess: the first member of a group is not waited for.
    return BrokerProcess(directory / "data", environment={"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"})


def _kafka(directory: Path, **settings: str) -> KafkaProcess:
    jvm = (*SCRIPTS_JVM, "-Xms1g")
    return KafkaProcess(directory / "node", release=RELEASE, settings=settings, heap="1g", jvm=jvm)


def _kafka_fsync(directory: Path) -> KafkaProcess:
    return _kafka(directory, **{"log.flush.interval.messages": "1"})


#: Each runs with its defaults, Kafka with the JVM options and the heap of its own start scripts.
SERVERS = {
    "sluice": Server("Sluice", _sluice),
    "kafka": Server("Kafka", _kafka),
    "kafka-fsync": Server("Kafka, fsync", _kafka_fsync, fsync=True),
}


@contextmanager
def running(server: Server) -> Iterator[Broker]:
    """Run a server over an empty directory, which is deleted afterwards."""
    # No server pays for the pages that the one before has left to be written.
    os.sync()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = server.make(Path(directory))
        try:
            yield Broker(process, Path(directory), fsync=server.fsync)
        finally:
            process.kill()


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure of a load.

    `limit` bounds our own figure, `in_kafkas` its ratio to that of Kafka with its defaults: from above, or from
    below where `more` is better. `compared`: its ratio to that of another server says something.
    """

    key: str
    what: str
    unit: str
    more: bool = False
    limit: float | None = None
    in_kafkas: float | None = None
    compared: bool = True


@dataclass(frozen=True)
class Load:
    """What is done to each broker in turn; `run` returns a figure for the key of each of its lines.

    `cold`: it has nothing to warm up. `needs_data`: it reads what `Broker.fill` wrote.
    """

    run: Callable[[Broker, Size], dict[str, float]]
    lines: tuple[Line, ...]
    cold: bool = False
    needs_data: bool = False


LOADS: dict[str, Load] = {}
"""Every load by its name, in the order of the table, in which they also run."""


Run = Callable[[Broker, Size], dict[str, float]]


def load(*lines: Line, cold: bool = False, needs_data: bool = False) -> Callable[[Run], Run]:
    """Register a function as a load under its own name."""

    def register(run: Run) -> Run:
        LOADS[run.__name__] = Load(run, lines, cold, needs_data)
        return run

    return register


@load(Line("seconds", "start, empty directory, to the first answer", "s"), cold=True)
def start(broker: Broker, size: Size) -> dict[str, float]:
    """The start of the process; Kafka formats its storage in that time."""
    return {"seconds": broker.start_seconds}


@load(Line("resident", "resident memory, idle", "MiB"), cold=True)
def idle(broker: Broker, size: Size) -> dict[str, float]:
    """Memory before any load."""
    time.sleep(size.pause)
    return {"resident": resident_bytes(broker.pid) / MIB}


@load(
    Line("cpu", "Java producer, its defaults (`acks=all`, idempotent): CPU", "s/GB", in_kafkas=1.2),
    Line("rate", "the same: rate", "MB/s", more=True, in_kafkas=1.0),
)
def java_producer(broker: Broker, size: Size) -> dict[str, float]:
    """kafka-producer-perf-test with the defaults of Kafka 4.1."""
    with broker.topic() as topic, measured_cpu(broker) as used:
        rate = _java_produce(broker, topic, broker.records(size))
    return {"cpu": used[0] / _gigabytes(broker.records(size)), "rate": rate * RECORD / 1e6}


@load(
    Line("cpu_1", "librdkafka producer, `acks=1`: CPU", "s/GB"),
    Line("rate_1", "the same: rate", "MB/s", more=True),
    Line("cpu_all", "librdkafka producer, `acks=all`: CPU", "s/GB"),
    Line("rate_all", "the same: rate", "MB/s", more=True),
    Line("dearer", "librdkafka, CPU of `acks=all` in that of `acks=1`", "x", limit=MOST_CPU, compared=False),
    Line(
        "slower",
        "librdkafka, rate of `acks=all` in that of `acks=1`",
        "x",
        more=True,
        limit=LEAST_RATE,
        compared=False,
    ),
)
def librdkafka_producer(broker: Broker, size: Size) -> dict[str, float]:
    """librdkafka at full speed for some seconds, acks=1 and then acks=all."""
    cpu, rate = {}, {}
    for acks in ("1", "all"):
        with broker.topic() as topic:
            micro, rate[acks] = turn(broker, topic, acks, size.seconds)
        # µs/MB → s/GB.
        cpu[acks] = micro / 1000
    found = {f"cpu_{acks}": cpu[acks] for acks in cpu} | {f"rate_{acks}": rate[acks] for acks in rate}
    return {**found, "dearer": cpu["all"] / cpu["1"], "slower": rate["all"] / rate["1"]}


@load(
    Line("cpu", "Java consumer: CPU", "s/GB"),
    Line("rate", "the same: rate", "MB/s", more=True),
    needs_data=True,
)
def java_consumer(broker: Broker, size: Size) -> dict[str, float]:
    """kafka-consumer-perf-test over the data that the Java producer wrote; its rate is without the rebalance."""
    which = ("--bootstrap-server", broker.kafka, "--topic", FILLED, "--messages", str(size.records))
    with measured_cpu(broker) as used:
        said = _java(f"{TOOLS}.ConsumerPerformance", *which, "--hide-header", "--timeout", "60000")
    # start, end, MB, MB/s, records, records/s, ms of the rebalance, ms of fetching, MB/s, records/s of fetching
    columns = [column.strip() for column in said.strip().splitlines()[-1].split(",")]
    if len(columns) != 10 or int(columns[4]) < size.records:
        raise RuntimeError(f"the consumer did not read {size.records} records:\n{said}")
    return {"cpu": used[0] / _gigabytes(int(columns[4])), "rate": float(columns[9]) * RECORD / 1e6}


@load(
    Line("cpu", "librdkafka consumer, the same data: CPU", "s/GB"),
    Line("rate", "the same: rate", "MB/s", more=True),
    needs_data=True,
)
def librdkafka_consumer(broker: Broker, size: Size) -> dict[str, float]:
    """librdkafka with its defaults, assigned all partitions from their beginning."""
    with measured_cpu(broker) as used:
        seconds = _child("consume", broker, FILLED, size.records)
    return {
        "cpu": used[0] / _gigabytes(size.records),
        "rate": size.records * RECORD / 1e6 / seconds,
    }


@load(
    Line("p50", "one record at a time, `acks=all`: p50", "µs"),
    Line("fdatasync", "one write and one fdatasync beside it: p50", "µs", compared=False),
    Line("beyond", "one record beyond one fdatasync", "µs", limit=MOST_BEYOND, compared=False),
)
def one_at_a_time(broker: Broker, size: Size) -> dict[str, float]:
    """Produce requests of one record of 100 B over one connection, the next after the answer."""
    with broker.topic(1) as topic, broker.connected() as connection:
        request = produce_frame(topic, batch_of(170, 1), acks=-1)
        answer_us(connection, request, WARM_UP)
        p50 = answer_us(connection, request, size.single)
    floor = fdatasync_us(str(broker.directory), size.single)
    return {"p50": p50, "fdatasync": floor, "beyond": p50 - floor}


@load(Line("p50", "librdkafka, one record produced and consumed: p50", "µs"))
def round_trip(broker: Broker, size: Size) -> dict[str, float]:
    """librdkafka: from the produce of a record until a consumer has it, `acks=all`, no linger, one at a time."""
    with broker.topic(1) as topic:
        return {"p50": _child("round_trip", broker, topic, size.single) * 1e6}


@load(
    Line("cpu", "librdkafka, a transaction of 10 records in 2 partitions: CPU", "ms", in_kafkas=1.0),
    Line("p50", "the same: p50 of its commit", "ms"),
    Line("beyond", "its commit beyond two fdatasyncs", "ms", limit=1.0, compared=False),
)
def transactions(broker: Broker, size: Size) -> dict[str, float]:
    """librdkafka: one transaction after the other, committed as soon as its records are queued."""
    with broker.topic(2) as topic, measured_cpu(broker) as used:
        p50 = _child("transactions", broker, topic, size.single // 2) * 1e3
    floor = fdatasync_us(str(broker.directory), size.single) / 1e3
    return {"cpu": used[0] * 1e3 / (size.single // 2), "p50": p50, "beyond": p50 - 2 * floor}


@load(Line("resident", "resident memory after these loads", "MiB"), cold=True)
def memory(broker: Broker, size: Size) -> dict[str, float]:
    """Memory after all that ran before it."""
    return {"resident": resident_bytes(broker.pid) / MIB}


def _gigabytes(records: int) -> float:
    return records * RECORD / 1e9


def _java_produce(broker: Broker, topic: str, records: int) -> float:
    """Return the rate in records/s that Kafka's own tool says."""
    size = (
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(RECORD),
        "--throughput",
        "-1",
    )
    props = ("--producer-props", f"bootstrap.servers={broker.kafka}", f"batch.size={BATCH}")
    said = _java(f"{TOOLS}.ProducerPerformance", *size, *props)
    lines = _SENT.findall(said)
    if not lines or int(lines[-1][0]) != records or "Exception" in said:
        raise RuntimeError(f"the producer did not send {records} records:\n{said}")
    return float(lines[-1][1])


def _java(main: str, *arguments: str) -> str:
    command = java(RELEASE, main, *arguments, heap="512m", jvm=SCRIPTS_JVM)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CLIENT_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _child(what: str, broker: Broker, topic: str, count: int) -> float:
    command = [sys.executable, "-m", "bench.compare_loads", what, broker.kafka, topic, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=CLIENT_SECONDS)
    return float(done.stdout)


def consume(bootstrap: str, topic: str, count: int) -> float:
    """The child process: read `count` records of a topic; return the seconds from the first poll."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    begin = time.monotonic()
    read = 0
    while read < count:
        messages = consumer.consume(1000, timeout=60)
        if not messages:
            raise RuntimeError(f"no record in 60 s; {read} of {count} were read")
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(f"the consumer was told {error}")
        read += len(messages)
    seconds = time.monotonic() - begin
    consumer.close()
    return seconds


def round_trips(bootstrap: str, topic: str, count: int) -> float:
    """The child process: return the median seconds from `produce` until `poll` returns the same record."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    times = []
    for number in range(WARM_UP + count):
        value = b"%099d" % number
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        message = consumer.poll(60)
        times.append(time.perf_counter() - begin)
        if message is None or message.error() is not None or message.value() != value:
            raise RuntimeError(f"record {number} did not come back: {message and message.error()}")
        producer.flush(60)
    consumer.close()
    return statistics.median(times[WARM_UP:])


def commits(bootstrap: str, topic: str, count: int) -> float:
    """The child process: return the median seconds of `commit_transaction`, which also sends the records."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    times = []
    for number in range(count):
        producer.begin_transaction()
        for record in range(10):
            producer.produce(topic, b"%099d" % number, partition=record % 2)
        begin = time.perf_counter()
        producer.commit_transaction(60)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    CHILDREN = {"consume": consume, "round_trip": round_trips, "transactions": commits}
    print(CHILDREN[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4])))
