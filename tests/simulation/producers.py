"""Clients that write: idempotent, plain and old ones over the Kafka port, with and without keys over HTTP."""

from __future__ import annotations

import asyncio

from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from core.records.batch import build_batch
from core.records.message_set import encode_plain
from core.records.record import NewRecord
from tests.simulation.streams import GoneError, HttpStream, KafkaStream
from tests.simulation.world import KAFKA_PORT, Client, World

HTTP_PORT = 8082
PRODUCE, INIT_PRODUCER_ID = 0, 22
# Answers after which the same may be sent again: the disk refuses, or the broker is about to stop.
AGAIN = {5, 6, 7, 56}
# The clock was set back two times while a batch was on its way: it is of the future now.
INVALID_TIMESTAMP = 32
HTTP_AGAIN = {409, 429, 500, 503, 504, 507}


class KafkaProducer(Client):
    """What producers over the Kafka port share."""

    topic = "plain"
    pause = 0.3

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)

    def values(self) -> list[bytes]:
        """A few new values."""
        return [self.value() for _ in range(self.chance.randint(1, 4))]

    async def send(
        self, partition: int, records: bytes, acks: int, version: int
    ) -> PartitionProduceResponse | None:
        """The partition's answer; None with acks=0. Raises GoneError."""
        data = PartitionProduceData(index=partition, records=memoryview(records))
        request = ProduceRequest(
            acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])]
        )
        if acks == 0:
            await self.stream.tell(PRODUCE, version, request)
            return None
        answer = await self.stream.call(PRODUCE, version, request)
        found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return found

    def acknowledge(self, partition: int, base: int, values: list[bytes], *, durable: bool) -> None:
        """Every value has its offset now."""
        for index, value in enumerate(values):
            self.ledger.acknowledged(
                self.topic, partition, base + index, value, durable=durable, once=durable
            )


class IdempotentProducer(KafkaProducer):
    """acks=all with a producer id; sends a batch again, in whatever version, until it is answered."""

    topic = "idem"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._id = (-1, -1)
        self._sequence: dict[int, int] = {}

    async def step(self) -> None:
        """Write one batch, once."""
        if self._id[0] < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            found = await self.stream.call(INIT_PRODUCER_ID, self.chance.randint(0, 4), request)
            if found.error_code:
                return
            self._id = (found.producer_id, found.producer_epoch)
        partition = self.chance.randrange(self.world.partitions[self.topic])
        values, sequence = self.values(), self._sequence.get(partition, 0)
        codec = self.chance.choice((0, 0, 0, 1, 2, 3, 4))
        records = build_batch(
            [NewRecord(value=value) for value in values],
            now_ms=self.world.machine.clock.wall_ms(),
            codec=codec,
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        if await self._until_answered(partition, bytes(records), values, sequence):
            self._sequence[partition] = sequence + len(values)
        else:
            self._id, self._sequence = (-1, -1), {}

    async def _until_answered(
        self, partition: int, records: bytes, values: list[bytes], sequence: int
    ) -> bool:
        """False when the batch can never be taken, for it is of the future."""
        self.ledger.at_most_once.update(values)
        while True:
            try:
                answer = await self.send(partition, records, -1, self.chance.randint(7, 12))
            except GoneError:
                await asyncio.sleep(self.chance.expovariate(3.0))
                continue
            assert answer is not None
            if not answer.error_code:
                break
            if answer.error_code == INVALID_TIMESTAMP:
                return False
            if answer.error_code not in AGAIN:
                raise self.broken(
                    f"{self.topic}-{partition}: sequence {sequence} was refused with {answer.error_code}"
                )
            await asyncio.sleep(self.chance.expovariate(2.0))
        if answer.base_offset < 0:
            raise self.broken(f"{self.topic}-{partition}: sequence {sequence} was answered without an offset")
        self.say(f"{self.topic}-{partition} @{answer.base_offset} {[v.decode() for v in values]}")
        self.acknowledge(partition, answer.base_offset, values, durable=True)
        self.did("idempotent produce")
        return True


class PlainProducer(KafkaProducer):
    """One try for each batch, in any version from 0 on, with any acks."""

    async def step(self) -> None:
        """Write one batch, and take what comes."""
        partition = self.chance.randrange(self.world.partitions[self.topic])
        acks, version, values = self.chance.choice((-1, 1, 1, 0)), self.chance.randint(0, 12), self.values()
        now = self.world.machine.clock.wall_ms()
        if version < 3:
            magic = 1 if version == 2 else 0
            records = bytes(
                encode_plain(magic, 0, [(i, now if magic else -1, None, v) for i, v in enumerate(values)])
            )
        else:
            records = bytes(build_batch([NewRecord(value=value) for value in values], now_ms=now))
        self.ledger.at_most_once.update(values)
        answer = await self.send(partition, records, acks, version)
        if answer is None:
            return
        if answer.error_code:
            self.say(f"plain produce was refused with {answer.error_code}")
            if answer.error_code not in AGAIN and answer.error_code != INVALID_TIMESTAMP:
                raise self.broken(f"a good batch was refused with {answer.error_code}")
            return
        self.say(f"{self.topic}-{partition} @{answer.base_offset} acks={acks} {[v.decode() for v in values]}")
        self.acknowledge(partition, answer.base_offset, values, durable=acks == -1)
        self.did("plain produce")


class KeyWriter(KafkaProducer):
    """Writes the newest value of a key, on a compacted topic; each key has one writer."""

    topic = "compact"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._answered: dict[bytes, bytes] = {}

    async def step(self) -> None:
        """Replace the value of one key."""
        key, value = f"{self.name}-{self.chance.randrange(4)}".encode(), self.value()
        partition = self.chance.randrange(1)
        known = self.ledger.keys[self.topic, key]
        known.add(value)
        records = build_batch([NewRecord(key=key, value=value)], now_ms=self.world.machine.clock.wall_ms())
        answer = await self.send(partition, bytes(records), -1, self.chance.randint(3, 12))
        assert answer is not None
        if answer.error_code and answer.error_code not in AGAIN and answer.error_code != INVALID_TIMESTAMP:
            raise self.broken(f"a good batch was refused with {answer.error_code}")
        if not answer.error_code:
            self.ledger.acknowledged_keys.add((self.topic, key))
            # What was answered before is replaced; what was not answered may still arrive, by an older connection.
            known.discard(self._answered.get(key, b""))
            self._answered[key] = value
            self.ledger.saw(self.topic, partition, answer.base_offset, value, "acknowledged")
            self.did("compacted produce")


class RestProducer(Client):
    """Records over HTTP: most under an Idempotency-Key until they are answered, some just once."""

    topic = "rest"
    pause = 0.4

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)

    async def step(self) -> None:
        """Write a few records."""
        values = [self.value().decode() for _ in range(self.chance.randint(1, 4))]
        body = {"records": [{"key": value, "value": value} for value in values]}
        self.ledger.at_most_once.update(value.encode() for value in values)
        kind = self.chance.random()
        if kind < 0.6:
            await self._with_key(body, values)
        elif kind < 0.8:
            await self._native(body, values, {})
        else:
            await self._proxy(body, values)

    async def _with_key(self, body: dict[str, object], values: list[str]) -> None:
        key = {"Idempotency-Key": f"{self.name}-{self._count}"}
        while True:
            try:
                if await self._native(body, values, key):
                    return
            except GoneError:
                pass
            await asyncio.sleep(self.chance.expovariate(2.0))

    async def _native(self, body: dict[str, object], values: list[str], headers: dict[str, str]) -> bool:
        status, answer = await self.stream.call("POST", f"/api/v1/topics/{self.topic}/records", body, headers)
        if status in (200, 207):
            # 207: the disk has refused one partition and not the other; that answer is final, with a key as well.
            for value, place in zip(values, answer["records"], strict=True):
                if place["offset"] is not None:
                    self._acknowledge(place["partition"], place["offset"], value)
            self.did("keyed REST produce" if headers else "REST produce")
            self.say(f"REST {[(p['partition'], p['offset']) for p in answer['records']]} {values}")
            return True
        self.say(f"REST produce: {status} {answer.get('detail') if answer else ''}")
        if status not in HTTP_AGAIN:
            raise self.broken(f"a good request was refused: {status} {answer}")
        return False

    async def _proxy(self, body: dict[str, object], values: list[str]) -> None:
        media = {"Content-Type": "application/vnd.kafka.text.v2+json"}
        status, answer = await self.stream.call("POST", f"/topics/{self.topic}", body, media)
        if status == 200:
            for value, place in zip(values, answer["offsets"], strict=True):
                if place.get("error_code") is None:
                    self._acknowledge(place["partition"], place["offset"], value)
            self.did("REST Proxy produce")
        elif status not in HTTP_AGAIN:
            raise self.broken(f"a good request was refused: {status} {answer}")

    def _acknowledge(self, partition: int, offset: int, value: str) -> None:
        self.ledger.acknowledged(self.topic, partition, offset, value.encode(), durable=True, once=True)
