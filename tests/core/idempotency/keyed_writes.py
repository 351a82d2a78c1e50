"""What tests of writes under idempotency keys share: a request, its sending, and the proof that it is there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from core.broker.broker import Broker
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.idempotency import KeyedAnswer, KeyedRequest
from core.vocabulary.records import ProduceResult

RECORDS = [NewRecord(key=b"k%d" % i, value=b"%03d" % i + b"." * 100) for i in range(12)]
# Two or three records of RECORDS fit into one batch.
SMALL = {"max.message.bytes": "400"}


def render(results: Sequence[ProduceResult]) -> bytes:
    return msgspec.json.encode([(r.partition, r.offset, r.timestamp, r.error is None) for r in results])


def request(key: str = "k", body: bytes = b"body", path: str = "topics/t/records") -> KeyedRequest:
    return KeyedRequest(path, key, body.ljust(32))


async def send(
    broker: Broker,
    records: Sequence[NewRecord] = RECORDS,
    *,
    acks: int = -1,
    topic: str = "t",
    **named: Any,
) -> KeyedAnswer:
    return await broker.idempotency.produce(request(**named), topic, records, acks=acks, render=render)


async def stored(broker: Broker, topic: str = "t") -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of all records of a topic."""
    found = []
    for partition in range(broker.topics.get(topic).partitions):
        tp = TopicPartition(topic, partition)
        result = await broker.records.read(tp, 0, max_bytes=10_000_000, max_records=10_000)
        found += [(partition, r.offset, r.value) for r in result.records]
    return found


async def assert_once(broker: Broker, answer: KeyedAnswer, records: Sequence[NewRecord] = RECORDS) -> None:
    """Each record is there once, at the place that the answer names."""
    found = await stored(broker)
    assert sorted(v or b"" for _, _, v in found) == sorted(r.value or b"" for r in records)
    assert answer.answer is not None
    places = msgspec.json.decode(answer.answer)
    by_place = {(p, o): v for p, o, v in found}
    assert [by_place[p, o] for p, o, _, _ in places] == [r.value for r in records]
