"""Under TLS all bytes use the transport: on the wire there is cipher text, and the answers are right."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config, Endpoint, TlsSettings
from core.listeners.acceptor import Acceptor
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.batch import build_batch, decode_all
from core.records.record import NewRecord
from core.security.tls import ServerCertificate
from tests.tls import Certificate, Relay, make_certificate, relay_to

ROOT = Path(__file__).resolve().parents[3]
# Only the records name it; no other part of the protocol does.
MARK = b"this text is a secret of the record"
# Below and above the size that is sent from a file directly, and above what a socket takes at once.
SIZES = (1, 60_000, 70_000, 900_000, 900_000)
BATCHES = (1, 1, 1, 1, 12)
RECORDS = 20
TOTAL = sum(size * count for size, count in zip(SIZES, BATCHES, strict=True))
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def value_of(size: int) -> bytes:
    return MARK * (size // len(MARK) + 1)


@contextlib.asynccontextmanager
async def serving(
    data_dir: Path,
    certificate: Certificate | None,
    version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> AsyncIterator[tuple[Broker, Relay]]:
    """A relay to a broker's Kafka listener, with TLS or without."""
    config = Config(data_dir=data_dir)
    broker = Broker(config, Clock())
    await broker.open()
    served = None
    if certificate is not None:
        settings = TlsSettings("default", certificate.file, certificate.key)
        served = ServerCertificate(settings, config, broker.clock)
        served.load()
        served.context(http=False).maximum_version = version
    listener = KafkaListener(broker, HANDLERS)
    endpoint = Endpoint("kafka", "127.0.0.1", 0)
    acceptor = Acceptor(endpoint, config, broker.clock, listener, certificate=served)
    acceptor.bind()
    await acceptor.start()
    try:
        async with relay_to(acceptor.endpoint.port) as relay:
            yield broker, relay
    finally:
        await acceptor.stop()
        await broker.close()


class Client:
    """A Kafka client on a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, key: int, version: int, request: Any, pause: float = 0) -> Any:
        frame = encode_request_header(key, version, 1, "test") + encode_request(key, version, request)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        # The answer does not fit into the sockets on the way: the rest waits for its reader.
        await asyncio.sleep(pause)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        _, position = decode_response_header(key, version, data)
        return decode_response(key, version, data, position)

    def close(self) -> None:
        self._writer.transport.abort()


async def write_and_read(client: Client, broker: Broker) -> None:
    """Produce records of all sizes and fetch them: one by one, all together, and by a client that waits."""
    try:
        await _write_and_read(client, broker)
    finally:
        client.close()


async def _write_and_read(client: Client, broker: Broker) -> None:
    await client.ask(19, 4, CreateTopicsRequest([CreatableTopic("t", len(SIZES), 1)]))
    now = broker.clock.wall_ms()
    for partition, size in [(p, size) for p, size in enumerate(SIZES) for _ in range(BATCHES[p])]:
        batch = build_batch([NewRecord(value=value_of(size // RECORDS)) for _ in range(RECORDS)], now_ms=now)
        data = [PartitionProduceData(partition, memoryview(batch))]
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=data)]
        )
        done = await client.ask(0, 9, request)
        assert done.responses[0].partition_responses[0].error_code == 0
    most = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2 * TOTAL}
    parts = [FetchPartition(p, fetch_offset=0, partition_max_bytes=2 * TOTAL) for p in range(len(SIZES))]
    for wanted, pause in [*(([part], 0.0) for part in parts), (parts, 0.0), (parts, 0.05)]:
        request = FetchRequest(topics=[FetchTopic("t", partitions=wanted)], **most)
        answer = await client.ask(1, 11, request, pause)
        for found in answer.responses[0].partitions:
            values = [record.value for record in decode_all(bytes(found.records), max_bytes=2**30)]
            wanted_value = value_of(SIZES[found.partition_index] // RECORDS)
            assert values == [wanted_value] * (RECORDS * BATCHES[found.partition_index])


def run(loop: str, work: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(work(), 60))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.client("openssl")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("loop", LOOPS)
def test_under_tls_the_wire_holds_no_byte_of_a_record(
    tmp_path: Path, certificate: Certificate, loop: str, version: ssl.TLSVersion
) -> None:
    async def work() -> None:
        async with serving(tmp_path, certificate, version) as (broker, relay):
            stream = await asyncio.open_connection("127.0.0.1", relay.port, ssl=certificate.client())
            await write_and_read(Client(*stream), broker)
            assert stream[1].get_extra_info("ssl_object").version() == str(version.name).replace("_", ".")
            assert len(relay.seen["received"]) > 3 * TOTAL and len(relay.seen["sent"]) > TOTAL
            for way, seen in relay.seen.items():
                assert MARK not in seen and b"ecret" not in seen, way

    run(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_without_tls_the_relay_sees_every_record(tmp_path: Path, loop: str) -> None:
    """What the test above looks for can be found."""

    async def work() -> None:
        async with serving(tmp_path, None) as (broker, relay):
            await write_and_read(Client(*await asyncio.open_connection("127.0.0.1", relay.port)), broker)
            assert all(seen.count(MARK) > TOTAL // len(MARK) for seen in relay.seen.values())

    run(loop, work)


def test_only_the_connection_writes_past_a_transport() -> None:
    """Whatever else takes the socket from a transport has to ask for TLS first, as `_plain_socket` does."""
    raw = re.compile(
        r"os\.(sendfile|writev|splice)\b|\.(sock_\w+|sendfile|sendmsg)\(|get_extra_info\(.socket.\)|look_up\(.socket.\)"
    )
    found = {
        str(path.relative_to(ROOT)): len(raw.findall(path.read_text()))
        for top in ("app", "core")
        for path in (ROOT / top).rglob("*.py")
        if raw.search(path.read_text())
    }
    # The links between gateways set options of their sockets, and write through the transport.
    assert found == {"core/listeners/connection.py": 3, "app/gateways/links.py": 1}
