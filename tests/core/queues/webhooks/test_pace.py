"""Slow start, and the rate."""

from __future__ import annotations

from copy import copy

from hypothesis import given
from hypothesis import strategies as st

from core.queues.webhooks.pace import Pace, Rate


def test_a_slow_start_grows_with_each_success_up_to_the_concurrency() -> None:
    pace = Pace(4)
    assert pace.limit == 1
    limits = []
    for _ in range(5):
        pace.began()
        pace.succeeded()
        limits.append(pace.limit)
    assert limits == [2, 3, 4, 4, 4]


def test_a_failure_halves_and_requests_that_ran_with_it_do_not_halve_again() -> None:
    pace = Pace(64)
    for _ in range(63):
        pace.began()
        pace.succeeded()
    running = [pace.began() for _ in range(64)]
    for number in running:
        pace.failed(number)
    assert pace.limit == 32
    pace.failed(pace.began())
    assert pace.limit == 16


def test_the_limit_is_never_below_one() -> None:
    pace = Pace(8)
    for _ in range(10):
        pace.failed(pace.began())
    assert pace.limit == 1


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 5), min_size=1, max_size=100))
def test_no_more_begin_than_the_rate_and_a_second_of_burst(rate: float, waits: list[float]) -> None:
    bucket, now, taken = Rate(rate, 0.0), 0.0, 0
    for wait in waits:
        now += wait
        capacity = bucket.capacity(now)
        assert capacity is not None
        bucket.took(capacity)
        taken += capacity
        assert taken <= now * rate + max(1.0, rate) + 1e-6
        later = copy(bucket)
        assert later.capacity(now + later.wait(now) + 1e-3)


def test_no_rate_is_no_limit() -> None:
    bucket = Rate(None, 0.0)
    assert bucket.capacity(0.0) is None
    assert bucket.wait(0.0) == 0.0
