"""`python -m bench for-tests`: how soon a test can write its first record, beside a real Kafka and mock libraries.

Each way is started from nothing, in turn, and writes one record with librdkafka (confluent-kafka), which is imported
before the clock starts. The figure is the median of the runs with its spread. `--markdown docs/guides/your-tests.md`
writes the table into the documentation, between its marks. It needs a JDK and what `python -m tests.peers.fetch
kafka-4.1` fetches; the mock libraries are installed into `.cache/bench-mocks`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compare import Neighbors, insert
from bench.server import cpu_ns, resident_bytes
from pytest_sluice import start_sluice
from tests.broker_process import ROOT
from tests.peers.fetch import SETS, is_fetched
from tests.peers.kafka import SCRIPTS_JVM, KafkaProcess

RELEASE = "kafka-4.1"
MARKS = (
    "<!-- for-tests: python -m bench for-tests --markdown docs/guides/your-tests.md -->\n",
    "<!-- /for-tests -->",
)
MOCKS = ROOT / ".cache" / "bench-mocks"
# kafka-mocha imports the client of the schema registry, whose own needs are extras.
MOCK_PACKAGES = ("confluent-kafka[schemaregistry,avro,json]", "mockafka-py==0.2.3", "kafka-mocha==2.3.0")
TOPIC = "orders"
FLUSH_SECONDS = 60
MIB = 1024 * 1024


@dataclass(frozen=True)
class Start:
    """One start: seconds until it was ready and until the first record was acknowledged; until then, the seconds of
    processor time of what was started, and its resident memory in MiB if it is a process of its own."""

    ready: float
    written: float
    cpu: float
    memory: float | None = None


def started(pid: int, ready: float, written: float) -> Start:
    """Return the start of a process that has taken a record."""
    return Start(ready, written, cpu_ns(pid) / 1e9, resident_bytes(pid) / MIB)


@dataclass(frozen=True)
class Way:
    """A way to have a Kafka in a test."""

    title: str
    run: Callable[[], Start]


def write_one(bootstrap: str, topic: str = TOPIC) -> None:
    """Write a record with librdkafka and wait for its acknowledgement by all replicas."""
    from confluent_kafka import Producer

    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"one", on_delivery=lambda error, _: errors.append(error))
    if producer.flush(FLUSH_SECONDS) or errors != [None]:
        raise RuntimeError(f"The record was not written: {errors}.")


def fixture() -> Start:
    """What the fixture `sluice` does once for a test run."""
    begin = time.perf_counter()
    with start_sluice() as broker:
        ready = time.perf_counter() - begin
        write_one(broker.kafka_bootstrap_servers)
        return started(broker.pid, ready, time.perf_counter() - begin)


def topic_after(others: int) -> Callable[[], Start]:
    """Return what the fixture `sluice_topic` does for a test, after `others` tests: a topic, and the record in it."""

    def run() -> Start:
        with start_sluice() as broker:
            for number in range(others):
                write_one(broker.kafka_bootstrap_servers, broker.create_topic(f"other-{number}"))
            begin, used = time.perf_counter(), cpu_ns(broker.pid)
            name = broker.create_topic("mine")
            ready = time.perf_counter() - begin
            write_one(broker.kafka_bootstrap_servers, name)
            return Start(ready, time.perf_counter() - begin, (cpu_ns(broker.pid) - used) / 1e9)

    return run


def command() -> Start:
    """`sluice serve --ephemeral`, as a test in any language starts it."""
    program = Path(sys.executable).with_name("sluice")
    begin = time.perf_counter()
    with subprocess.Popen([program, "serve", "--ephemeral"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        ready = time.perf_counter() - begin
        write_one(told["kafka_bootstrap_servers"])
        done = started(told["pid"], ready, time.perf_counter() - begin)
        process.terminate()
    return done


def kafka() -> Start:
    """One node in KRaft mode, broker and controller, from its jars, with the JVM options of its own scripts."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        node = KafkaProcess(
            Path(directory) / "node", release=RELEASE, heap="1g", jvm=(*SCRIPTS_JVM, "-Xms1g")
        )
        begin = time.perf_counter()
        try:
            node.start()
            ready = time.perf_counter() - begin
            write_one(node.bootstrap)
            return started(node.pid, ready, time.perf_counter() - begin)
        finally:
            node.kill()


_MOCK_CLUSTER = """
producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "linger.ms": 0})
ready = time.perf_counter()
producer.produce("orders", b"one")
assert producer.flush(60) == 0
"""
_MOCKAFKA = """
from mockafka import FakeAdminClientImpl, FakeProducer
from mockafka.admin_client import NewTopic
FakeAdminClientImpl().create_topics([NewTopic("orders", 1)])
producer = FakeProducer()
ready = time.perf_counter()
producer.produce("orders", value=b"one", partition=0)
producer.flush()
"""
_MOCHA = """
from kafka_mocha import mock_producer
@mock_producer()
def write():
    global ready
    producer = confluent_kafka.Producer({"bootstrap.servers": "unused"})
    ready = time.perf_counter()
    producer.produce("orders", b"one", b"key")
    producer.flush()
write()
"""


def mock(program: str) -> Callable[[], Start]:
    """Return a way that runs in a test's own process, in a new interpreter with the mock libraries."""
    text = (
        "import confluent_kafka, time\nbegin, used = time.perf_counter(), time.process_time()\n"
        f"{program}\nprint(ready - begin, time.perf_counter() - begin, time.process_time() - used)"
    )

    def run() -> Start:
        done = subprocess.run(
            [MOCKS / "bin" / "python", "-c", text], capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        ready, written, cpu = (float(one) for one in done.stdout.split()[-3:])
        return Start(ready, written, cpu)

    return run


WAYS = (
    Way("the fixture `sluice`, once for a run", fixture),
    Way("the fixture `sluice_topic`, first test", topic_after(0)),
    Way("the fixture `sluice_topic`, later tests", topic_after(3)),
    Way("`sluice serve --ephemeral`", command),
    Way("Apache Kafka 4.1, one node, from its jars", kafka),
    Way("librdkafka's mock cluster", mock(_MOCK_CLUSTER)),
    Way("mockafka-py", mock(_MOCKAFKA)),
    Way("kafka-mocha", mock(_MOCHA)),
)


def install_mocks() -> None:
    """Install the mock libraries into an environment of their own, unless they are there."""
    stamp, wanted = MOCKS / "installed", f"{sys.version} {MOCK_PACKAGES}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(MOCKS, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", MOCKS], check=True)
    subprocess.run([MOCKS / "bin" / "python", "-m", "pip", "install", "-q", *MOCK_PACKAGES], check=True)
    stamp.write_text(wanted)


def table(starts: dict[str, list[Start]], share: float) -> str:
    """Return the table in Markdown, with a line that says when and where it was measured."""
    runs = len(next(iter(starts.values())))
    release = next(one for one in SETS[RELEASE] if ":kafka_" in one).rpartition(":")[2]
    lines = [
        f"Measured {time.strftime('%Y-%m-%d')}, {runs} runs in turn, on {os.cpu_count()} cores of which other "
        f"processes used {share:.0%} ({platform.platform()}, Python {platform.python_version()}, Kafka {release}): "
        "median (least to most).",
        "",
        "| | ready (s) | first record acknowledged (s) | processor time (s) | memory (MiB) |",
        "|---|---|---|---|---|",
    ]
    for title, found in starts.items():
        memory = [one.memory for one in found if one.memory is not None]
        columns = ([one.ready for one in found], [one.written for one in found], [one.cpu for one in found])
        cells = [title, *(_spread(column) for column in columns)]
        lines.append(f"| {' | '.join([*cells, f'{statistics.median(memory):.0f}' if memory else '–'])} |")
    return "\n".join(lines) + "\n"


def _spread(samples: list[float]) -> str:
    return f"{statistics.median(samples):.2g} ({min(samples):.2g} to {max(samples):.2g})"


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench for-tests", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each way is started")
    parser.add_argument("--markdown", type=Path, help="write the table between a file's marks")
    wanted = parser.parse_args(arguments)
    if not is_fetched(RELEASE):
        print(f"A JDK and Kafka are needed: run python -m tests.peers.fetch {RELEASE}.", file=sys.stderr)
        return 2
    import confluent_kafka  # noqa: F401  (its import is no part of any start)

    install_mocks()
    neighbors = Neighbors()
    starts: dict[str, list[Start]] = {way.title: [] for way in WAYS}
    for number in range(1, wanted.runs + 1):
        for way in WAYS:
            print(f"run {number} of {wanted.runs}: {way.title}", file=sys.stderr, flush=True)
            starts[way.title].append(way.run())
    text = table(starts, neighbors.share())
    print(text)
    if wanted.markdown:
        insert(wanted.markdown, text, MARKS)
    return 0
