"""A gateway over a real Apache Kafka of one node on the same machine, beside librdkafka on the same cluster.

Kafka's JVM, the gateway and the clients share the cores, so a latency counts only beside that of librdkafka in the
same run, turn by turn. Processor time is the gateway's alone, all threads. Needs a JDK and what
`python -m tests.peers.fetch kafka-4.1` fetches.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.bystander import percentile
from bench.case import Figure, case, least_of, median_of
from bench.groups import broker_without_delay
from bench.http import VALUE, Http, get, post
from bench.http_yardstick import http_stack
from bench.listeners import listeners
from bench.load import Connection, batch_of, produce_frame
from bench.server import CORES, measured_cpu, resident_bytes
from tests.broker_process import BrokerProcess
from tests.gateway_process import GatewayProcess
from tests.peers.kafka import SCRIPTS_JVM, KafkaProcess

MICRO, MS = 1e6, 1e3
# A POST of one record may take this much longer than librdkafka, p50, in ms; CPU of the gateway in µs a request.
MOST_BEYOND, POST_ONE, POST_MANY, GET_MANY = 1.5, 80, 220, 220
MOST_POLL_MS = 6.0
# Requests under way at once where it is not one.
AT_ONCE = 16
POLLS = 200
LISTENERS, EVENTS, APPENDS = 5_000, 20, 20
PARTITIONS = 4
# Kafka's indexes are memory-mapped files. The first entry in each of 500 partitions, at 4 KiB by default, means a
# thousand page faults on a disk that is busy: 10 s and more in which Kafka does nothing else for this client.
SETTINGS = {"log.index.interval.bytes": "1000000000"}
_GROUP = "/api/v1/groups/bench/consumers"
_STREAM = get("/api/v1/topics/listened/records?from=latest").replace(
    b"application/json", b"text/event-stream"
)
_FETCHES = re.compile(r'^sluice_upstream_requests(?:_total)?\{api="Fetch"\} (\S+)$', re.MULTILINE)


@contextmanager
def cluster(topics: Sequence[tuple[str, int]] = (("bench", 1),)) -> Iterator[KafkaProcess]:
    """A Kafka with the options of its own scripts, a heap of 512 MiB, and some topics with their partitions."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        kafka = KafkaProcess(Path(directory) / "node", settings=SETTINGS, jvm=SCRIPTS_JVM)
        try:
            kafka.start()
            connection = Connection(kafka.address)
            for name, partitions in topics:
                connection.create_topic(name, partitions)
            connection.close()
            yield kafka
        finally:
            kafka.kill()


@contextmanager
def gateway(kafka: KafkaProcess, *options: str) -> Iterator[GatewayProcess]:
    """A gateway over that cluster, with an empty directory."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = GatewayProcess(Path(directory) / "data", kafka.bootstrap, options=options)
        try:
            yield process.start()
        finally:
            process.kill()


@contextmanager
def together(*pids: int) -> Iterator[None]:
    """Keep processes and this one on one core, for processor time; they run anywhere afterwards, for latency."""
    anywhere = os.sched_getaffinity(0)
    try:
        with CORES.together(*pids):
            yield
    finally:
        for pid in pids:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), anywhere)


def json_records(count: int) -> list[dict[str, str]]:
    """Return keyed records of 200 B as they are posted."""
    return [{"key": f"key-{number}", "value": VALUE} for number in range(count)]


def timed(connection: Http, request: bytes, count: int) -> list[float]:
    """Send a request so often, one at a time; the time of each in ms, least first."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        status, body = connection.call(request)
        times.append((time.perf_counter() - start) * MS)
        if status != 200:
            raise RuntimeError(f"{status}: {body[:500]!r}")
    return sorted(times)


class Synchronous:
    """librdkafka: some records, acks=all, no lingering, and wait for their acknowledgments."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._left = 0

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not acknowledged: {error}")
        self._left -= 1

    def timed(self, records: int, count: int) -> list[float]:
        """Write this many records so often; the time of each in ms, least first."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self._left = records
            for number in range(records):
                self._producer.produce("bench", VALUE, f"key-{number}", on_delivery=self._delivered)
            while self._left:
                self._producer.poll(1.0)
            times.append((time.perf_counter() - start) * MS)
        return sorted(times)


def each_cpu(server: GatewayProcess, connections: Sequence[Http], request: bytes, count: int) -> float:
    """Return the gateway's processor µs per request, with as many under way as there are connections."""
    with measured_cpu(server) as used:
        for _ in range(count // len(connections)):
            for one in connections:
                one.socket.sendall(request)
            for one in connections:
                one.answer()
    return used[0] / (count // len(connections) * len(connections)) * MICRO


def _post(records: int, count: int, target: float, beyond: float | None, repeats: int) -> list[Figure]:
    ours: list[float] = []
    theirs: list[float] = []
    slow: list[float] = []
    slow_theirs: list[float] = []
    cpu: list[float] = []
    many: list[float] = []
    floors: list[float] = []
    request = post("/api/v1/topics/bench/records", {"records": json_records(records)})
    with cluster() as kafka, gateway(kafka) as server, http_stack("bare") as bare:
        connection, rdkafka, least = Http(server), Synchronous(kafka.bootstrap), Http(bare)
        others = [connection, *(Http(server) for _ in range(AT_ONCE - 1))]
        # Java compiles, and every connection is open.
        rdkafka.timed(records, count)
        timed(connection, request, count)
        each_cpu(server, others, request, count)
        for _ in range(repeats):
            with measured_cpu(server) as used:
                mine = timed(connection, request, count)
            cpu.append(used[0] / count * MICRO)
            rival = rdkafka.timed(records, count)
            ours.append(percentile(mine, 50))
            slow.append(percentile(mine, 99))
            theirs.append(percentile(rival, 50))
            slow_theirs.append(percentile(rival, 99))
            with together(server.pid, bare.pid):
                many.append(each_cpu(server, others, request, count))
                with measured_cpu(bare) as used:
                    for _ in range(count):
                        least.call(request)
                floors.append(used[0] / count * MICRO)
        for one in (*others, least):
            one.close()
    more = [one - other for one, other in zip(ours, theirs, strict=True)]
    what = "one record" if records == 1 else f"{records} records"
    return [
        least_of(f"gateway: POST {what}, CPU", cpu, "µs/request", target, floor=min(floors)),
        least_of(f"  the same, {AT_ONCE} under way", many, "µs/request", target, floor=min(floors)),
        median_of("  p50", ours, "ms", floor=statistics.median(theirs)),
        median_of("  beyond librdkafka, p50", more, "ms", beyond),
        median_of("  p99", slow, "ms", floor=statistics.median(slow_theirs)),
    ]


@case
def gateway_post_1(repeats: int) -> list[Figure]:
    """A gateway over a real Kafka: POST of one record of 200 B, acks=all, beside librdkafka, one at a time."""
    return _post(1, 500, POST_ONE, MOST_BEYOND, repeats)


@case
def gateway_post_100(repeats: int) -> list[Figure]:
    """A gateway over a real Kafka: POST of 100 records of 200 B, acks=all, beside librdkafka, one POST at a time."""
    return _post(100, 200, POST_MANY, None, repeats)


@case
def gateway_get_100(repeats: int) -> list[Figure]:
    """A gateway over a real Kafka: GET of 100 records of 200 B as JSON, out of the window of the partition."""
    request = get("/api/v1/topics/bench/partitions/0/records?offset=0&limit=100")
    cpu, times = [], []
    with cluster() as kafka, gateway(kafka) as server:
        connection = Http(server)
        connection.call(post("/api/v1/topics/bench/records", {"records": json_records(100)}))
        timed(connection, request, 50)
        for _ in range(repeats):
            times.append(percentile(timed(connection, request, 300), 50))
            with together(server.pid):
                cpu.append(each_cpu(server, [connection], request, 300))
        connection.close()
    return [
        least_of("gateway: GET 100 records, CPU", cpu, "µs/request", GET_MANY),
        median_of("  p50", times, "ms"),
    ]


def answered(http: Http, request: bytes) -> dict[str, Any]:
    """Return the JSON of an answer that must be good."""
    status, body = http.call(request)
    if status not in (200, 201):
        raise RuntimeError(f"answered {status}: {body!r}")
    found: dict[str, Any] = json.loads(body)
    return found


class Poller:
    """A managed consumer that waits for one record at a time, and a client of Kafka's protocol that appends it."""

    def __init__(self, server: BrokerProcess) -> None:
        self._connection, self._http = Connection(server.kafka_address), Http(server)
        self._connection.create_topic("polled", PARTITIONS)
        self._frame = produce_frame("polled", batch_of(200, 1))
        answered(self._http, post(_GROUP, {"name": "c", "topics": ["polled"]}))
        self._ack = answered(self._http, self._poll(None, 1000))["ack"]

    def _poll(self, ack: str | None, wait_ms: int) -> bytes:
        return post(f"{_GROUP}/c:poll", {"ack": ack, "wait_ms": wait_ms, "limit": 100})

    def times(self, count: int) -> list[float]:
        """Return the times from an append to the answer of the poll that waits, in ms, least first."""
        times = []
        for _ in range(count):
            self._http.socket.sendall(self._poll(self._ack, 10_000))
            time.sleep(0.01)
            start = time.perf_counter()
            self._connection.socket.sendall(self._frame)
            _, body = self._http.answer()
            times.append((time.perf_counter() - start) * MS)
            self._connection.receive()
            self._ack = json.loads(body)["ack"]
        return sorted(times)

    def close(self) -> None:
        """Close both connections."""
        self._connection.close()
        self._http.close()


@case
def gateway_poll(repeats: int) -> list[Figure]:
    """A managed consumer over a real Kafka: from the append to the answer of a poll, beside our own broker."""
    through, slow, own = [], [], []
    with cluster() as kafka, gateway(kafka) as server, broker_without_delay() as embedded:
        ours, beside = Poller(server), Poller(embedded)
        for poller in (ours, beside):
            poller.times(POLLS // 2)
        for _ in range(repeats):
            times = ours.times(POLLS)
            through.append(percentile(times, 50))
            slow.append(percentile(times, 99))
            own.append(percentile(beside.times(POLLS), 50))
        ours.close()
        beside.close()
    what = "gateway: managed poll, append to answer, p50"
    return [
        least_of(what, through, "ms", MOST_POLL_MS, floor=min(own)),
        median_of("  p99", slow, "ms"),
        least_of("  our own broker in the same run, p50", own, "ms"),
    ]


def fetches(server: GatewayProcess) -> float:
    """Return the Fetch requests that the cluster has answered to this gateway."""
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=60) as answer:
        found = _FETCHES.search(answer.read().decode())
    return float(found[1]) if found else 0.0


def _listened(server: GatewayProcess, kafka: KafkaProcess, count: int) -> tuple[float, float, float, float]:
    """Return (Fetch requests in the cluster, seconds that they took, CPU µs an event, KiB a listener)."""
    connection = Connection(kafka.address)
    frame = produce_frame("listened", batch_of(61 + 210 * EVENTS // APPENDS, EVENTS // APPENDS))
    before_bytes = resident_bytes(server.pid)
    with listeners(("127.0.0.1", server.ports["http"]), _STREAM, count, EVENTS) as (pipe, _):
        each = (resident_bytes(server.pid) - before_bytes) / count / 1024
        before, start = fetches(server), time.perf_counter()
        with measured_cpu(server) as used:
            for _ in range(APPENDS):
                connection.socket.sendall(frame)
                connection.receive()
                time.sleep(0.05)
            if not pipe.poll(120):
                raise TimeoutError("the listeners have not got all events")
        pipe.recv()
        found, took = fetches(server) - before, time.perf_counter() - start
    connection.close()
    return found, took, used[0] / (EVENTS * count) * MICRO, each


@case
def gateway_sse(repeats: int) -> list[Figure]:
    """Listeners of one partition of a real Kafka, 1 and 5,000: Fetch requests of the gateway, processor time."""
    one, all_of_them, cpu, memory = [], [], [], []
    with cluster([("listened", 1)]) as kafka, gateway(kafka) as server:
        for _ in range(min(repeats, 3)):
            alone = _listened(server, kafka, 1)
            many = _listened(server, kafka, LISTENERS)
            one.append(alone[0])
            all_of_them.append(many[0])
            cpu.append(many[2])
            memory.append(many[3])
    return [
        median_of(f"gateway: Fetch requests for {APPENDS} appends, one listener", one, "requests"),
        median_of(
            f"  {LISTENERS} listeners",
            all_of_them,
            "requests",
            1.5 * max(statistics.median(one), APPENDS),
            floor=statistics.median(one),
        ),
        least_of("  CPU", cpu, "µs/event"),
        Figure("  memory, the first time", memory[0], "KiB/listener", samples=memory),
    ]
