"""Transactions as a Kafka 4.1 answered them, row after row: both protocols, readers, refusals, fencing, a timeout.

`tests/peers/recorded_transactions.py` has made the recording. What it asked without keeping a row is done here in the
same places.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.listeners.connection import RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.codec import decode_response
from core.protocol.header import decode_response_header
from core.protocol.messages.fetch import PartitionData
from core.records.batch import batches
from core.records.control import read_marker
from core.transactions.transactions import Transactions
from core.vocabulary.transactions import ProducerIdAndEpoch
from tests.core.listeners.kafka.conftest import Client
from tests.golden.test_kafka_4_1_acls import comparable
from tests.golden.traffic import golden_file

TOPIC = "paid"
TIMES = ("transaction_start_time_ms", "last_timestamp")
# Of the recording.
PORT = 54751
RECORDED_MS = 1_795_354_564_000


def recorded() -> list[dict[str, Any]]:
    return list(json.loads(golden_file("kafka-4.1-transactions.json").read_text()))


def topic_id_of(rows: list[dict[str, Any]]) -> UUID:
    """The id of the topic in the recording: that of the first fetch which names it."""
    for row in rows:
        if row["case"].endswith("produce again") and row["version"] == 13:
            data = bytes.fromhex(row["response"])[4:]
            _, position = decode_response_header(0, 13, data)
            found: UUID = decode_response(0, 13, data, position).responses[0].topic_id
            return found
    raise AssertionError("no row has the id")


def batches_of(records: bytes) -> list[tuple[Any, ...]]:
    """What counts in fetched batches: places, producers and markers, without the times of the markers."""
    return [
        (
            header.base_offset,
            header.last_offset_delta,
            header.attributes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            read_marker(records[at : at + header.size], header),
        )
        for at, header in batches(memoryview(records))
    ]


def opened(value: Any) -> None:
    """Put what counts of the records into an answer of Fetch."""
    for topic in value.responses:
        for partition in topic.partitions:
            assert isinstance(partition, PartitionData)
            partition.records = batches_of(bytes(partition.records or b""))  # type: ignore[assignment]


class Replay:
    """One connection to a broker of ours with the topic of the recording."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.listener = KafkaListener(broker, HANDLERS)
        self.listener.bound(Endpoint("kafka", "127.0.0.1", PORT))
        self.client = Client(self.listener)
        self.theirs = topic_id_of(recorded())
        # What is done before a row, by the name of its case; each is done once.
        self.before: dict[str, Callable[[], Awaitable[object]]] = {
            "abort: produce": self._readers,
            "commit: produce": self._readers,
            "commit offsets: unknown member": self._refused,
            "fenced: new resumes": self._fenced,
            "late: describe": self._late,
        }

    @property
    def transactions(self) -> Transactions:
        assert isinstance(self.broker.transactions, Transactions)
        return self.broker.transactions

    async def prepare(self) -> None:
        await self.client.create(TOPIC, 2)
        self.ours = self.broker.topics.get(TOPIC).topic_id
        await self.transactions.init("first", 60_000)

    async def _readers(self) -> None:
        producer = await self.transactions.init("readers", 60_000)
        await self.transactions.join("readers", producer)

    async def _refused(self) -> None:
        producer = self.transactions.get("refused").producer
        await self.transactions.join("refused", ProducerIdAndEpoch(*producer))

    async def _fenced(self) -> None:
        """Kafka has raised the epoch twice: once to fence, once for the new client."""
        await self.transactions.init("fenced", 60_000)

    async def _late(self) -> None:
        self.clock.advance(2)
        await self.transactions.step()

    async def ask(self, row: dict[str, Any]) -> bytes | None:
        before = self.before.pop(row["case"], None)
        if before is not None:
            await before()
        frame = bytes.fromhex(row["request"])[4:].replace(self.theirs.bytes, self.ours.bytes)
        try:
            answer = await self.client.raw(frame)
        except RefusedError:
            return None
        return answer and answer.replace(self.ours.bytes, self.theirs.bytes)


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Replay]:
    clock = ManualClock(RECORDED_MS)
    broker = Broker(Config(data_dir=tmp_path, broker_id=1, group_initial_rebalance_delay_ms=0), clock)
    await broker.open()
    made = Replay(broker, clock)
    await made.prepare()
    yield made
    await broker.close()


def decoded(row: dict[str, Any], answer: bytes) -> Any:
    key, version = row["api_key"], row["version"]
    _, position = decode_response_header(key, version, answer)
    value = decode_response(key, version, answer, position)
    if key == 1:
        opened(value)
    return timeless(comparable(value))


def timeless(value: Any) -> Any:
    """An answer without times of this run: whether there is one is left."""
    if isinstance(value, list):
        # No list of these answers has an order, but that of batches, which are tuples.
        found = [timeless(one) for one in value]
        return found if any(isinstance(one, tuple) for one in found) else sorted(found, key=repr)
    if not isinstance(value, dict):
        return value
    return {
        name: one > 0 if name in TIMES else timeless(one)
        for name, one in value.items()
        # Of a refusal for the want of a right; Kafka has none for these.
        if name != "error_message"
    }


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Where two answers differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            text for name in theirs for text in differences(theirs[name], ours.get(name), f"{path}.{name}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return [text for i, both in pairs for text in differences(*both, f"{path}[{i}]")]
    return [] if theirs == ours else [f"{path}: {theirs} | {ours}"]


# The rows in which we answer otherwise, and why.
DIFFERENT = {
    "produce: not added v11": "an open transaction takes records of any partition: no other broker has to be asked",
    "fenced: produce v11": "the same: a batch and its marker come before",
    "fenced: second v5": "the epoch is raised once: the abort of what was open raises it for the new client",
}
# AddPartitionsToTxn from version 4 on is for brokers that ask each other.
NOT_SERVED = {(24, 4), (24, 5)}


async def test_each_recorded_row_is_answered_as_kafka_did(replay: Replay) -> None:
    differing: dict[str, tuple[Any, Any]] = {}
    not_served, compared = set(), 0
    for row in recorded():
        if not HANDLERS[row["api_key"]].serves(row["version"]):
            not_served.add((row["api_key"], row["version"]))
            continue
        compared += 1
        answer = await replay.ask(row)
        ours = None if answer is None else decoded(row, answer)
        theirs = decoded(row, bytes.fromhex(row["response"])[4:]) if "response" in row else None
        if ours != theirs:
            differing[f"{row['case']} v{row['version']}"] = (theirs, ours)
    for name, both in differing.items():
        print(name, *differences(*both), sep="\n   ")
    assert differing.keys() == DIFFERENT.keys()
    assert not_served == NOT_SERVED
    assert compared == 241
