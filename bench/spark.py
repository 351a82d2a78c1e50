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
from typing import TYPE_CHECKING, Any

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
MICRO_BATCHES = 40
WORKER_JOBS = 50


def fill(server: BrokerProcess, records: int = RECORDS) -> int:
    """Make the topic and write about so many records to it; answers how many there are."""
    connection = Connection(server.kafka_address)
    connection.create_topics([CreatableTopic(TOPIC, PARTITIONS, 1, [], [])])
    batch = batch_of(BATCH_BYTES, BATCH_RECORDS)
    count = -(-records // PARTITIONS // BATCH_RECORDS)
    for partition in range(PARTITIONS):
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(partition, memoryview(batch))]
        )
        request = framed(
            PRODUCE, PRODUCE_VERSION, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        )
        connection.socket.sendall(request)
        answer_size = 4 + len(connection.receive())
        connection.stream([request] * (count - 1), answer_size)
    connection.close()
    return count * BATCH_RECORDS * PARTITIONS


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


def scan_rates(
    spark: SparkSession, server: BrokerProcess, records: int, repeats: int, **options: Any
) -> list[float]:
    """Million rows a second from the topic to nowhere, once the workers are warm."""
    rates = []
    for repeat in range(repeats + 2):
        start = time.perf_counter()
        frame(spark, server, **options).write.format("noop").mode("overwrite").save()
        if repeat > 1:
            rates.append(records / (time.perf_counter() - start) / MEGA)
    return rates


def yardstick_rate(server: BrokerProcess) -> float:
    """Million rows a second through confluent-kafka into Arrow, in one process, without Spark."""
    import pyarrow as pa
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "yardstick", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    rows = len(consumer.consume(10_000, 10))
    rows, start = 0, time.perf_counter()
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
    rate = rows / (time.perf_counter() - start) / MEGA
    consumer.close()
    return rate


def at_least(what: str, samples: list[float], unit: str, target: float) -> Figure:
    """A figure that should be high: given as what one million rows take, so that less is better."""
    return median_of(what, [1 / sample for sample in samples], unit, 1 / target)


def worker_bytes() -> list[int]:
    """Resident memory of each Python worker that this process's Spark has forked."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                stat = (directory / "stat").read_text()
                names[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(directory.name))
    found, line = [], list(parents.get(os.getpid(), []))
    while line:
        pid = line.pop()
        children = parents.get(pid, [])
        line += children
        if "pyspark.daemon" in names.get(pid, "") and not children:
            status = Path(f"/proc/{pid}/status").read_text()
            found.append(int(status.partition("VmRSS:")[2].split()[0]) * 1024)
    return found


@case
def spark_scan(repeats: int) -> list[Figure]:
    """Spark, local[2]: the topic of 4 M records to nowhere, over the wire and out of segment files."""
    with broker() as server, session(2) as spark:
        records = fill(server)
        yard = yardstick_rate(server)
        figures = []
        for transport, target in (("wire", 1.5), ("segments", 2.5)):
            rates = scan_rates(spark, server, records, min(repeats, 5), transport=transport)
            figures.append(at_least(f"Spark scan, {transport}", rates, "s/M rows", target))
            figures.append(
                at_least(f"the same in yardsticks of {yard:.2f} M/s", [r / yard for r in rates], "x⁻¹", 4)
            )
        return figures
