"""A client of Kafka 0.7 in a few lines: frames out, answers in, over a plain socket of asyncio."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from core.kafka07.messages import encode_message

MAX_SIZE = 1 << 20


def frame(kind: int, body: bytes) -> bytes:
    """A request with its size in front."""
    return struct.pack(">ih", len(body) + 2, kind) + body


def target(topic: str, partition: int) -> bytes:
    """Topic and partition."""
    return struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", partition)


def produce(topic: str, *payloads: bytes, partition: int = 0, magic: int = 1, codec: int = 0) -> bytes:
    """A PRODUCE of messages; with a codec each payload is a wrapper's."""
    data = b"".join(encode_message(magic, payload, codec) for payload in payloads)
    return frame(0, target(topic, partition) + struct.pack(">i", len(data)) + data)


def fetch(topic: str, offset: int, size: int = MAX_SIZE, partition: int = 0) -> bytes:
    """A FETCH."""
    return frame(1, target(topic, partition) + struct.pack(">qi", offset, size))


def offsets(topic: str, time: int, number: int = 100, partition: int = 0) -> bytes:
    """An OFFSETS."""
    return frame(4, target(topic, partition) + struct.pack(">qi", time, number))


class OldClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> OldClient:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def answer(self) -> bytes:
        """The next answer, with its size."""
        size = await asyncio.wait_for(self.reader.readexactly(4), 20)
        return size + await asyncio.wait_for(self.reader.readexactly(int.from_bytes(size, "big")), 20)

    async def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer."""
        self.writer.write(request)
        return await self.answer()

    async def fetch(
        self, topic: str, offset: int, size: int = MAX_SIZE, partition: int = 0
    ) -> tuple[int, bytes]:
        """Error code and chunk."""
        answer = await self.ask(fetch(topic, offset, size, partition))
        return struct.unpack_from(">h", answer, 4)[0], answer[6:]

    async def offsets(
        self, topic: str, time: int, number: int = 100, partition: int = 0
    ) -> tuple[int, list[int]]:
        """Error code and addresses."""
        answer = await self.ask(offsets(topic, time, number, partition))
        code, count = struct.unpack_from(">hi", answer, 4)
        return code, list(struct.unpack_from(f">{count}q", answer, 10))

    async def produce(self, topic: str, *payloads: bytes, **how: int) -> None:
        """Send messages, and wait until the broker handles the next request of this connection."""
        self.writer.write(produce(topic, *payloads, **how))
        assert await self.fetch("nothing", 0) == (0, b"")

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection without another word."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 20) == b""
        except ConnectionError:
            return True


def payloads_of(chunk: bytes, magic: int = 1) -> list[bytes]:
    """The payloads of whole messages; what is cut at the end is left out. Every message must be of one magic."""
    found, position, overhead = [], 0, 9 + magic
    while position + 4 <= len(chunk):
        (length,) = struct.unpack_from(">i", chunk, position)
        if position + 4 + length > len(chunk):
            break
        assert chunk[position + 4] == magic
        found.append(chunk[position + overhead : position + 4 + length])
        position += 4 + length
    return found


def joined(payloads: Sequence[bytes], magic: int = 1) -> bytes:
    """What 0.7 would have in its log."""
    return b"".join(encode_message(magic, payload) for payload in payloads)
