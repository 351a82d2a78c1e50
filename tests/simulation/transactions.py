"""Transactional producers of both kinds, a rival for their ids, and a reader of what is committed.

The outcome of a transaction is known when its end was answered, or when it was refused before a commit was ever sent.
Otherwise all of it or nothing may have been committed. A reader may never see a record of an aborted transaction, nor
a part of one.
"""

from __future__ import annotations

import asyncio

from core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from core.protocol.messages.end_txn import EndTxnRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.committed import committed_values
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.streams import GoneError, KafkaStream
from tests.simulation.txn_ledger import Written
from tests.simulation.world import KAFKA_PORT, Client, World

PRODUCE, FETCH, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 1, 22, 24, 26
OFFSET_FETCH, ADD_OFFSETS, TXN_OFFSET_COMMIT = 9, 25, 28
TOPIC, PARTITIONS, GROUP = "txn", 3, "txn-group"
IDS = ("first", "second")
# Of the group: each id has a partition, and the transactions over HTTP.
HTTP_PARTITION = len(IDS)
MAX_BYTES = 100_000
# The disk refuses, the broker stops, or another request of the id is under way: the same may be sent again.
AGAIN = {5, 6, 7, 14, 15, 16, 19, 51, 56}
OUT_OF_RANGE, INVALID_TXN_STATE, STORAGE_ERROR, INVALID_TIMESTAMP = 1, 48, 56, 32
# Another producer has the id by now, or the transaction was open for too long.
FENCED = {47, 49, 90}


class FencedError(Exception):
    """Another producer has the id."""


class TransactionalProducer(Client):
    """One transaction after another under one transactional id; asks again until it is answered, as clients do."""

    pause = 0.5

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)
        self.id = IDS[int(name[-1]) % len(IDS)]
        # The second kind begins with Produce, and EndTxn raises its epoch (KIP-890).
        self.second = self.chance.random() < 0.5
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def step(self) -> None:
        """One transaction, from its first record to its end."""
        if self._producer[0] < 0:
            await self._init()
        one = Written(f"{self.name}-{len(self.world.transactions.all)}")
        self.world.transactions.all.append(one)
        commit, sent = self.chance.random() < 0.7, False
        try:
            for _ in range(self.chance.randint(0, 4)):
                await self._write(one)
            if self.chance.random() < 0.4:
                await self._stage(one)
            if self.chance.random() < 0.1:
                await asyncio.sleep(self.chance.uniform(1, 8))
            if self.chance.random() < 0.1:
                # A client that dies here: its next incarnation begins with the same id.
                one.outcome = False
                raise FencedError("gave up")
            sent = commit
            await self._end(one, commit=commit)
        except FencedError as error:
            self.say(f"{one.name}: {error}")
            if not sent:
                one.outcome = False
            self._became((-1, -1))

    async def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.id, transaction_timeout_ms=self.chance.choice((1_500, 60_000))
        )
        version = self.chance.randint(0, 4)
        while True:
            try:
                found = await self.stream.call(INIT_PRODUCER_ID, version, request)
            except GoneError:
                await asyncio.sleep(self.chance.expovariate(3.0))
                continue
            if not found.error_code:
                break
            if found.error_code not in AGAIN:
                raise self.broken(f"InitProducerId was refused with {found.error_code}")
            await asyncio.sleep(self.chance.expovariate(2.0))
        self._became((found.producer_id, found.producer_epoch))
        self.did("transactional init")

    def _became(self, producer: tuple[int, int]) -> None:
        if producer != self._producer:
            self._sequences = {}
        self._producer = producer

    async def _write(self, one: Written) -> None:
        partition = self.chance.randrange(PARTITIONS)
        values = [self.value() for _ in range(self.chance.randint(1, 3))]
        if not self.second:
            await self._add(partition)
        sequence = self._sequences.get(partition, 0)
        records = build_batch(
            [NewRecord(value=value) for value in values],
            now_ms=self.world.machine.clock.wall_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=partition, records=memoryview(bytes(records)))
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        one.values |= dict.fromkeys(values, partition)
        self.world.transactions.of |= dict.fromkeys(values, one)
        version = 12 if self.second else self.chance.randint(3, 11)
        code = await self._asked(PRODUCE, version, request, lambda a: a.responses[0].partition_responses[0])
        if code == INVALID_TIMESTAMP:
            # The clock was set back: this batch can never be taken, and the transaction not be committed.
            raise FencedError("a batch of the future")
        if code:
            raise self.broken(f"{one.name}: a batch was refused with {code} (sequence {sequence})")
        self._sequences[partition] = sequence + len(values)
        self.did("transactional produce")

    async def _stage(self, one: Written) -> None:
        """Stage the next number for this producer's own partition."""
        if not self.second:
            joining = AddOffsetsToTxnRequest(self.id, *self._producer, GROUP)
            code = await self._asked(ADD_OFFSETS, self.chance.randint(0, 4), joining, lambda answer: answer)
            if code:
                raise self.broken(f"AddOffsetsToTxn was refused with {code}")
        partition = IDS.index(self.id)
        staged = self.world.transactions.staged[partition]
        one.offset = len(staged)
        staged.append(one)
        # The number is in the metadata: an offset may be cut back to the end of its log after a loss of power.
        place = TxnOffsetCommitRequestPartition(partition, 0, -1, str(one.offset))
        request = TxnOffsetCommitRequest(
            self.id, GROUP, *self._producer, topics=[TxnOffsetCommitRequestTopic(TOPIC, [place])]
        )
        version = 5 if self.second else self.chance.randint(0, 4)
        code = await self._asked(
            TXN_OFFSET_COMMIT, version, request, lambda answer: answer.topics[0].partitions[0]
        )
        if code:
            raise self.broken(f"{one.name}: TxnOffsetCommit was refused with {code}")
        self.did("transactional offset")

    async def _add(self, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [partition])],
        )
        code = await self._asked(
            ADD_PARTITIONS,
            self.chance.randint(0, 3),
            request,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0],
        )
        if code:
            raise self.broken(f"AddPartitionsToTxn was refused with {code}")

    async def _end(self, one: Written, *, commit: bool) -> None:
        if not one.values and one.offset < 0 and not self.second and not commit:
            return
        request = EndTxnRequest(self.id, *self._producer, commit)
        answered: list[tuple[int, int]] = []

        def code_of(answer: object) -> object:
            answered.append((answer.producer_id, answer.producer_epoch))  # type: ignore[attr-defined]
            return answer

        version = 5 if self.second else self.chance.randint(0, 3)
        code = await self._asked(END_TXN, version, request, code_of)
        if code == INVALID_TXN_STATE and not one.values and one.offset < 0:
            return
        if code == INVALID_TXN_STATE and self.second and commit:
            # The coordinator has aborted it after its time. A commit that was done before would be told again.
            one.outcome = False
            raise FencedError("was open for too long")
        if code:
            raise self.broken(f"{one.name}: its end was refused with {code}")
        one.outcome = commit
        if self.second:
            self._became(answered[-1])
        self.say(f"{one.name} {'committed' if commit else 'aborted'} {sorted(one.values)}")
        self.did("commit of a transaction" if commit else "abort of a transaction")

    async def _asked(self, key: int, version: int, request: object, part: object) -> int:
        """Return the final error code. Raises FencedError."""
        while True:
            try:
                answer = await self.stream.call(key, version, request)  # type: ignore[arg-type]
            except GoneError:
                await asyncio.sleep(self.chance.expovariate(3.0))
                continue
            found = part(answer)  # type: ignore[operator]
            code = found.partition_error_code if key == ADD_PARTITIONS else found.error_code
            if code in FENCED:
                raise FencedError(f"{key} was refused with {code}")
            if code not in AGAIN:
                return int(code)
            await asyncio.sleep(self.chance.expovariate(2.0))


class Rival(TransactionalProducer):
    """Takes one of the ids away now and then, and leaves its own transaction open."""

    pause = 12.0

    async def step(self) -> None:
        """Begin under a stolen id; its own transaction stays open."""
        self.id = self.chance.choice(IDS)
        await self._init()
        self.say(f"took {self.id}")


class CommittedReader(Client):
    """Reads all partitions as read_committed, as clients do: it drops what the answer says was aborted."""

    pause = 0.4

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)
        self._positions = [0] * PARTITIONS
        self.seen: set[bytes] = set()

    async def step(self) -> None:
        """Read on in all partitions by one request; now and then from the start again."""
        if self.chance.random() < 0.1:
            self._positions, self.seen = [0] * PARTITIONS, set()
        if self.chance.random() < 0.3:
            await self.read_offsets()
        known = self.world.transactions
        committed = known.committed()
        if await self.read():
            known.check_whole(self.seen, committed, self.name)
            self.did("whole transactions")

    async def read(self) -> bool:
        """Take one answer; whether it was up to the end of all partitions, and nothing was open in them."""
        asked = [
            FetchPartition(partition=i, fetch_offset=position, partition_max_bytes=MAX_BYTES)
            for i, position in enumerate(self._positions)
        ]
        request = FetchRequest(
            max_wait_ms=self.chance.choice((0, 0, 1_000)),
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=asked)],
        )
        answer = await self.stream.call(FETCH, self.chance.randint(4, 12), request)
        at_the_end, values = True, set()
        for found in answer.responses[0].partitions:
            if found.error_code == STORAGE_ERROR:
                return False
            if found.error_code == OUT_OF_RANGE:
                # After a loss of power an end may lie before what was read: committed records are never lost so.
                raise self.broken(f"partition {found.partition_index} ends before what was committed")
            if found.error_code:
                raise self.broken(f"a fetch was refused with {found.error_code}")
            partition = found.partition_index
            committed = committed_values(found, self._positions[partition])
            self._positions[partition] = committed.position
            values |= {value for _, value in committed.values}
            at_the_end &= self._positions[partition] >= found.high_watermark
        self.seen |= values
        self.world.transactions.saw(values, self.name)
        if values:
            self.did("committed read")
        return at_the_end

    async def read_offsets(self) -> bool:
        """Look at the committed offsets of the group; whether no open transaction has staged any."""
        committed = self.world.transactions.committed()
        asked = OffsetFetchRequest(
            GROUP, [OffsetFetchRequestTopic(TOPIC, list(range(HTTP_PARTITION + 1)))], require_stable=True
        )
        answer = await self.stream.call(OFFSET_FETCH, 7, asked)
        if answer.error_code or any(p.error_code for t in answer.topics for p in t.partitions):
            return False
        for found in answer.topics[0].partitions:
            offset = int(found.metadata or -1)
            self.world.transactions.check_offset(found.partition_index, offset, committed, self.name)
        self.did("committed offsets")
        return True


async def reckon(world: World, when: str) -> None:
    """Read everything that is committed: each transaction is there as a whole, or not at all."""
    reader = CommittedReader(world, f"reckoning {when}")
    committed = world.transactions.committed()
    # What clients have left open is aborted after its time, a minute at most.
    for _ in range(1_000):
        if await reader.read() and await reader.read_offsets():
            world.transactions.check_whole(reader.seen, committed, reader.name)
            return
        await asyncio.sleep(0.1)
    raise BrokenPromiseError(f"{when}: the end of what is committed cannot be reached")
