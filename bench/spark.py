"""The Spark source: scans, micro-batches, what a worker holds; beside a scan without Spark as the yardstick.

One topic for all: 4 partitions, records of 100 B in 16 KB batches as Java's producers send by default. A busy machine
changes rates, hardly their ratios: so each scan is given in yardsticks as well, a scan of the same topic by
confluent-kafka into Arrow in one process, measured in the same run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.case import Figure, case, median_of
from bench.load import PRODUCE, PRODUCE_VERSION, Connection, batch_of, framed
from bench.server import broker
from core.protocol.messages.create_topics import CreatableTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker_process import ROOT, BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
PARTITIONS = 4
RECORDS = 4_000_000
# About 100 B of value each.
BATCH_BYTES, BATCH_RECORDS = 16_000, 145
MEGA = 1e6
YARDSTICK_RECORDS = 400_000
MOST_REPEATS = 5
MICRO_BATCHES, WARM_BATCHES = 40, 5
WORKER_JOBS = 50
# Partitions of the topics of the curve.
CURVE = (1, 2, 4, 8)
MIB = 1024 * 1024


def write_everywhere(
    connection: Connection,
    batch: bytes | bytearray,
    count: int,
    topic: str = TOPIC,
    partitions: int = PARTITIONS,
) -> None:
    """Write a batch to each partition of a topic, `times` times."""
    for partition in range(partitions):
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(partition, memoryview(batch))]
        )
        request = framed(
            PRODUCE, PRODUCE_VERSION, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        )
        connection.socket.sendall(request)
        answer_size = 4 + len(connection.receive())
        connection.stream([request] * (count - 1), answer_size)


def fill(
    server: BrokerProcess, records: int = RECORDS, topic: str = TOPIC, partitions: int = PARTITIONS
) -> int:
    """Create a topic and write about this many records to it. Return their number."""
    connection = Connection(server.kafka_address)
    connection.create_topics([CreatableTopic(topic, partitions, 1, [], [])])
    batch = batch_of(BATCH_BYTES, BATCH_RECORDS)
    count = -(-records // partitions // BATCH_RECORDS)
    write_everywhere(connection, batch, count, topic, partitions)
    connection.close()
    return count * BATCH_RECORDS * partitions


@contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """A quiet local session whose files go to a directory of their own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-") as work:
        builder = SparkSession.builder.master(f"local[{cores}]")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.log.level": "ERROR",
            "spark.local.dir": work,
            "spark.sql.warehouse.dir": f"{work}/warehouse",
        }.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def frame(spark: SparkSession, server: BrokerProcess, **options: Any) -> DataFrame:
    """The topic as a DataFrame."""
    options = {"kafka.bootstrap.servers": server.kafka, "subscribe": TOPIC, **options}
    return spark.read.format("sluice").options(**options).load()


class Scan(NamedTuple):
    """One scan: million rows a second, and processor seconds for a million rows, the broker's left out."""

    rate: float
    cpu: float


def scans(
    spark: SparkSession, server: BrokerProcess, records: int, repeats: int, **options: Any
) -> list[Scan]:
    """The topic to nowhere, once the workers are warm."""
    found = []
    for repeat in range(repeats + 2):
        start, used = time.perf_counter(), spark_cpu(server)
        frame(spark, server, **options).write.format("noop").mode("overwrite").save()
        wall, used = time.perf_counter() - start, spark_cpu(server) - used
        if repeat > 1:
            found.append(Scan(records / wall / MEGA, used / (records / MEGA)))
    return found


def yardstick(server: BrokerProcess) -> Scan:
    """The same through confluent-kafka into Arrow, in one process, without Spark."""
    import pyarrow as pa
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "yardstick", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    rows = len(consumer.consume(10_000, 10))
    rows, start, used = 0, time.perf_counter(), time.process_time()
    while rows < YARDSTICK_RECORDS:
        messages = consumer.consume(10_000, 10)
        batch = pa.record_batch(
            {
                "key": pa.array([one.key() for one in messages], pa.binary()),
                "value": pa.array([one.value() for one in messages], pa.binary()),
                "topic": pa.array([one.topic() for one in messages]),
                "partition": pa.array([one.partition() for one in messages], pa.int32()),
                "offset": pa.array([one.offset() for one in messages], pa.int64()),
                "timestamp": pa.array(
                    [one.timestamp()[1] * 1000 for one in messages], pa.timestamp("us", "UTC")
                ),
                "timestampType": pa.array([one.timestamp()[0] - 1 for one in messages], pa.int32()),
            }
        )
        rows += batch.num_rows
    wall, used = time.perf_counter() - start, time.process_time() - used
    consumer.close()
    return Scan(rows / wall / MEGA, used / (rows / MEGA))


def at_least(
    what: str, samples: list[float], unit: str, target: float | None, yard: float | None = None
) -> Figure:
    """Rates that should be high, given as what one million rows take, so that less is better; as is the floor."""
    return median_of(
        what,
        [1 / sample for sample in samples],
        unit,
        1 / target if target else None,
        1 / yard if yard else None,
    )


def processes() -> dict[int, tuple[int, str, float]]:
    """Every process below this one: parent, command line, processor seconds with those of its dead children."""
    found: dict[int, tuple[int, str, float]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                command = (directory / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            ticks = sum(int(field) for field in fields[11:15])
            found[int(directory.name)] = (int(fields[1]), command, ticks / os.sysconf("SC_CLK_TCK"))
    below, line = {os.getpid()}, [os.getpid()]
    while line:
        pid = line.pop()
        children = [one for one, (parent, *_) in found.items() if parent == pid]
        below.update(children)
        line += children
    return {pid: found[pid] for pid in below if pid in found}


def spark_cpu(server: BrokerProcess) -> float:
    """Processor seconds that Spark has used so far: its JVM and its Python processes."""
    return sum(cpu for pid, (_, _, cpu) in processes().items() if pid not in (os.getpid(), server.pid))


def worker_bytes() -> list[int]:
    """Resident memory of each Python process that Spark has forked, the largest first."""
    alive = processes()
    parents = {parent for parent, *_ in alive.values()}
    found = []
    for pid, (_, command, _) in alive.items():
        if "pyspark.daemon" in command and pid not in parents:
            status = Path(f"/proc/{pid}/status").read_text()
            found.append(int(status.partition("VmRSS:")[2].split()[0]) * 1024)
    return sorted(found, reverse=True)


@case
def spark_scan(repeats: int) -> list[Figure]:
    """Spark, local[2]: the topic of 4 M records to nowhere, over the wire and out of segment files."""
    figures = []
    with broker() as server, session(2) as spark:
        records = fill(server)
        for transport, target in (("wire", 1.5), ("segments", 2.5)):
            yard = yardstick(server)
            found = scans(spark, server, records, min(repeats, MOST_REPEATS), transport=transport)
            name = f"Spark scan, {transport}"
            figures += [
                at_least(name, [one.rate for one in found], "s/M rows", target, yard.rate),
                at_least(f"{name}: in yardsticks", [one.rate / yard.rate for one in found], "x⁻¹", 4),
                median_of(f"{name}: processor time", [one.cpu for one in found], "s/M rows", floor=yard.cpu),
            ]
    return figures


@case
def spark_curve(repeats: int) -> list[Figure]:
    """Spark: partitions × cores, a scan over the wire of 2 M records in each of four topics."""
    figures = []
    with broker() as server:
        topics = [(f"{TOPIC}-{count}", count) for count in CURVE]
        sizes = {topic: fill(server, RECORDS // 2, topic, count) for topic, count in topics}
        for cores in (1, 2):
            with session(cores) as spark:
                for topic, count in topics:
                    found = scans(spark, server, sizes[topic], min(repeats, MOST_REPEATS), subscribe=topic)
                    what = f"Spark scan, local[{cores}], {count} partition{'s' * (count > 1)}"
                    figures.append(at_least(what, [one.rate for one in found], "s/M rows", None))
    return figures


def micro_batches(spark: SparkSession, server: BrokerProcess, **options: Any) -> list[float]:
    """Seconds of small micro-batches of the topic to nowhere, once it is warm."""
    told = {
        "kafka.bootstrap.servers": server.kafka,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        **options,
    }
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("sluice")
            .options(maxOffsetsPerTrigger=PARTITIONS * BATCH_RECORDS, **told)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        steps = [one for one in query.recentProgress if one.numInputRows]
    return [one.durationMs["triggerExecution"] / 1000 for one in steps[WARM_BATCHES:]]


@case
def spark_batch(repeats: int) -> list[Figure]:
    """Spark: micro-batches of 4 partitions to nowhere, one after the other; a task for each partition, or two."""
    figures = []
    with broker() as server, session(2) as spark:
        fill(server, PARTITIONS * BATCH_RECORDS * (MICRO_BATCHES + WARM_BATCHES))
        for what, options in (("", {}), (", maxTasks=2", {"maxTasks": 2})):
            spent = sorted(micro_batches(spark, server, **options))
            p95 = spent[int(len(spent) * 0.95)]
            figures.append(Figure(f"Spark micro-batch to nowhere{what}, p95", p95, "s", 0.4, samples=spent))
    return figures


@case
def spark_worker(repeats: int) -> list[Figure]:
    """Spark: resident memory of a worker after 5 jobs and after 50."""
    with broker() as server, session(2) as spark:
        fill(server, RECORDS // 40)
        sizes = []
        for _ in range(WORKER_JOBS):
            frame(spark, server).write.format("noop").mode("overwrite").save()
            sizes.append(worker_bytes()[0] / MIB)
    return [
        Figure("Spark worker, resident, after 50 jobs", sizes[-1], "MiB", 150),
        Figure("the same, growth since the fifth job", sizes[-1] - sizes[4], "MiB", 5),
    ]
