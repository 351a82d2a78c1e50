"""A client of Kafka 0.7 in the simulation: what it reads at a byte address must stay there."""

from __future__ import annotations

import asyncio
import struct
import zlib

from tests.simulation.streams import GoneError, Stream
from tests.simulation.world import Client, World

OLD_PORT, OLD_TOPIC = 9093, "old"
PRODUCE, FETCH = 0, 1
MAX_BYTES = 20_000
# The field that 0.7's answers begin with: no error, and an offset that is not there (any more).
NO_ERROR, OUT_OF_RANGE = 0, 1
_OVERHEAD = struct.Struct(">ibbI")


class OldClient(Client):
    """A client of 2012: writes without an answer, reads by byte address, which must stay what they were."""

    pause = 0.5

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = Stream(world.machine.network, OLD_PORT)
        self._addresses: dict[int, bytes] = {}
        self._power_cuts = 0

    async def step(self) -> None:
        """One request."""
        if self.chance.random() < 0.5:
            await self._produce()
        else:
            await self._fetch()

    async def _produce(self) -> None:
        payloads = [self.value() for _ in range(self.chance.randint(1, 3))]
        self.ledger.at_most_once.update(payloads)
        messages = b"".join(
            _OVERHEAD.pack(len(payload) + 6, 1, 0, zlib.crc32(payload)) + payload for payload in payloads
        )
        await self._send(PRODUCE, struct.pack(">i", len(messages)) + messages)
        self.did("0.7 produce")

    async def _send(self, kind: int, rest: bytes) -> None:
        topic = OLD_TOPIC.encode()
        request = struct.pack(">hh", kind, len(topic)) + topic + struct.pack(">i", 0) + rest
        transport = await self.stream.open()
        transport.write(struct.pack(">i", len(request)) + request)

    async def _fetch(self) -> None:
        if self._power_cuts != self.world.machine.network.power_cuts:
            # Without an answer nothing is durable for sure.
            self._power_cuts, self._addresses = self.world.machine.network.power_cuts, {}
        start = self.chance.choice([0, *self._addresses])
        try:
            async with asyncio.timeout(20):
                await self._send(FETCH, struct.pack(">qi", start, MAX_BYTES))
                (size,) = struct.unpack(">i", await self.stream.bytes(4))
                answer = await self.stream.bytes(size)
        except (GoneError, TimeoutError) as error:
            self.stream.close()
            raise GoneError(str(error)) from None
        (code,) = struct.unpack_from(">h", answer)
        if code == NO_ERROR:
            self._compare(start, answer[2:])
        elif start in self._addresses and code == OUT_OF_RANGE:
            raise self.broken(f"the address {start} is not there any more")

    def _compare(self, address: int, chunk: bytes) -> None:
        position = 0
        while position + _OVERHEAD.size <= len(chunk):
            length, magic, _, checksum = _OVERHEAD.unpack_from(chunk, position)
            end = position + 4 + length
            if end > len(chunk):
                break
            payload = chunk[position + _OVERHEAD.size : end]
            if magic != 1 or zlib.crc32(payload) != checksum:
                raise self.broken(f"no message at the address {address}")
            before = self._addresses.setdefault(address, payload)
            if before != payload:
                raise self.broken(f"at the address {address} was {before!r}, now {payload!r}")
            position, address = end, address + 4 + length
        self.did("0.7 fetch")
