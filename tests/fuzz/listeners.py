"""Whole listeners under fuzz: a broker in virtual time, every port, valid and broken requests in one stream.

After each burst a healthy client asks for something and is answered; the log holds no traceback; nothing takes
long.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import random
import shutil
import struct
import tempfile
import time
import zlib
from pathlib import Path

import app.fastapi_app  # noqa: F401 (else the first request that needs it would wait for it, half a second)
from core.config import Config, Endpoint
from core.protocol.messages.metadata import MetadataRequest
from tests.core.log.disk import Died
from tests.fuzz.mutation import mutate
from tests.fuzz.parsers import BODIES, LINES, kafka_requests
from tests.fuzz.run import MAX_SECONDS, Finding, Report, kept
from tests.simulation.loop import SimLoop
from tests.simulation.machine import HTTP_PORT, Machine
from tests.simulation.run import Complaints
from tests.simulation.streams import GoneError, HttpStream, KafkaStream, Stream
from tests.simulation.world import KAFKA_PORT

TEXT_PORT, OLD_PORT = 9094, 9093
METADATA, METADATA_VERSION = 3, 9
# Requests on one connection before it is closed, and connections before a healthy client asks.
_BURST, _CONNECTIONS = 8, 10
# Virtual seconds that a burst is given.
_PATIENCE = 0.2
# A request that makes many topics, or reads all of them, takes its time.
_SLOW = 8

PATHS = [
    "/api/v1", "/api/v1/topics", "/api/v1/topics/t", "/api/v1/topics/t/records", "/api/v1/topics/t/offsets?at=latest",
    "/api/v1/topics/t/partitions/0/records?offset=0&limit=5", "/api/v1/topics/t/partitions/0/records/0",
    "/api/v1/topics/t/records?from=earliest&key=a", "/api/v1/groups", "/api/v1/groups/g", "/api/v1/groups/g/offsets",
    "/api/v1/groups/g/consumers", "/api/v1/groups/g/consumers/c:poll", "/api/v1/groups/g/members", "/metrics",
    "/api/v1/groups/g/offsets:reset", "/topics", "/topics/t", "/topics/t/partitions/0/offsets", "/consumers/g",
    "/consumers/g/instances/i/records", "/consumers/g/instances/i/subscription", "/brokers", "/healthz",
]  # fmt: skip
TYPES = [
    "application/json", "application/x-ndjson", "text/plain", "application/vnd.kafka.json.v2+json",
    "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.v2+json",
]  # fmt: skip
MORE_BODIES = [
    b'{"partitions": 2, "configs": {"retention.ms": "1000"}}',
    b'{"records": [{"key": "YQ==", "value": "YWJj", "partition": 0}]}',
    b'{"name": "c", "topics": ["t"], "start": "earliest"}',
    b'{"to": "earliest", "dry_run": true}',
    b'{"topics": ["t"]}',
    b'{"name": "i", "format": "json", "auto.offset.reset": "earliest"}',
]


def http_requests(chance: random.Random) -> list[bytes]:
    """Requests of both surfaces, as they go over the wire."""
    found = []
    for _ in range(60):
        path, body = chance.choice(PATHS), b""
        method = chance.choice(("GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"))
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if method in ("POST", "PUT", "PATCH"):
            body = chance.choice(BODIES + MORE_BODIES)
            head += f"Content-Type: {chance.choice(TYPES)}\r\nContent-Length: {len(body)}\r\n"
        found.append(head.encode() + b"\r\n" + body)
    return found


def old_requests() -> list[bytes]:
    """One of each request of Kafka 0.7, without its size."""
    payload = b"payload"
    message = struct.pack(">ibbI", len(payload) + 6, 1, 0, zlib.crc32(payload)) + payload
    packed = gzip.compress(message * 3, mtime=0)
    wrapper = struct.pack(">ibbI", len(packed) + 6, 1, 1, zlib.crc32(packed)) + packed
    place = struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)
    fetch, offsets = struct.pack(">qi", 0, 4096), struct.pack(">qi", -1, 10)
    found = [struct.pack(">h", 1) + place + fetch, struct.pack(">h", 4) + place + offsets]
    for messages in (message, wrapper):
        sized = struct.pack(">i", len(messages)) + messages
        found.append(struct.pack(">h", 0) + place + sized)
        found.append(struct.pack(">hh", 3, 2) + (place + sized) * 2)
    found.append(struct.pack(">hh", 2, 2) + (place + fetch) * 2)
    return found


class _Listener:
    """How a listener is spoken to: its port, good requests, and how a changed one is put on the wire."""

    def __init__(self, port: int, samples: list[bytes], mode: str) -> None:
        self.port, self.samples, self.mode = port, samples, mode

    def frame(self, data: bytes) -> bytes:
        """The bytes to send."""
        if self.mode == "sized":
            return struct.pack(">i", len(data)) + data
        if self.mode == "lines":
            return data + b"\n"
        return data


def listeners(seed: int) -> dict[str, _Listener]:
    """All listeners by name."""
    return {
        "kafka-listener": _Listener(KAFKA_PORT, list(kafka_requests()), "sized"),
        "http-listener": _Listener(HTTP_PORT, http_requests(random.Random(seed)), "raw"),
        "text-listener": _Listener(TEXT_PORT, LINES, "lines"),
        "kafka07-listener": _Listener(OLD_PORT, old_requests(), "sized"),
    }


def fuzz_listener(name: str, seed: int, *, inputs: int) -> Report:
    """Send `count` requests to a listener."""
    directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    report, loop = Report(name), SimLoop()
    # To collect the garbage of all that is in this process takes half a second; that is not an input's fault.
    gc.collect()
    gc.freeze()
    complaints = Complaints(lambda text: None)
    logging.getLogger().addHandler(complaints)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_Attack(loop, directory / "data", name, seed, report, complaints).run(inputs))
    finally:
        gc.unfreeze()
        logging.getLogger().removeHandler(complaints)
        shutil.rmtree(directory, ignore_errors=True)
    return report


class _Attack:
    def __init__(
        self, loop: SimLoop, data_dir: Path, name: str, seed: int, report: Report, complaints: Complaints
    ) -> None:
        self.listener = listeners(seed)[name]
        self.chance = random.Random(f"{name} {seed}")
        self.report, self.complaints, self.loop = report, complaints, loop
        self.recent: list[bytes] = []
        config = Config(
            data_dir=data_dir,
            listeners=(
                Endpoint("http", "127.0.0.1", HTTP_PORT),
                Endpoint("kafka", "127.0.0.1", KAFKA_PORT),
                Endpoint("text", "127.0.0.1", TEXT_PORT),
                Endpoint("kafka07", "127.0.0.1", OLD_PORT, (("magic", "1"),)),
            ),
            max_partitions_per_topic=20,
            max_partitions=2000,
        )
        self.machine = Machine(loop, seed, config, lambda text: None)

    async def run(self, inputs: int) -> None:
        """Send bursts of requests until `count` were sent, or one did harm."""
        try:
            await self.machine.start()
            first = kept(self.report.target)
            while self.report.inputs < inputs and self.report.finding is None:
                for _ in range(_CONNECTIONS):
                    await self._burst(first)
                await self._healthy()
                self._judge()
            await self.machine.stop()
            self._judge()
        finally:
            self.machine.restore()

    async def _burst(self, first: list[bytes]) -> None:
        """A few requests on one connection."""
        stream = Stream(self.machine.network, self.listener.port)
        transport = await stream.open()
        for _ in range(_BURST):
            # The corpus has the bytes as they were on the wire.
            data = first.pop() if first else self.listener.frame(self._request())
            self.recent.append(data)
            before = time.process_time()
            transport.write(data)
            await asyncio.sleep(_PATIENCE / _BURST)
            took = time.process_time() - before
            self.report.inputs += 1
            self.report.slowest = max(self.report.slowest, took)
            if took > MAX_SECONDS * _SLOW and self.report.finding is None:
                self.report.finding = Finding(self.report.target, data, f"it took {took * 1000:.0f} ms")
            if transport.closed:
                self.report.refused += 1
                break
        stream.close()

    def _request(self) -> bytes:
        data = self.chance.choice(self.listener.samples)
        return data if self.chance.random() < 0.2 else mutate(data, self.listener.samples, self.chance)

    async def _healthy(self) -> None:
        """Others are served as ever."""
        kafka, http = (
            KafkaStream(self.machine.network, KAFKA_PORT),
            HttpStream(self.machine.network, HTTP_PORT),
        )
        try:
            await kafka.call(METADATA, METADATA_VERSION, MetadataRequest(topics=[]))
            status, _ = await http.call("GET", "/healthz")
            assert status == 200, status
        except (GoneError, AssertionError) as error:
            self._found(f"a healthy client was not served: {error}")
        kafka.close()
        http.close()

    def _judge(self) -> None:
        crashes = [one for one in self.loop.crashes if not isinstance(one.get("exception"), Died)]
        if crashes:
            self._found(f"not caught: {crashes[0]}")
        elif self.complaints.found:
            self._found(self.complaints.found[0])
        self.recent = []

    def _found(self, why: str) -> None:
        if self.report.finding is None:
            self.report.finding = Finding(self.report.target, b"".join(self.recent), why)
