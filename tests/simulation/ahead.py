"""Groups that read ahead of the disk: records that are committed, or held by a managed consumer, before their fsync.

A loss of power may take such records, and the log then grows past the group's position before the group looks again.
Each reader here takes what it was given as done only by the values that it saw, so in the end the ledger can ask of
every record that is left in the log whether each group has seen it.

A reader that a broker of today can help keeps its position over a loss of power only if it checks it against the
leader epoch (KIP-320). The others are programs that begin again at the committed offset when their connection breaks.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.records.batch import batches, build_batch
from core.records.record import NewRecord
from tests.simulation.lines import LineStream
from tests.simulation.producers import AGAIN, INVALID_TIMESTAMP, KafkaProducer
from tests.simulation.readers import FETCH, HTTP_PORT, OFFSET_OUT_OF_RANGE, STORAGE_ERROR, values_of
from tests.simulation.streams import GoneError, HttpStream, KafkaStream
from tests.simulation.world import KAFKA_PORT, TEXT_PORT, Client, World

TOPIC = "ahead"
METADATA, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH = 3, 8, 9, 23
FENCED_LEADER_EPOCH = 74
# What a broker that starts, stops, or has a full disk says of groups.
LATER = {14, 15, 16, 56}
MAX_BYTES = 30_000
# The refusal of an offset outside the log. In the line protocol, only its message names the log start offset.
OUT_OF_RANGE = re.compile(r"OFFSET_OUT_OF_RANGE: .* the log holds (\d+) up to \d+\.")
# A read to the end in peace takes a few rounds; after this many without an end, it is never reached.
ROUNDS = 200


class AheadWriter(KafkaProducer):
    """Mostly acks=1: answered before the fsync."""

    topic = TOPIC
    pause = 0.1

    async def step(self) -> None:
        """Write one batch, and take what comes."""
        acks, values = -1 if self.chance.random() < 0.05 else 1, self.values()
        records = build_batch(
            [NewRecord(value=value) for value in values], now_ms=self.world.machine.clock.wall_ms()
        )
        self.ledger.at_most_once.update(values)
        answer = await self.send(0, bytes(records), acks, self.chance.randint(3, 12))
        assert answer is not None
        if answer.error_code:
            if answer.error_code not in AGAIN and answer.error_code != INVALID_TIMESTAMP:
                raise self.broken(f"a good batch was refused with {answer.error_code}")
            return
        self.say(f"{TOPIC} @{answer.base_offset} acks={acks} {[v.decode() for v in values]}")
        self.acknowledge(0, answer.base_offset, values, durable=acks == -1)
        self.did("produce ahead")


class AheadReader(Client):
    """Reads all that there is, commits, and looks away while the log grows. `group` is its own name."""

    pause = 0.3

    async def step(self) -> None:
        """One look, or a long pause; most often after a broken connection, so that the log grows meanwhile."""
        if self.chance.random() < 0.02:
            await asyncio.sleep(self.chance.uniform(1, 8))
        try:
            await self.look()
        except GoneError:
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.uniform(1, 5))
            raise

    async def look(self) -> bool:
        """Read and commit a bit; whether there was nothing left to read. GoneError: no answer."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Read to the end, in peace."""
        for _ in range(ROUNDS):
            try:
                if await self.look():
                    return
            except GoneError:
                pass
            await asyncio.sleep(0.5)
        raise self.broken("does not come to the end of the log")

    def saw(self, offset: int, value: bytes) -> None:
        """A record was delivered."""
        self.ledger.saw(TOPIC, 0, offset, value, f"{self.name}'s read")
        self.ledger.delivered[self.name].add(value)


class EpochReader(AheadReader):
    """A client with KIP-320: fenced by a new leader epoch it asks where the epoch that it has read last ended."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)
        # The next offset and the epoch of the record before it; None: to be taken from the group.
        self.position: tuple[int, int] | None = None
        # The leader epoch, −1 until it was asked for; what it was last, and after how many deaths of the broker.
        self.epoch = -1
        self._seen = (-1, 0)

    async def look(self) -> bool:
        """See `AheadReader.look`."""
        if self.chance.random() < 0.05:
            self.position = None
        if self.position is None:
            self.position, self.epoch = await self._committed(), -1
        if self.epoch < 0:
            await self._find_epoch()
            await self._validate()
        found = await self._fetch()
        if found is None:
            return False
        await self._commit()
        return not found

    async def _committed(self) -> tuple[int, int]:
        asked = OffsetFetchRequest(
            group_id=self.name, topics=[OffsetFetchRequestTopic(TOPIC, [0])], require_stable=False
        )
        answer = await self.stream.call(OFFSET_FETCH, self.chance.randint(5, 7), asked)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            raise GoneError(f"OffsetFetch: {answer.error_code}")
        one = answer.topics[0].partitions[0]
        return max(one.committed_offset, 0), one.committed_leader_epoch

    async def _find_epoch(self) -> None:
        machine = self.world.machine
        starts = machine.starts
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        answer = await self.stream.call(METADATA, self.chance.randint(7, 9), asked)
        (partition,) = answer.topics[0].partitions
        epoch = partition.leader_epoch
        if machine.starts != starts:
            raise GoneError("the broker was started in between")
        before, deaths = self._seen
        if epoch < before or (epoch == before and machine.deaths_before > deaths and not machine.unsettled):
            raise self.broken(f"the leader epoch was {before} and is {epoch} after an unclean stop")
        self.epoch, self._seen = epoch, (epoch, machine.deaths_before)

    async def _validate(self) -> None:
        """Where did the epoch end of which the last record was? If before the position, the log was cut there."""
        assert self.position is not None
        offset, epoch = self.position
        if epoch < 0:
            return
        partition = OffsetForLeaderPartition(0, self.epoch, epoch)
        topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
        asked = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        try:
            answer = await self.stream.call(OFFSET_FOR_LEADER_EPOCH, self.chance.randint(2, 4), asked)
        except GoneError:
            self.epoch = -1
            raise
        (end,) = answer.topics[0].partitions
        if end.error_code:
            self.epoch = -1
            if end.error_code not in (FENCED_LEADER_EPOCH, STORAGE_ERROR):
                raise self.broken(f"OffsetForLeaderEpoch: {end.error_code}")
            raise GoneError(f"OffsetForLeaderEpoch: {end.error_code}")
        if end.end_offset < 0 or end.leader_epoch > epoch:
            raise self.broken(f"epoch {epoch} ended in {end.leader_epoch} at {end.end_offset}")
        if end.end_offset < offset:
            self.say(f"truncation: from {offset} back to {end.end_offset}")
            self.did("truncation noticed")
            self.position = (end.end_offset, end.leader_epoch)

    async def _fetch(self) -> bool | None:
        """Whether there were records; None if the answer was a refusal."""
        assert self.position is not None
        position = self.position[0]
        asked = FetchPartition(
            partition=0,
            current_leader_epoch=self.epoch,
            fetch_offset=position,
            partition_max_bytes=MAX_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=self.chance.choice((0, 300)),
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        version = self.chance.randint(9, 12)
        answer = await self.stream.call(FETCH, version, request)
        found: PartitionData = answer.responses[0].partitions[0]
        if found.error_code == FENCED_LEADER_EPOCH:
            self.epoch = -1
            return None
        if found.error_code == OFFSET_OUT_OF_RANGE and position < max(found.log_start_offset, 0):
            self.position = (found.log_start_offset, -1)
            return None
        if found.error_code:
            if found.error_code != STORAGE_ERROR:
                raise self.broken(f"fetching @{position} in epoch {self.epoch}: {found.error_code}")
            return None
        data = memoryview(bytes(found.records or b""))
        values = values_of(bytes(data), version, position)
        epoch = max([self.position[1], *(header.leader_epoch for _, header in batches(data))])
        for at, (_, value) in values.items():
            if at != self.position[0]:
                raise self.broken(f"{at} follows {self.position[0]}")
            self.saw(at, value)
            self.position = (at + 1, epoch)
        return bool(values)

    async def _commit(self) -> None:
        assert self.position is not None
        offset, epoch = self.position
        partition = OffsetCommitRequestPartition(0, offset, epoch)
        request = OffsetCommitRequest(
            group_id=self.name, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        answer = await self.stream.call(OFFSET_COMMIT, self.chance.randint(6, 9), request)
        code = answer.topics[0].partitions[0].error_code
        if code and code not in LATER:
            raise self.broken(f"OffsetCommit: {code}")
        if not code:
            self.did("commit ahead")


class CommitReader(AheadReader):
    """A simple consumer without epochs, and without a memory over a broken connection; v0 uses the old register."""

    versions = ((2, 5), (1, 4))

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)
        self.position = -1

    async def look(self) -> bool:
        """See `AheadReader.look`."""
        if not self.stream.connected:
            self.position = -1
        try:
            return await self._look()
        except GoneError:
            self.stream.close()
            raise

    async def _look(self) -> bool:
        commit, fetched = (self.chance.randint(*versions) for versions in self.versions)
        if self.position < 0:
            asked = OffsetFetchRequest(group_id=self.name, topics=[OffsetFetchRequestTopic(TOPIC, [0])])
            answer = await self.stream.call(OFFSET_FETCH, fetched, asked)
            one = answer.topics[0].partitions[0]
            # 3: of v0, which says so where nothing was committed.
            if one.error_code not in (0, 3):
                raise GoneError(f"OffsetFetch: {one.error_code}")
            self.position = max(one.committed_offset, 0)
        found = await self._read()
        if self.position < 0 or found is None:
            return False
        if not self.stream.connected:
            raise GoneError("the connection broke")
        partition = OffsetCommitRequestPartition(0, self.position)
        request = OffsetCommitRequest(
            group_id=self.name, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        answer = await self.stream.call(OFFSET_COMMIT, commit, request)
        code = answer.topics[0].partitions[0].error_code
        if code and code not in LATER:
            raise self.broken(f"OffsetCommit v{commit}: {code}")
        if not code:
            self.did("commit ahead")
        return not found

    async def _read(self) -> bool | None:
        """Whether there were records; None if the answer was a refusal."""
        asked = FetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        version = self.chance.randint(5, 8)
        answer = await self.stream.call(FETCH, version, request)
        found: PartitionData = answer.responses[0].partitions[0]
        if found.error_code == OFFSET_OUT_OF_RANGE and self.position < max(found.log_start_offset, 0):
            self.position = found.log_start_offset
            return None
        if found.error_code:
            if found.error_code != STORAGE_ERROR:
                raise self.broken(f"fetching @{self.position}: {found.error_code}")
            return None
        values = values_of(bytes(found.records or b""), version, self.position)
        for at, (_, value) in values.items():
            if at != self.position:
                raise self.broken(f"{at} follows {self.position}")
            self.saw(at, value)
            self.position = at + 1
        return bool(values)


class RegisterReader(CommitReader):
    """OffsetCommit and OffsetFetch v0."""

    versions = ((0, 0), (0, 0))


class LineReader(AheadReader):
    """A script with netcat: it joins, reads from the group's offset on, commits; a broken connection ends it."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = LineStream(world.machine.network, TEXT_PORT)
        self.generation, self.position = -1, -1

    async def look(self) -> bool:
        """See `AheadReader.look`."""
        if not self.stream.connected:
            self.generation = -1
        try:
            return await self._look()
        except GoneError:
            self.stream.close()
            raise

    async def _say(self, command: str, args: str, may_refuse: str = "") -> Any:
        if self.generation >= 0 and not self.stream.connected:
            raise GoneError("the connection broke")
        answer = await self.stream.call(command, args, timeout=60)
        if answer.code and answer.code != may_refuse:
            self.generation = -1
            raise GoneError(f"{command}: {answer.code}")
        return answer

    async def _look(self) -> bool:
        who = f"{self.name} {TOPIC} {self.name}"
        if self.generation < 0:
            answer = await self._say("JOIN", who)
            generation = answer.number("generation")
            if not answer.numbers("assigned"):
                return False
            self.position = max((await self._say("OFFSET", f"{self.name} {TOPIC} 0")).number("offset"), 0)
            self.generation = generation
        answer = await self._say("CONSUME", f"{TOPIC} 0 {self.position}", may_refuse="BAD_REQUEST")
        if answer.code:
            self._move_to_log_start(answer.payload)
            return False
        messages = answer.messages()
        for offset, value in messages:
            if offset != self.position:
                raise self.broken(f"{offset} follows {self.position}")
            self.saw(offset, value)
            self.position = offset + 1
        if messages:
            await self._say("COMMIT", f"{who} {self.generation} 0 {self.position}")
            self.did("line commit ahead")
        return not messages

    def _move_to_log_start(self, message: str) -> None:
        """Continue at the log start offset. A power loss may delete first segments that no fsync has covered."""
        found = OUT_OF_RANGE.fullmatch(message)
        if found is None or int(found[1]) <= self.position:
            raise self.broken(f"CONSUME @{self.position}: {message}")
        self.position = int(found[1])


class ManagedReader(AheadReader):
    """A managed consumer: the broker holds position and outstanding batch."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)
        self.path = f"/api/v1/groups/{name}/consumers"
        self._made = False
        self._ack: str | None = None

    async def look(self) -> bool:
        """See `AheadReader.look`."""
        if not self._made:
            body = {"name": "one", "topics": [TOPIC], "start": "earliest"}
            status, _ = await self.stream.call("POST", self.path, body)
            self._made = status in (201, 409)
            return False
        asked: dict[str, object] = {"limit": 20, "wait_ms": self.chance.choice((0, 1000))}
        if self._ack is not None and self.chance.random() < 0.9:
            asked["ack"] = self._ack
        status, answer = await self.stream.call("POST", f"{self.path}/one:poll", asked)
        if status == 409:
            self._ack = None
        if status == 404:
            self._made, self._ack = False, None
        if status != 200:
            if status not in (404, 409, 429, 500, 503, 507):
                raise self.broken(f"a poll was refused: {status} {answer}")
            return False
        for record in answer["records"]:
            self.saw(record["offset"], record["value"].encode())
        self._ack = answer.get("ack")
        if answer["records"]:
            self.did("managed poll ahead")
        return not answer["records"] and answer["state"] == "stable"
