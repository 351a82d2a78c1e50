"""Clients that take more than their share, each as one case: what they do, and what it may cost the broker.

A case is a coroutine that begins the attack, and holds it until it is told to let go. The numbers in the ids are
those of the list of promises (N1 to N8).
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.broker_process import BrokerProcess
from tests.clients.wire import METADATA, PRODUCE, fetch_request, frame

MIB = 1024 * 1024
GIB = 1024 * MIB
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Begin = Callable[[BrokerProcess, float], AbstractAsyncContextManager[None]]


class Case(NamedTuple):
    """One attack. `growth` is what it may add to the broker's resident memory, in bytes; with `by_number` in
    proportion to how many connections there are."""

    name: str
    what: str
    growth: int
    begin: Begin
    by_number: bool = False


async def connect(broker: BrokerProcess, scheme: str = "kafka") -> Connection:
    """A connection to one of the broker's ports."""
    return await asyncio.open_connection("127.0.0.1", broker.ports[scheme])


@asynccontextmanager
async def many(
    broker: BrokerProcess, count: int, first: bytes, scheme: str = "kafka"
) -> AsyncIterator[list[Connection]]:
    """A number of connections, each of which has sent the same bytes."""
    found: list[Connection] = []
    try:
        for _ in range(count):
            connection = await connect(broker, scheme)
            connection[1].write(first)
            found.append(connection)
        yield found
    finally:
        for _, writer in found:
            writer.transport.abort()
        await asyncio.sleep(0)


def sized(data: bytes) -> bytes:
    """A frame with its size in front."""
    return struct.pack(">i", len(data)) + data


# Parts of a second for clients that send a byte a second.
_DRIP_TURNS = 50


# --- connections --------------------------------------------------------------------------------------------


@asynccontextmanager
async def trickle(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """1,000 sockets that send a byte a second, 500 with half a frame."""
    async with (
        many(broker, int(1000 * scale), b"\0\0") as slow,
        many(broker, int(500 * scale), struct.pack(">i", 5000) + bytes(2500)),
    ):

        async def drip() -> None:
            # Each at a time of its own, as a thousand strangers do.
            while True:
                for start in range(_DRIP_TURNS):
                    for _, writer in slow[start::_DRIP_TURNS]:
                        writer.write(b"\0")
                    await asyncio.sleep(1 / _DRIP_TURNS)

        task = asyncio.ensure_future(drip())
        try:
            yield
        finally:
            task.cancel()


@asynccontextmanager
async def announce(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """1,000 sockets announce 100 MiB each and send a byte."""
    async with many(broker, int(1000 * scale), struct.pack(">i", 100 * MIB) + b"x"):
        yield


@asynccontextmanager
async def idle(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """10,000 connections that have asked once and are silent, and 200 that ask again and again."""
    from core.protocol.messages.metadata import MetadataRequest

    request = sized(frame(METADATA, 9, 1, MetadataRequest(topics=[])))

    async def ask(connection: Connection) -> None:
        reader, writer = connection
        while await reader.read(4096):
            await asyncio.sleep(0.5)
            writer.write(request)

    async with (
        many(broker, int(10_000 * scale), request),
        many(broker, int(200 * scale), request) as active,
    ):
        tasks = [asyncio.ensure_future(ask(connection)) for connection in active]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def never_read(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """100 fetchers of a large topic that ask on and on, and never read an answer."""
    request = sized(
        frame(1, 12, 1, fetch_request([("large", 0, 0)], max_bytes=50 * MIB, partition_max_bytes=50 * MIB))
    )
    async with many(broker, int(100 * scale), request * 20) as connections:
        for reader, _ in connections:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        yield


@asynccontextmanager
async def slow_headers(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """1,000 HTTP connections whose header lines never end."""
    async with many(
        broker, int(1000 * scale), b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"a" * 3000, "http"
    ):
        yield


@asynccontextmanager
async def long_polls(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """5,000 long polls over HTTP that wait for a record that does not come."""
    path = b"/api/v1/topics/quiet/partitions/0/records?offset=latest&wait_ms=60000"
    request = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with many(broker, int(5000 * scale), request, "http"):
        yield


@asynccontextmanager
async def endless_lines(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """200 connections of the line protocol, each with a line without an end."""
    async with many(broker, int(200 * scale), b"V1|1|PRODUCE|t :" + b"x" * (4 * MIB), "text"):
        yield


# --- requests -----------------------------------------------------------------------------------------------


def bombs() -> dict[int, bytes]:
    """Compressed record bytes of about a mebibyte that open into a gibibyte, by codec."""
    zeros = bytes(16 * MIB)
    packer, pieces = zlib.compressobj(9, zlib.DEFLATED, 31), []
    for _ in range(GIB // len(zeros)):
        pieces.append(packer.compress(zeros))
    pieces.append(packer.flush())
    stream = zstandard.ZstdCompressor(level=3).compressobj(size=GIB)
    packed = b"".join(stream.compress(zeros) for _ in range(GIB // len(zeros))) + stream.flush()
    snappy = bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))
    return {
        1: b"".join(pieces),
        # snappy says its length in front: here one that it does not hold.
        2: b"\xff\xff\xff\xff\x07" + snappy[4:],
        3: bytes(lz4.frame.compress(bytes(256 * MIB))),
        4: packed,
    }


def bomb_batch(codec: int, payload: bytes) -> bytes:
    """A batch with a checksum that fits around such bytes."""
    from crc32c import crc32c

    batch = bytearray(build_batch([NewRecord(b"k", b"v")], now_ms=1_700_000_000_000)[:61])
    batch[21:23] = codec.to_bytes(2, "big")
    batch += payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@asynccontextmanager
async def explode(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """A mebibyte that opens into a gibibyte, in every codec, written to a compacted topic, which must look inside."""
    for codec, payload in bombs().items():
        data = PartitionProduceData(index=0, records=memoryview(bomb_batch(codec, payload)))
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="compacted", partition_data=[data])]
        )
        body = encode_request_header(PRODUCE, 9, 1, "bomb") + bytes(encode_request(PRODUCE, 9, request))
        async with many(broker, 1, sized(body)) as ((reader, _),):
            answer = await asyncio.wait_for(reader.read(4096), 60)
            assert answer, f"codec {codec}: no answer"
    yield


@asynccontextmanager
async def amplify(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """Requests that announce 2³¹−1 elements, tagged fields without end, a million topics in 3 MB."""
    head = struct.pack(">hhih", METADATA, 1, 1, -1)
    flexible = struct.pack(">hhih", METADATA, 12, 1, -1)
    requests = [
        head + struct.pack(">i", 2**31 - 1),
        flexible + b"\xff\xff\xff\xff\x07" + bytes(1000),
        flexible + b"\x80\xad\xe2\x04" + b"\x00\x00" * 100_000,
        head + struct.pack(">i", 1_000_000) + b"\0\1a" * 1_000_000,
    ]
    for data in requests * max(1, int(20 * scale)):
        async with many(broker, 1, sized(data)) as ((reader, _),):
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(reader.read(1000), 20)
    yield


@asynccontextmanager
async def large_bodies(broker: BrokerProcess, scale: float) -> AsyncIterator[None]:
    """A gibibyte over HTTP: announced, in chunks, and as gzip."""
    path = (
        b"POST /api/v1/topics/quiet/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    )
    async with many(broker, 20, path + b"Content-Length: 1073741824\r\n\r\n" + b"x" * 100_000, "http"):
        async with many(broker, 20, path + b"Transfer-Encoding: chunked\r\n\r\n", "http") as connections:
            for _, writer in connections:
                with contextlib.suppress(ConnectionError):
                    for _ in range(int(40 * scale) + 20):
                        writer.write(b"100000\r\n" + bytes(MIB) + b"\r\n")
                        await writer.drain()
        deep = b"[" * 100_000
        length = b"Content-Length: %d\r\n\r\n" % len(deep)
        async with many(broker, 20, path + length + deep, "http"):
            packed = gzip.compress(bytes(8 * MIB))
            length = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
            async with many(broker, 20, path + length + packed, "http"):
                await asyncio.sleep(0.5)
    yield


CASES = (
    Case("N1 trickle", "1,000 sockets of a byte a second, 500 half frames", 40 * MIB, trickle),
    Case("N3 announce", "1,000 sockets announce 100 MiB each and send a byte", 50 * MIB, announce),
    Case("N4 idle", "10,000 idle and 200 active connections", 10_000 * 25 * 1024, idle, True),
    Case("N5 amplify", "counts of 2³¹−1, a million topics in one request", 32 * MIB, amplify),
    Case("N6 explode", "1 MiB that opens into 1 GiB, in gzip, snappy, lz4, zstd", 64 * MIB, explode),
    Case("N8 never read", "100 fetchers that never read", 80 * MIB, never_read),
    Case("H1 headers", "1,000 HTTP requests whose headers never end", 60 * MIB, slow_headers),
    Case("H2 bodies", "HTTP bodies of 1 GiB, in chunks, 10⁵ deep, as gzip", 80 * MIB, large_bodies),
    Case("H3 long polls", "5,000 waiting HTTP long polls", 5000 * 30 * 1024, long_polls, True),
    Case("T1 lines", "200 lines that do not end", 60 * MIB, endless_lines),
)
