"""The circuit breaker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.queues.webhooks.breaker import FIRST_SECONDS, IN_A_ROW, MAX_SECONDS, WINDOW, Breaker
from core.vocabulary.webhooks import Circuit


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(IN_A_ROW):
        breaker.failed(0.0)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker()
    for _ in range(IN_A_ROW - 1):
        breaker.failed(0.0)
    assert breaker.capacity(0.0) is None
    breaker.failed(0.0)
    assert (breaker.circuit, breaker.capacity(0.0), breaker.wait(0.0)) == (Circuit.OPEN, 0, FIRST_SECONDS)


def test_half_of_the_last_requests_open_it() -> None:
    breaker = Breaker()
    for number in range(WINDOW):
        assert breaker.circuit is Circuit.CLOSED
        if number % 2:
            breaker.failed(0.0)
        else:
            breaker.succeeded()
    assert breaker.circuit is Circuit.OPEN


def test_a_third_of_failures_does_not_open_it() -> None:
    breaker = Breaker()
    for number in range(1000):
        if number % 3:
            breaker.succeeded()
        else:
            breaker.failed(0.0)
    assert breaker.circuit is Circuit.CLOSED


def test_half_open_lets_one_record_through() -> None:
    breaker = opened()
    assert breaker.capacity(FIRST_SECONDS - 0.1) == 0
    assert breaker.capacity(FIRST_SECONDS) == 1
    breaker.sent()
    assert breaker.capacity(FIRST_SECONDS) == 0
    breaker.succeeded()
    assert breaker.capacity(FIRST_SECONDS) is None


def test_a_probe_that_fails_doubles_the_pause_up_to_ten_minutes() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(12):
        pauses.append(breaker.wait(now))
        now += breaker.wait(now)
        assert breaker.capacity(now) == 1
        breaker.sent()
        breaker.failed(now)
    assert pauses[:4] == [5.0, 10.0, 20.0, 40.0]
    assert pauses[-1] == MAX_SECONDS


def test_requests_that_began_before_do_not_lengthen_the_pause() -> None:
    breaker = opened()
    for _ in range(100):
        breaker.failed(4.0)
    assert breaker.wait(4.0) == FIRST_SECONDS - 4.0


def test_a_probe_without_a_result_leaves_the_place_to_the_next_one() -> None:
    breaker = opened()
    assert breaker.capacity(5.0) == 1
    breaker.sent()
    breaker.unsent()
    assert breaker.capacity(5.0) == 1


@given(st.lists(st.tuples(st.sampled_from(["send", "ok", "fail", "none"]), st.floats(0, 1000)), max_size=200))
def test_while_it_is_open_nothing_is_sent_and_half_open_at_most_one(
    steps: list[tuple[str, float]],
) -> None:
    breaker, now, probes = Breaker(), 0.0, 0
    for step, wait in steps:
        now += wait
        capacity = breaker.capacity(now)
        if breaker.circuit is Circuit.OPEN:
            assert capacity == 0 and breaker.wait(now) > 0
        if breaker.circuit is Circuit.HALF_OPEN:
            assert capacity is not None and capacity + probes <= 1
        if step == "send" and capacity != 0:
            breaker.sent()
            probes = 1 if breaker.circuit is Circuit.HALF_OPEN else 0
        elif step == "ok":
            breaker.succeeded()
            probes = 0
        elif step == "fail":
            breaker.failed(now)
            probes = 0
        elif step == "none":
            breaker.unsent()
            probes = 0
