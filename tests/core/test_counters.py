"""Meters and tallies: what they hold, and that they cost next to nothing."""

from __future__ import annotations

import timeit

import pytest

from core.counters import BOUNDS, Counters, Meter, Meters, Tally


@pytest.mark.parametrize("index", range(len(BOUNDS)))
def test_a_bound_belongs_to_the_bucket_that_it_ends(index: int) -> None:
    meter = Meter()
    meter.note(BOUNDS[index])
    meter.note(BOUNDS[index] * 1.001)
    assert [n for n, count in enumerate(meter.buckets) if count] == [index, index + 1]


def test_a_meter_adds_up_seconds_and_bytes() -> None:
    meter = Meter()
    meter.note(0.5, 10, 1000)
    meter.note(100.0, 1, 0)
    assert (meter.count, meter.seconds, meter.bytes_in, meter.bytes_out) == (2, 100.5, 11, 1000)


def test_a_key_that_was_only_asked_for_leaves_no_number() -> None:
    tally: Tally[str] = Tally()
    assert tally["never"] == 0
    assert tally == {}
    tally["once"] += 1
    assert tally == {"once": 1}


def test_each_key_has_its_own_meter() -> None:
    meters: Meters[int] = Meters()
    meters[0].note(1)
    meters[1].note(1)
    meters[0].note(1)
    assert {key: meter.count for key, meter in meters.items()} == {0: 2, 1: 1}


def test_two_brokers_do_not_count_together() -> None:
    one, other = Counters(), Counters()
    one.requests[0].note(0.1)
    one.errors[0, 3] += 1
    assert (len(other.requests), len(other.errors)) == (0, 0)


def test_noting_a_request_costs_less_than_two_microseconds_on_any_machine() -> None:
    # 0.2 µs on an idle one; the test machines are anything but idle.
    meters: Meters[int] = Meters()
    best = min(timeit.repeat(lambda: meters[0].note(0.0003, 100, 200), number=2_000, repeat=20)) / 2_000
    assert best < 2e-6
