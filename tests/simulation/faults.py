"""The faults of a run, and their times: all of it drawn from the seed."""

from __future__ import annotations

import asyncio
import errno
import random

from core.errors import StartupError
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.simulation.streams import GoneError, KafkaStream, Stream
from tests.simulation.world import KAFKA_PORT, Client, World

HTTP_PORT = 8082
DELETE_RECORDS = 21
HOUR_MS = 3_600_000


class Faults:
    """One misfortune after another; the broker is started again after each death."""

    def __init__(self, world: World, rate: float) -> None:
        self.world = world
        self.machine = world.machine
        self.chance = random.Random(f"faults {world.seed}")
        self._rate = rate
        self.counts: dict[str, int] = {}

    async def run(self) -> None:
        """Until the run closes."""
        while not self.world.closing:
            pause = asyncio.ensure_future(self.machine.dead.wait())
            await asyncio.wait([pause], timeout=self.chance.expovariate(1 / self._rate))
            pause.cancel()
            if self.machine.dead.is_set():
                await self.machine.bury()
                await self._perhaps_lose_power()
                await self.up_again()
            elif not self.world.closing:
                await self._strike()

    async def _perhaps_lose_power(self) -> None:
        """Some deaths take the machine with them."""
        if self.chance.random() < 0.3:
            await self.machine.lose_power()
            self.world.ledger.power_was_lost()

    async def up_again(self) -> None:
        """Start the broker until it runs; each try may die as well."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1.0))
            if self.chance.random() < 0.15:
                self.machine.disk.fail("kill", at=self.chance.randrange(40))
            try:
                await self.machine.start()
                return
            except StartupError as error:
                self.world.trace(f"start failed: {error}")
                self.machine.disk.heal()

    async def _strike(self) -> None:
        kind = self.chance.choices(
            ("kill", "die at an effect", "power", "restart", "full", "eio", "slow", "clock", "cut", "stall"),
            (4, 5, 3, 2, 2, 1, 2, 2, 5, 2),
        )[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.world.trace(f"FAULT {kind}")
        machine, chance = self.machine, self.chance
        if kind == "kill":
            await machine.kill()
            await self.up_again()
        elif kind == "power":
            await machine.lose_power()
            self.world.ledger.power_was_lost()
            await self.up_again()
        elif kind == "die at an effect":
            machine.disk.fail(chance.choice(("kill", "tear")), at=chance.randrange(60))
        elif kind == "restart":
            await machine.stop()
            await self.up_again()
        elif kind in ("full", "eio"):
            await self._refuse(kind)
        elif kind == "slow":
            machine.slow_until = self.world.loop.now + chance.uniform(1, 10)
        elif kind == "clock":
            machine.wall_shift_ms += chance.choice((-1, 1)) * chance.randrange(HOUR_MS)
            machine.clock.wall_shift_ms = machine.wall_shift_ms
        elif kind == "cut":
            for _ in range(chance.randint(1, 4)):
                machine.network.cut_one()
        else:
            machine.network.stalled_until = self.world.loop.now + chance.uniform(0.5, 30)

    async def _refuse(self, kind: str) -> None:
        """The disk refuses for a while. After a failed fsync no write is allowed until a restart."""
        machine = self.machine
        if kind == "full":
            machine.disk.fail(errno.ENOSPC, "write", "pwrite", "open_file", at=self.chance.randrange(5))
            await asyncio.sleep(self.chance.uniform(0.5, 10))
            if not machine.dead.is_set():
                machine.disk.heal()
        else:
            machine.disk.fail(errno.EIO, "sync")
            await asyncio.sleep(self.chance.uniform(0.1, 3))
            if not machine.dead.is_set():
                await machine.stop()
                machine.disk.heal()
                await self.up_again()

    async def make_peace(self) -> None:
        """Everything is well from now on."""
        machine = self.machine
        machine.network.stalled_until = machine.slow_until = 0.0
        if machine.dead.is_set():
            await machine.bury()
        machine.disk.heal()
        if machine.app is None:
            while True:
                try:
                    await machine.start()
                    return
                except StartupError as error:
                    self.world.trace(f"start failed: {error}")


class Vandal(Client):
    """Sends what no client would send; only its own connection may suffer."""

    pause = 4.0

    async def step(self) -> None:
        """Some bytes, then gone."""
        stream = Stream(self.world.machine.network, self.chance.choice((KAFKA_PORT, HTTP_PORT)))
        transport = await stream.open()
        kind = self.chance.randrange(4)
        if kind == 0:
            transport.write(self.chance.randbytes(self.chance.randint(1, 300)))
        elif kind == 1:
            size, arrived = self.chance.randint(1, 1 << 20), self.chance.randbytes(20)
            transport.write(size.to_bytes(4, "big") + arrived)
        elif kind == 2:
            body = self.chance.randbytes(self.chance.randint(0, 60))
            key, version = self.chance.randrange(60), self.chance.randrange(16)
            frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + body
            transport.write(len(frame).to_bytes(4, "big") + frame)
        else:
            transport.write(
                b"POST /api/v1/topics/rest/records HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
            )
        await asyncio.sleep(self.chance.expovariate(1.0))
        stream.close()


class Trimmer(Client):
    """Deletes records from the front of a topic now and then."""

    pause = 10.0

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)

    async def step(self) -> None:
        """Ask for the deletion of some records that are known."""
        partition = self.chance.randrange(self.world.partitions["plain"])
        known = self.ledger.records["plain", partition]
        if not known:
            return
        before = self.chance.randrange(max(known) + 1)
        # It may be done without an answer.
        self.ledger.truncated("plain", partition, before)
        asked = DeleteRecordsTopic("plain", [DeleteRecordsPartition(partition, before)])
        try:
            answer = await self.stream.call(
                DELETE_RECORDS, 1, DeleteRecordsRequest(topics=[asked], timeout_ms=5_000)
            )
        except GoneError:
            return
        (found,) = answer.topics[0].partitions
        if not found.error_code:
            self.say(f"plain-{partition} now starts at {found.low_watermark}")
            self.did("delete records")
        # 1: after a loss of power the end may lie before what was known.
        elif found.error_code not in (1, 56):
            raise self.broken(f"DeleteRecords: {found.error_code}")
