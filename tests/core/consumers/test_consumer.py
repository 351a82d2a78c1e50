"""core.consumers.consumer: tokens, ranges, and what a rebalance leaves of them."""

from __future__ import annotations

from core.consumers.consumer import Consumer
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import ConsumerOptions, Range, Subscription
from tests.core.consumers.consumer_world import detached

P0, P1, P2 = (Tp("t", p) for p in range(3))


def consumer(*assigned: Tp) -> Consumer:
    made = Consumer("g", "c", "abcd", Subscription(("t",)), ConsumerOptions(), 5, detached)
    made.replace_partitions((), assigned)
    for address in assigned:
        made.move(address, 0)
    made.membership.generation = 1
    return made


def test_a_token_names_its_batch_and_only_batches_that_were_given() -> None:
    c = consumer(P0)
    assert c.token is None
    c.give([Range("t", 0, 0, 3)], advancing=False)
    assert c.token == "abcd.1" and c.sequence_of("abcd.1") == 1
    assert [
        c.sequence_of(t) for t in ("abcd.2", "abcd.0", "abce.1", "abcd", "abcd.x", "abcd." + "9" * 30)
    ] == [None] * 6
    c.take([Range("t", 0, 0, 3)])
    c.give([Range("t", 0, 3, 4)], advancing=False)
    assert c.token == "abcd.2" and c.sequence_of("abcd.1") == 1


def test_a_position_moves_past_what_is_taken_and_nothing_else() -> None:
    c = consumer(P0, P1)
    c.give([Range("t", 0, 0, 3), Range("t", 1, 0, 2)], advancing=False)
    c.unsaved.clear()
    c.take([Range("t", 0, 0, 3), Range("t", 1, 0, 1)])
    assert c.positions == {P0: 3, P1: 0} and c.unsaved == {P0: None}
    assert tuple(c.outstanding) == (P1,)


def test_what_stays_keeps_everything_and_the_rest_is_revoked() -> None:
    c = consumer(P0, P1)
    c.give([Range("t", 0, 0, 3), Range("t", 1, 0, 2)], advancing=False)
    c.paused = {P0, P1}
    c.replace_partitions([P1], [P2, P1])
    assert c.assigned == (P1, P2) and c.positions == {P1: 0} and c.paused == {P1}
    assert c.revoked == (Range("t", 0, 0, 3),) and tuple(c.outstanding) == (P1,)
    assert [p.partition for p in c.partitions()] == [1]
    c.take(tuple(c.outstanding.values()))
    c.give([Range("t", 1, 2, 3)], advancing=False)
    assert c.revoked == ()


def test_the_states_a_consumer_shows() -> None:
    c = consumer(P0)
    assert c.state == "stable"
    c.membership.generation = -1
    assert c.state == "joining"
    c.membership.fenced = True
    assert c.state == "fenced"
    c.membership.fenced, c.subscription = False, Subscription()
    assert c.state == "unsubscribed" and not c.subscription.joins
    c.subscription = Subscription(assignments=(P0,))
    assert c.state == "assigned" and not c.subscription.joins
    c.deadline = 12.5
    assert c.info(10.0).expires_in_ms == 2500 and c.info(100.0).expires_in_ms == 0
