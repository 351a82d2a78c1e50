"""Clients that read without a group: Kafka fetches in any version, REST reads of one partition and of a topic."""

from __future__ import annotations

from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.records.batch import batches, read_records
from core.records.message_set import parse_message_set
from tests.simulation.streams import HttpStream, KafkaStream
from tests.simulation.world import KAFKA_PORT, Client, World

FETCH = 1
HTTP_PORT = 8082
OFFSET_OUT_OF_RANGE, STORAGE_ERROR = 1, 56
MAX_BYTES = 30_000


async def fetch(
    stream: KafkaStream, topic: str, partition: int, offset: int, version: int, max_wait_ms: int = 0
) -> PartitionData:
    """The answer for one partition. Raises GoneError."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    answer = await stream.call(FETCH, version, request)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


def values_of(records: bytes, version: int, offset: int) -> dict[int, tuple[bytes | None, bytes]]:
    """Key and value by offset, of what a fetch from `offset` on was answered."""
    found: dict[int, tuple[bytes | None, bytes]] = {}
    if version < 4:
        for group in parse_message_set(memoryview(records), max_bytes=1 << 20):
            for at, _timestamp, key, value in group.messages:
                found[at] = (bytes(key) if key is not None else None, bytes(value or b""))
    else:
        for position, header in batches(memoryview(records)):
            for record in read_records(memoryview(records), position, header, max_bytes=1 << 20):
                found[record.offset] = (record.key, record.value or b"")
    return {at: both for at, both in found.items() if at >= offset}


class Reader(Client):
    """Reads somewhere, by some way, and holds what it finds against what is known."""

    pause = 0.4

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.kafka = KafkaStream(world.machine.network, KAFKA_PORT)
        self.http = HttpStream(world.machine.network, HTTP_PORT)

    async def step(self) -> None:
        """Read a bit."""
        topic = self.chance.choice(("idem", "plain", "rest"))
        partition = self.chance.randrange(self.world.partitions[topic])
        known = self.ledger.records[topic, partition]
        offset = self.chance.choice([0, max(known, default=0), self.chance.randrange(len(known) + 1)])
        offset = max(offset, self.ledger.start[topic, partition])
        if self.chance.random() < 0.5:
            await self._by_kafka(topic, partition, offset)
        elif self.chance.random() < 0.7:
            await self._by_rest(topic, partition, offset)
        else:
            await self._merged(topic)

    async def _by_kafka(self, topic: str, partition: int, offset: int) -> None:
        version = self.chance.randint(0, 12)
        wait = self.chance.choice((0, 0, 500, 3000))
        found = await fetch(self.kafka, topic, partition, offset, version, wait)
        if found.error_code == OFFSET_OUT_OF_RANGE or found.error_code == STORAGE_ERROR:
            return
        if found.error_code:
            raise self.broken(f"a fetch was refused with {found.error_code}")
        values = values_of(bytes(found.records or b""), version, offset)
        self._compare(topic, partition, offset, {at: value for at, (_, value) in values.items()}, "Fetch")

    async def _by_rest(self, topic: str, partition: int, offset: int) -> None:
        path = f"/api/v1/topics/{topic}/partitions/{partition}/records?offset={offset}&limit=50&encoding=utf8"
        path += f"&wait_ms={self.chance.choice((0, 0, 1000))}"
        status, answer = await self.http.call("GET", path)
        if status == 200:
            values = {one["offset"]: one["value"].encode() for one in answer["records"]}
            self._compare(topic, partition, offset, values, "REST")
        elif status not in (410, 416, 503):
            raise self.broken(f"a read was refused: {status} {answer}")

    async def _merged(self, topic: str) -> None:
        status, answer = await self.http.call(
            "GET", f"/api/v1/topics/{topic}/records?from=earliest&limit=30&encoding=utf8"
        )
        if status == 200:
            for one in answer["records"]:
                self.ledger.saw(topic, one["partition"], one["offset"], one["value"].encode(), "merged read")
            self.did("merged read")
        elif status not in (410, 503):
            raise self.broken(f"a merged read was refused: {status} {answer}")

    def _compare(self, topic: str, partition: int, offset: int, values: dict[int, bytes], how: str) -> None:
        if list(values) != list(range(offset, offset + len(values))):
            raise self.broken(f"{topic}-{partition} from {offset} on: {how} gave {list(values)}")
        for at, value in values.items():
            self.ledger.saw(topic, partition, at, value, how)
        if values:
            self.did(f"{how} read")
