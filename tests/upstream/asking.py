"""A client with one connection to a node of a `Cluster`: what a test asks the cluster itself, past the gateway."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from core.protocol.apis import APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.upstream.cluster import PORT, Cluster

_SIZE = struct.Struct(">i")


class _Frames(asyncio.Protocol):
    def __init__(self) -> None:
        self.bytes = bytearray()
        self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        self.bytes += data
        while len(self.bytes) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self.bytes)
            if len(self.bytes) < _SIZE.size + size:
                return
            self.arrived.put_nowait(bytes(self.bytes[_SIZE.size : _SIZE.size + size]))
            del self.bytes[: _SIZE.size + size]

    def connection_lost(self, exc: Exception | None) -> None:
        self.arrived.put_nowait(None)


class Asking:
    """One connection; one request at a time."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._frames = _Frames()
        self._transport = cluster.dial(cluster.nodes[node].host, PORT, self._frames)

    async def ask(self, key: int, request: Any, version: int | None = None) -> Any:
        """Return the answer. Raises ConnectionResetError if the connection breaks."""
        version = APIS[key].max_version if version is None else version
        frame = encode_request_header(key, version, 7, "test") + encode_request(key, version, request)
        self._transport.write(_SIZE.pack(len(frame)) + frame)
        answer = await self._frames.arrived.get()
        if answer is None:
            raise ConnectionResetError("the node closed the connection")
        correlation, start = decode_response_header(key, version, answer)
        assert correlation == 7
        return decode_response(key, version, answer, start)

    def close(self) -> None:
        """Disconnect."""
        self._transport.close()


def batch(*values: bytes, key: bytes | None = None) -> bytes:
    """Return a record batch."""
    return bytes(build_batch([NewRecord(key=key, value=v) for v in values], now_ms=1_700_000_000_000))
