"""Client quotas in virtual time: which quota applies, how a rate is measured, what is shared."""

from __future__ import annotations

import pytest

from core.clock import ManualClock
from core.errors import BrokerError, ErrorCode
from core.security import quotas
from core.security.meter import Meter
from core.security.quotas import QuotaTable, TokenBucket, Window, check_quota, entity_of
from core.vocabulary.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    Match,
    QuotaFilter,
)

# From the most specific to the least (Kafka's design.html, "Quota Configuration").
PRECEDENCE: list[Entity] = [
    ((USER, "alice"), (CLIENT_ID, "app")),
    ((USER, "alice"), (CLIENT_ID, None)),
    ((USER, "alice"),),
    ((USER, None), (CLIENT_ID, "app")),
    ((USER, None), (CLIENT_ID, None)),
    ((USER, None),),
    ((CLIENT_ID, "app"),),
    ((CLIENT_ID, None),),
]


def test_the_most_specific_quota_applies() -> None:
    table = QuotaTable()
    for rank, entity in reversed(list(enumerate(PRECEDENCE, 1))):
        table.change(entity, {PRODUCER_BYTE_RATE: float(rank)})
        bucket = table.bucket(PRODUCER_BYTE_RATE, "alice", "app", 0.0)
        assert bucket is not None
        assert bucket.bound == rank
    assert table.bucket(CONSUMER_BYTE_RATE, "alice", "app", 0.0) is None
    for entity in PRECEDENCE:
        table.change(entity, {PRODUCER_BYTE_RATE: None})
    assert not table
    assert len(table) == 0


def test_a_client_without_an_id_has_the_quotas_of_the_default_client_and_of_no_named_one() -> None:
    table = QuotaTable()
    table.change(((USER, "alice"), (CLIENT_ID, None)), {PRODUCER_BYTE_RATE: 1.0})
    table.change(((USER, "alice"),), {PRODUCER_BYTE_RATE: 2.0})
    bucket = table.bucket(PRODUCER_BYTE_RATE, "alice", "", 0.0)
    assert bucket is not None
    assert bucket.bound == 1


def test_a_quota_of_a_user_is_shared_by_its_client_ids_and_a_quota_of_both_is_not() -> None:
    table = QuotaTable()
    table.change(((USER, "alice"),), {PRODUCER_BYTE_RATE: 10.0})
    table.change(((USER, None), (CLIENT_ID, None)), {PRODUCER_BYTE_RATE: 10.0})
    table.change(((CLIENT_ID, "app"),), {CONSUMER_BYTE_RATE: 10.0})
    bucket = table.bucket
    assert bucket(PRODUCER_BYTE_RATE, "alice", "a", 0.0) is bucket(PRODUCER_BYTE_RATE, "alice", "b", 0.0)
    assert bucket(PRODUCER_BYTE_RATE, "bob", "a", 0.0) is not bucket(PRODUCER_BYTE_RATE, "bob", "b", 0.0)
    assert bucket(CONSUMER_BYTE_RATE, "x", "app", 0.0) is bucket(CONSUMER_BYTE_RATE, "y", "app", 0.0)


def test_a_burst_waits_as_long_as_in_kafka() -> None:
    # Kafka: (rate - quota) / quota * window, where the window of a first request has ten full seconds.
    window = Window(100.0)
    assert window.record(1000, 5.0) == 0
    assert window.record(500, 5.0) == pytest.approx(5.0)
    assert window.wait(7.0) == pytest.approx(3.0)


def test_what_is_older_than_eleven_samples_no_longer_counts() -> None:
    window = Window(100.0)
    window.record(1000, 0.0)
    assert window.left(0.0) == 0
    assert window.record(100, 0.5) == pytest.approx(0.5)
    later = Window(100.0)
    later.record(1000, 0.0)
    assert later.record(1000, 11.0) == 0
    assert later.idle(22.0)


def test_a_debt_outlives_the_window() -> None:
    window = Window(100.0)
    assert window.record(10_000, 0.0) == pytest.approx(90.0)
    # All samples are older than the window by now; a client with a new connection still waits.
    assert window.wait(30.0) == pytest.approx(60.0)
    assert window.record(1_000, 30.0) == pytest.approx(70.0)
    assert not window.idle(30.0)
    assert window.idle(200.0)


@pytest.mark.parametrize("size", [1, 37, 400, 5_000])
def test_a_client_that_waits_as_told_stays_within_its_quota(size: int) -> None:
    window, now, sent = Window(100.0), 0.0, 0
    while now < 200:
        sent += size
        now += window.record(size, now) + 0.05
    assert sent <= 100 * (now + 10) + size


def test_a_client_over_its_share_of_time_waits_a_second_at_most() -> None:
    table = QuotaTable()
    table.change(((USER, "alice"),), {REQUEST_PERCENTAGE: 1.0})
    bucket = table.bucket(REQUEST_PERCENTAGE, "alice", "", 0.0)
    assert bucket is not None
    assert bucket.record(10_000, 0.0) == 1.0


def test_time_that_is_added_counts_and_makes_no_wait_longer() -> None:
    window = Window(1.0, longest=1.0)
    assert window.record(11, 0.0) == 1.0
    window.add(5, 0.5)
    assert window.wait(0.5) == 0.5
    assert window.record(0, 1.0) == 1.0


def test_a_stream_waits_for_its_bytes_and_for_its_time() -> None:
    table, clock = QuotaTable(), ManualClock()
    meter = Meter(table, clock, "alice")
    assert meter.read_wait() == 0
    table.change(((USER, "alice"),), {CONSUMER_BYTE_RATE: 100.0, REQUEST_PERCENTAGE: 1.0})
    assert (meter.read_wait(), meter.readable_now(5_000)) == (0, 1_000)
    meter.read_bytes(1_300)
    assert (meter.read_wait(), meter.readable_now(5_000)) == (pytest.approx(3.0), 1)
    clock.advance(3)
    assert meter.read_wait() == 0
    window = table.time_window("alice", clock.monotonic())
    # The Kafka listener counts in the same one.
    assert window is table.bucket(REQUEST_PERCENTAGE, "alice", "", clock.monotonic())
    assert window is not None
    window.record(50, clock.monotonic())
    assert meter.read_wait() == 1


def test_tokens_come_back_and_may_be_owed() -> None:
    table = QuotaTable()
    table.change(((USER, "alice"),), {CONTROLLER_MUTATION_RATE: 2.0})
    bucket = table.bucket(CONTROLLER_MUTATION_RATE, "alice", "", 0.0)
    assert isinstance(bucket, TokenBucket)
    assert bucket.record(22, 0.0) == 0
    assert bucket.record(10, 0.0) == 5.0
    assert bucket.wait(4.0) == 1.0
    assert bucket.left(6.0) == 2.0
    assert bucket.idle(60.0)


def test_a_changed_quota_holds_for_the_bucket_that_is_there() -> None:
    table = QuotaTable()
    table.change(((USER, "alice"),), {PRODUCER_BYTE_RATE: 100.0})
    first = table.bucket(PRODUCER_BYTE_RATE, "alice", "", 0.0)
    assert first is not None
    first.record(1_000, 0.0)
    table.change(((USER, "alice"),), {PRODUCER_BYTE_RATE: 10.0})
    assert table.bucket(PRODUCER_BYTE_RATE, "alice", "", 0.0) is first
    assert first.record(10, 0.0) == pytest.approx(91.0)


def test_client_ids_without_an_end_share_a_bucket_once_the_table_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 3)
    table = QuotaTable()
    table.change(((USER, None), (CLIENT_ID, None)), {PRODUCER_BYTE_RATE: 10.0})
    for number in range(3):
        bucket = table.bucket(PRODUCER_BYTE_RATE, "mallory", str(number), 0.0)
        assert bucket is not None
        bucket.record(1_000, 0.0)
    one = table.bucket(PRODUCER_BYTE_RATE, "mallory", "x", 0.0)
    assert one is not None
    one.record(1_000, 0.0)
    other = table.bucket(PRODUCER_BYTE_RATE, "mallory", "y", 0.0)
    assert one is other
    # Space comes back with time.
    again = [table.bucket(PRODUCER_BYTE_RATE, "bob", name, 500.0) for name in ("x", "y")]
    assert again[0] is not again[1]


def test_connections_of_an_address_count_by_its_own_quota_or_the_default() -> None:
    table = QuotaTable()
    table.change(((IP, None),), {CONNECTION_CREATION_RATE: 5.0})
    table.change(((IP, "10.0.0.1"),), {CONNECTION_CREATION_RATE: 1.0})
    assert not table
    assert table.has_ip_quotas
    one, two, three = (table.connection_bucket(f"10.0.0.{n}", 0.0) for n in (1, 2, 3))
    assert one is not None and two is not None
    assert (one.bound, two.bound) == (1, 5)
    assert two is not three


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ((), False, ["ab", "a", "_", "ip"]),
        ((), True, []),
        (((USER, Match.EXACT, "a"),), False, ["ab", "a"]),
        (((USER, Match.EXACT, "a"),), True, ["a"]),
        (((USER, Match.DEFAULT, None),), False, ["_"]),
        (((USER, Match.ANY, None),), True, ["a", "_"]),
        (((USER, Match.ANY, None), (CLIENT_ID, Match.ANY, None)), False, ["ab"]),
        (((IP, Match.ANY, None),), False, ["ip"]),
    ],
)
def test_a_filter_finds_entities_as_kip_546_says(
    parts: tuple[tuple[str, Match, str | None], ...], strict: bool, found: list[str]
) -> None:
    names: dict[Entity, str] = {
        ((USER, "a"), (CLIENT_ID, "b")): "ab",
        ((USER, "a"),): "a",
        ((USER, None),): "_",
        ((IP, "::1"),): "ip",
    }
    table = QuotaTable()
    table.replace([(entity, "request_percentage", 1.0) for entity in names])
    assert sorted(names[one.entity] for one in table.matching(QuotaFilter(parts, strict))) == sorted(found)


def test_an_entity_has_one_form() -> None:
    assert entity_of([(CLIENT_ID, "b"), (USER, None)]) == ((USER, None), (CLIENT_ID, "b"))
    assert entity_of([(IP, "2001:DB8::0:1")]) == ((IP, "2001:db8::1"),)
    assert entity_of([(IP, "::ffff:10.0.0.1")]) == ((IP, "10.0.0.1"),)
    for parts in ([], [("group", "a")], [(USER, "")], [(IP, "localhost")], [(USER, "a"), (IP, None)]):
        with pytest.raises(BrokerError) as refused:
            entity_of(parts)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1.5])
def test_a_rate_of_bytes_is_a_whole_number_above_zero(value: float) -> None:
    with pytest.raises(BrokerError):
        check_quota(((USER, "a"),), PRODUCER_BYTE_RATE, value)
    check_quota(((USER, "a"),), PRODUCER_BYTE_RATE, None)
