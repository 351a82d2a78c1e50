"""Workers of a queue that read ahead of the disk: records are leased and settled before their fsync.

A loss of power may take such records. What the queue knew of them must not settle those that are written in their
place: in the end the workers have seen every record that is left in the log, and none again after its accept was
answered.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.ahead import TOPIC, AheadReader
from tests.simulation.readers import HTTP_PORT
from tests.simulation.streams import HttpStream
from tests.simulation.world import World

QUEUE = "workers"
PATH = f"/api/v1/queues/{QUEUE}"
LOCK_MS = 2_000
# What a broker that starts, stops, or has a full disk answers.
AGAIN = {404, 409, 429, 500, 503, 507}


class QueueReader(AheadReader):
    """One of some workers: accepts most, releases some, and forgets some until their lock runs out."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)
        self._made = False

    async def look(self) -> bool:
        """See `AheadReader.look`."""
        if not self._made:
            body = {"topics": [TOPIC], "start": "earliest", "lock_ms": LOCK_MS, "delivery_limit": None}
            status, answer = await self._call("PUT", PATH, body)
            self._made = status in (200, 201)
            return False
        accepted = frozenset(self.world.accepted)
        asked: dict[str, Any] = {"max": self.chance.randint(1, 20), "wait_ms": self.chance.choice((0, 1_000))}
        if self.chance.random() < 0.3:
            self._count += 1
            asked["attempt"] = f"{self.name}-{self._count}"
        status, answer = await self._call("POST", f"{PATH}:receive", asked)
        if status != 200:
            self._made = status != 404
            return False
        for record in answer["records"]:
            value = record["value"].encode()
            self.ledger.saw(TOPIC, 0, record["offset"], value, f"{self.name}'s receive")
            self.ledger.delivered[QUEUE].add(value)
            if value in accepted:
                raise self.broken(f"{value!r} @{record['offset']} was accepted, and is delivered again")
        if not answer["records"]:
            return await self._empty()
        self.did("receive ahead")
        await self._settle(answer["records"])
        return False

    async def _settle(self, records: list[Any]) -> None:
        accept = [one for one in records if self.chance.random() < 0.85]
        left = [one for one in records if one not in accept]
        release = [one for one in left if self.chance.random() < 0.6]
        if not accept and not release:
            return
        body = {
            "accept": [one["receipt"] for one in accept],
            "release": [
                {"receipt": one["receipt"], "delay_ms": self.chance.choice((0, 100, 1_500))}
                for one in release
            ],
        }
        status, answer = await self._call("POST", f"{PATH}:settle", body)
        if status != 200:
            return
        self.did("settle ahead")
        for one, settled in zip(accept, answer["accept"], strict=True):
            if settled["outcome"] in ("settled", "late"):
                self.world.accepted.add(one["value"].encode())

    async def _empty(self) -> bool:
        status, answer = await self._call("GET", f"{PATH}/stats", None)
        counts = ("available", "in_flight", "delayed")
        return status == 200 and not any(one[count] for one in answer["partitions"] for count in counts)

    async def _call(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        status, answer = await self.stream.call(method, path, body)
        if status not in (200, 201) and status not in AGAIN:
            raise self.broken(f"{method} {path}: {status} {answer}")
        return status, answer
