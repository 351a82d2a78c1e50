"""Transactional producers of both kinds, and a reader of committed records, while the broker is killed all the time.

Each transaction writes to several partitions; some are aborted on purpose, some commit an offset of a group as well.
The reader asks for all partitions by one request and checks each answer: all of a transaction or nothing. Some
clients give up when the answer to their commit is lost, and begin again under the same id: then either may have
happened. The rules are those of the simulation (`tests.simulation.txn_ledger`).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

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
from tests.broker_process import BrokerProcess
from tests.clients.wire import FETCH, INIT_PRODUCER_ID, PRODUCE, Wire, batch
from tests.committed import committed_values
from tests.crash.history import History, Place
from tests.crash.writers import GONE
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.txn_ledger import Transactions, Written

OFFSET_FETCH, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 9, 24, 25, 26, 28
TOPIC, GROUP, PARTITIONS = "txn", "txn-group", 3
PAUSE = 0.01
# No fault lasts that long: a client that is told that its transaction timed out was told wrong.
TIMEOUT_MS = 300_000
# Coordinator or disk are not ready, or another request of the id is under way: the same may be sent again.
AGAIN = {7, 14, 15, 16, 19, 51, 56}
# Answers that the live reader checks for halves of transactions, of those that began last.
RECENT = 60
MAX_BYTES = 4 << 20
CALL_SECONDS = 30.0


class GaveUpError(Exception):
    """The answer to a commit was lost, and the client does not ask again."""


class Plan:
    """What the transactions of one producer are to do; `lane` is its partition of the group, −1 if it has none."""

    def __init__(self, ledger: Transactions, name: str, lane: int, seed: int) -> None:
        self.ledger = ledger
        self.name = name
        self.lane = lane
        self.chance = random.Random(f"{name} {seed}")
        self._number = 0

    def next(self) -> tuple[Written, bool]:
        """Return the next transaction, and whether it is to be committed. Its values end in a number that rises."""
        one = Written(f"{self.name} {self._number}")
        for _ in range(self.chance.randint(1, 5)):
            one.values[b"%s-%d" % (self.name.encode(), self._number)] = self.chance.randrange(PARTITIONS)
            self._number += 1
        if self.lane >= 0 and self.chance.random() < 0.5:
            staged = self.ledger.staged[self.lane]
            one.offset = len(staged)
            staged.append(one)
        self.ledger.of |= dict.fromkeys(one.values, one)
        self.ledger.all.append(one)
        return one, self.chance.random() < 0.7


def librdkafka(broker: BrokerProcess, history: History, plan: Plan) -> None:
    """librdkafka, which is of the first kind.

    It commits no offsets: version 2.16 keeps the coordinator of a group in a cache, also after it has dropped that
    broker, and then waits without an end.
    """

    def done(call: Callable[[float], object]) -> None:
        """Call again until it is done."""
        while not history.failures:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                time.sleep(PAUSE)

    producer = Producer(
        {
            "bootstrap.servers": broker.kafka,
            "transactional.id": plan.name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    done(producer.init_transactions)
    while not history.enough.is_set():
        one, commit = plan.next()
        producer.begin_transaction()
        for value, partition in one.values.items():
            producer.produce(TOPIC, value, partition=partition)
        if not commit:
            # Or else it drops what it has not sent yet.
            producer.flush(CALL_SECONDS)
        done(producer.commit_transaction if commit else producer.abort_transaction)
        one.outcome = commit
        time.sleep(PAUSE)


class ByHand:
    """A producer over a raw connection, of one of the two kinds.

    `second`: a transaction begins with its first record, and each end raises the epoch (KIP-890).
    """

    def __init__(self, broker: BrokerProcess, history: History, plan: Plan, *, second: bool) -> None:
        self._broker = broker
        self._history = history
        self._plan = plan
        self._second = second
        self._wire: Wire | None = None
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    def run(self) -> None:
        """One transaction after another."""
        try:
            self._write_all()
        finally:
            if self._wire is not None:
                self._wire.close()

    def _write_all(self) -> None:
        self._init()
        while not self._history.enough.is_set():
            one, commit = self._plan.next()
            for value, partition in one.values.items():
                self._write(value, partition)
            if one.offset >= 0:
                self._stage(one.offset)
            try:
                self._end(commit=commit)
                one.outcome = commit
            except GaveUpError:
                self._init()
            time.sleep(PAUSE)

    def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._plan.name, transaction_timeout_ms=TIMEOUT_MS)
        self._became(self._asked(INIT_PRODUCER_ID, 4, request))

    def _write(self, value: bytes, partition: int) -> None:
        if not self._second:
            self._add(partition)
        sequence = self._sequences.get(partition, 0)
        producer_id, epoch = self._producer
        records = batch(
            [value], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        data = PartitionProduceData(index=partition, records=memoryview(records))
        request = ProduceRequest(
            transactional_id=self._plan.name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        version = 12 if self._second else 9
        self._asked(
            PRODUCE, version, request, lambda answer: answer.responses[0].partition_responses[0].error_code
        )
        self._sequences[partition] = sequence + 1

    def _add(self, partition: int) -> None:
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._plan.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [partition])],
        )

        def code_of(answer: Any) -> int:
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        self._asked(ADD_PARTITIONS, 3, request, code_of=code_of)

    def _stage(self, offset: int) -> None:
        if not self._second:
            joining = AddOffsetsToTxnRequest(self._plan.name, *self._producer, GROUP)
            self._asked(ADD_OFFSETS, 3, joining)
        place = TxnOffsetCommitRequestPartition(self._plan.lane, 0, -1, str(offset))
        request = TxnOffsetCommitRequest(
            self._plan.name, GROUP, *self._producer, topics=[TxnOffsetCommitRequestTopic(TOPIC, [place])]
        )
        version = 5 if self._second else 3
        self._asked(
            TXN_OFFSET_COMMIT, version, request, lambda answer: answer.topics[0].partitions[0].error_code
        )

    def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self._plan.name, *self._producer, commit)
        gives_up = self._plan.chance.random() < 0.5
        answer = self._asked(END_TXN, 5 if self._second else 3, request, gives_up=gives_up)
        if self._second:
            self._became(answer)

    def _became(self, answer: Any) -> None:
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = {}

    def _asked(
        self,
        key: int,
        version: int,
        request: Any,
        code_of: Callable[[Any], int] = lambda answer: answer.error_code,
        *,
        gives_up: bool = False,
    ) -> Any:
        """Ask until there is an answer. Raises GaveUpError when one was lost; BrokenPromiseError for a refusal."""
        while not self._history.failures:
            try:
                self._wire = self._wire or Wire(self._broker.kafka_address, timeout=CALL_SECONDS)
                answer = self._wire.call(key, request, version)
            except GONE:
                if self._wire is not None:
                    self._wire.close()
                    self._wire = None
                    if gives_up:
                        raise GaveUpError from None
                time.sleep(PAUSE)
                continue
            code = code_of(answer)
            if not code:
                return answer
            if code not in AGAIN:
                raise BrokenPromiseError(f"request {key} of a transaction was refused: {code}")
            time.sleep(PAUSE)
        raise BrokenPromiseError("another client has failed")


# --- the reader --------------------------------------------------------------------------------------------------


class CommittedReader:
    """Reads all partitions as read_committed, by one request each time."""

    def __init__(self, broker: BrokerProcess, ledger: Transactions) -> None:
        self._broker = broker
        self._ledger = ledger
        self.begin()

    def begin(self) -> None:
        """Read from the start."""
        self._positions = [0] * PARTITIONS
        self.found: dict[Place, bytes] = {}
        self.seen: set[bytes] = set()

    def follow(self, history: History) -> None:
        """Read on until the end, and check what is there at once."""
        wire = None
        while not history.stop.is_set():
            try:
                wire = wire or Wire(self._broker.kafka_address, timeout=CALL_SECONDS)
                view = Transactions(self._ledger.all[-RECENT:], self._ledger.of)
                committed = view.committed()
                at_the_end = self.read(wire)
            except BrokenPromiseError:
                raise
            except GONE:
                if wire is not None:
                    wire.close()
                wire = None
                time.sleep(PAUSE)
                continue
            if at_the_end:
                view.check_whole(self.seen, committed, "live")
            time.sleep(PAUSE)
        if wire is not None:
            wire.close()

    def read(self, wire: Wire) -> bool:
        """Take one answer; whether it was up to the end of all partitions, and nothing was open in them."""
        asked = [
            FetchPartition(partition=i, fetch_offset=position, partition_max_bytes=MAX_BYTES)
            for i, position in enumerate(self._positions)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=PARTITIONS * MAX_BYTES,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=asked)],
        )
        at_the_end, values = True, set()
        for found in wire.call(FETCH, request, 12).responses[0].partitions:
            if found.error_code:
                raise BrokenPromiseError(f"a fetch of committed records was refused: {found.error_code}")
            partition = found.partition_index
            committed = committed_values(found, self._positions[partition])
            self._positions[partition] = committed.position
            at_the_end &= committed.position >= found.high_watermark
            for offset, value in committed.values:
                self.found[TOPIC, partition, offset] = value
                values.add(value)
        self.seen |= values
        self._ledger.saw(values, "a reader")
        return at_the_end


# --- all together ------------------------------------------------------------------------------------------------


class Transactors:
    """Two producers and a reader with their threads. `check` when the producers have ended."""

    def __init__(self, broker: BrokerProcess, history: History, seed: int) -> None:
        self._broker = broker
        self._history = history
        # The library that builds batches is imported by the first one, which two threads must not do at once.
        batch([b""])
        self.ledger = Transactions()
        self._reader = CommittedReader(broker, self.ledger)
        first, second, real = (
            Plan(self.ledger, name, lane, seed)
            for name, lane in (("first", 0), ("second", 1), ("librdkafka", -1))
        )
        self.writers = [
            self._thread(first.name, ByHand(broker, history, first, second=False).run),
            self._thread(second.name, ByHand(broker, history, second, second=True).run),
            self._thread(real.name, lambda: librdkafka(broker, history, real)),
        ]
        self.readers = [self._thread("reader", lambda: self._reader.follow(history))]

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:
                self._history.fail(f"transactions, {name}: {error!r}")

        # A client library that hangs must not keep the process from its end.
        return threading.Thread(target=run, name=f"transactions, {name}", daemon=True)

    def check(self) -> str:
        """Read everything again, and hold it against the ledger. Raises AssertionError."""
        again = CommittedReader(self._broker, self.ledger)
        committed = self.ledger.committed()
        until = time.monotonic() + 60
        with Wire(self._broker.kafka_address) as wire:
            while not again.read(wire):
                assert time.monotonic() < until, "a transaction is open, and no producer is left"
            offsets = self._offsets(wire)
        self.ledger.check_whole(again.seen, committed, "at the end")
        for place, value in self._reader.found.items():
            assert again.found.get(place) == value, (
                f"{place}: {value!r} was read and is {again.found.get(place)!r}"
            )
        assert len(again.found) == len(again.seen), "a committed record has a duplicate"
        check_order(again.found)
        for lane, offset in offsets.items():
            self.ledger.check_offset(lane, offset, committed, "at the end")
            self.ledger.check_offset_is_of(lane, offset, again.seen)
        aborted = sum(one.outcome is False for one in self.ledger.all)
        unknown = sum(one.outcome is None for one in self.ledger.all)
        assert committed and aborted and self._reader.found, "nothing happened in transactions"
        return f"{len(committed)} transactions committed, {aborted} aborted, {unknown} of which that is not known"

    def _offsets(self, wire: Wire) -> dict[int, int]:
        asked = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(TOPIC, [0, 1])], require_stable=True)
        answer = wire.call(OFFSET_FETCH, asked, 7)
        (topic,) = answer.topics
        assert not any(found.error_code for found in topic.partitions), topic
        return {found.partition_index: int(found.metadata or -1) for found in topic.partitions}


def check_order(found: dict[Place, bytes]) -> None:
    """The values of each producer rise in each partition."""
    last: dict[tuple[int, bytes], int] = {}
    for (_, partition, offset), value in sorted(found.items()):
        producer, _, number = value.rpartition(b"-")
        assert int(number) > last.get((partition, producer), -1), f"{value!r} at {partition} @{offset}"
        last[partition, producer] = int(number)
