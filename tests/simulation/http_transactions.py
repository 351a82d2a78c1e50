"""Transactions over HTTP: of one request, most of them under an Idempotency-Key, and of several requests.

A transaction of one request that is refused has written nothing. Without an answer it is sent again under its key,
until there is an answer; without a key all of it or nothing may have been committed.

A commit of a transaction of several requests is sent again until its outcome is told. One that the broker does not
know was not committed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.faults import HTTP_PORT
from tests.simulation.producers import HTTP_AGAIN
from tests.simulation.streams import GoneError, HttpStream
from tests.simulation.transactions import GROUP, HTTP_PARTITION, PARTITIONS, TOPIC
from tests.simulation.txn_ledger import Written
from tests.simulation.world import Client, World

# Another offset is committed than the expected one, which the refusal says; or a request is still under way.
CONFLICT = 409
# The clock was set back: a record that is too new is refused for good.
UNPROCESSABLE = 422
NOT_FOUND = 404


class OneShotWriter(Client):
    """POST /api/v1/transactions, one after the other."""

    pause = 0.6

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)
        # The committed offset as this client knows it.
        self._expected: int | None = None

    async def step(self) -> None:
        """One transaction: up to four records in any partitions, and often the group's next offset."""
        one = Written(f"{self.name}-{len(self.world.transactions.all)}")
        self.world.transactions.all.append(one)
        body: dict[str, Any] = {"records": {}, "offsets": []}
        for _ in range(self.chance.randint(0, 4)):
            value, partition = self.value(), self.chance.randrange(PARTITIONS)
            one.values[value] = partition
            self.world.transactions.of[value] = one
            record = {"value": value.decode(), "partition": partition}
            body["records"].setdefault(TOPIC, []).append(record)
        if not one.values or self.chance.random() < 0.6:
            body["offsets"].append(self._offset(one))
        if self.chance.random() < 0.8:
            await self._until_answered(one, body)
        else:
            try:
                await self._ask(one, body, {})
            except GoneError:
                # All of it or nothing: `outcome` stays open.
                self._expected = None

    def _offset(self, one: Written) -> dict[str, Any]:
        staged = self.world.transactions.staged[HTTP_PARTITION]
        one.offset = len(staged)
        staged.append(one)
        # The number is in the metadata: an offset may be cut back to the end of its log after a loss of power.
        offset = {"group": GROUP, "topic": TOPIC, "partition": HTTP_PARTITION, "offset": one.offset % 2}
        if self._expected is not None:
            offset["expected"] = self._expected
        return offset | {"metadata": str(one.offset)}

    async def _until_answered(self, one: Written, body: dict[str, Any]) -> None:
        headers = {"Idempotency-Key": one.name}
        while True:
            try:
                if await self._ask(one, body, headers):
                    return
            except GoneError:
                pass
            await asyncio.sleep(self.chance.expovariate(2.0))

    async def _ask(self, one: Written, body: dict[str, Any], headers: dict[str, str]) -> bool:
        """Send it; whether the answer is final."""
        status, answer = await self.stream.call("POST", "/api/v1/transactions", body, headers)
        if status == 200:
            one.outcome = True
            if body["offsets"]:
                self._expected = body["offsets"][0]["offset"]
            self.say(f"{one.name} committed over HTTP {sorted(one.values)}")
            self.did("one-shot transaction")
            return True
        self.say(f"{one.name}: {status} {answer.get('detail') if answer else ''}")
        if status == UNPROCESSABLE or (status == CONFLICT and "actual" in str(answer)):
            one.outcome = False
            self._expected = None
            self.did("one-shot refusal")
            return True
        if status not in HTTP_AGAIN:
            raise self.broken(f"a good request was refused: {status} {answer}")
        if not headers:
            # Not decided at once, as far as the answer tells.
            self._expected = None
        return False


class LongWriter(Client):
    """Begin, write with the header `Transaction`, commit or abort."""

    pause = 0.8

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)

    async def step(self) -> None:
        """One transaction; now and then one that is left alone."""
        begun = await self._asked(":begin", {"timeout_ms": self.chance.choice((1_500, 30_000))}, {201})
        one = Written(f"{self.name}-{len(self.world.transactions.all)}")
        self.world.transactions.all.append(one)
        header = {"Transaction": begun["id"]}
        for _ in range(self.chance.randint(0, 3)):
            if not await self._write(one, header):
                one.outcome = False
                return
        if self.chance.random() < 0.1:
            await asyncio.sleep(self.chance.uniform(0, 4))
        if self.chance.random() < 0.1:
            # A client that dies here: nothing was ever decided.
            one.outcome = False
            return
        if self.chance.random() < 0.3:
            one.outcome = False
            await self._asked(f"/{begun['id']}:abort", None, {200, NOT_FOUND, CONFLICT})
            self.did("abort over HTTP")
            return
        answer = await self._asked(f"/{begun['id']}:commit", None, {200, NOT_FOUND, CONFLICT})
        one.outcome = answer.get("state") == "committed"
        self.say(f"{one.name}: {answer.get('state') or answer.get('detail')} {sorted(one.values)}")
        self.did("commit over HTTP" if one.outcome else "refused commit over HTTP")

    async def _write(self, one: Written, header: dict[str, str]) -> bool:
        """Write some records in the transaction; False if it has ended, or cannot be committed any more."""
        body: dict[str, Any] = {"records": []}
        for _ in range(self.chance.randint(1, 3)):
            value, partition = self.value(), self.chance.randrange(PARTITIONS)
            one.values[value] = partition
            self.world.transactions.of[value] = one
            body["records"].append({"value": value.decode(), "partition": partition})
        while True:
            try:
                status, answer = await self.stream.call(
                    "POST", f"/api/v1/topics/{TOPIC}/records", body, header
                )
            except GoneError:
                # Its records may be there already. Twice is no matter here: the reader compares sets.
                await asyncio.sleep(self.chance.expovariate(2.0))
                continue
            if status == 200:
                self.did("write in a transaction over HTTP")
                return True
            self.say(f"{one.name}: {status} {answer.get('detail') if answer else ''}")
            if status in (207, CONFLICT, NOT_FOUND, UNPROCESSABLE):
                return False
            if status not in HTTP_AGAIN:
                raise self.broken(f"a good request was refused: {status} {answer}")
            await asyncio.sleep(self.chance.expovariate(2.0))

    async def _asked(self, path: str, body: dict[str, Any] | None, final: set[int]) -> dict[str, Any]:
        """Ask until there is one of these answers."""
        while True:
            try:
                status, answer = await self.stream.call("POST", f"/api/v1/transactions{path}", body)
            except GoneError:
                await asyncio.sleep(self.chance.expovariate(3.0))
                continue
            if status in final and "concurrent-transactions" not in answer.get("type", ""):
                return dict(answer)
            if status not in HTTP_AGAIN:
                raise self.broken(f"a good request was refused: {status} {answer}")
            await asyncio.sleep(self.chance.expovariate(2.0))
