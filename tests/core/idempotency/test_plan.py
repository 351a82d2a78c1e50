"""core.idempotency.plan: one plan, one set of batches, whenever they are built."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.broker import Broker
from core.idempotency.plan import (
    Place,
    decode_places,
    decode_plan,
    draft,
    encode,
    indexes_of,
    make_plan,
)
from core.idempotency.producer_pool import LentProducer
from core.records.record import NewRecord

RECORD = st.builds(
    NewRecord,
    key=st.none() | st.binary(max_size=8),
    value=st.binary(max_size=120),
    partition=st.none() | st.integers(0, 6),
)


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    await broker.topics.create("t", partitions=4, configs={"max.message.bytes": "300"})
    return broker


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(RECORD, min_size=1, max_size=40))
async def test_every_record_is_in_one_part_and_the_parts_are_the_same_again(
    broker: Broker, records: list[NewRecord]
) -> None:
    topic_id = broker.topics.get("t").topic_id
    drafted = draft(broker, "t", records)
    producers = [LentProducer(n) for n in range(drafted.producers_needed)]
    plan = make_plan(topic_id, drafted, producers)
    again = decode_plan(encode(plan))
    assert again == plan
    # Other records have had their turn meanwhile.
    broker.records.next_in_turn("t", 4)
    parts = [(part, list(indexes)) for part, indexes in indexes_of(broker, "t", again, records)]
    assert sorted(i for _, indexes in parts for i in indexes) == list(range(len(records)))
    assert [len(indexes) for _, indexes in parts] == [part.count for part in plan.parts]
    for part, indexes in parts:
        assert {records[i].partition for i in indexes} <= {None, part.partition}
    # One batch for each producer and partition: none depends on the one before.
    assert len({(p.partition, p.producer_id) for p in plan.parts}) == len(plan.parts)


async def test_producers_begin_where_they_ended(broker: Broker) -> None:
    topic_id = broker.topics.get("t").topic_id
    producer = LentProducer(5)
    producer.advance(topic_id, 2, 17)
    plan = make_plan(
        topic_id, draft(broker, "t", [NewRecord(partition=2), NewRecord(partition=3)]), [producer]
    )
    assert [(p.partition, p.base_sequence) for p in plan.parts] == [(2, 17), (3, 0)]


async def test_places_are_kept_with_their_gaps(broker: Broker) -> None:
    records = [NewRecord(partition=p) for p in range(3)]
    plan = make_plan(broker.topics.get("t").topic_id, draft(broker, "t", records), [LentProducer(1)])
    places = [Place(4, -1), None, Place(9, 1234)]
    assert decode_places(encode(places), plan) == places
    assert decode_places(b"", plan) == [None, None, None]


async def test_the_header_of_a_part_has_the_numbers_that_a_log_looks_at(broker: Broker) -> None:
    producer = LentProducer(8)
    plan = make_plan(
        broker.topics.get("t").topic_id, draft(broker, "t", [NewRecord(partition=0)] * 3), [producer]
    )
    header = plan.parts[0].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        8,
        0,
        0,
        2,
    )
