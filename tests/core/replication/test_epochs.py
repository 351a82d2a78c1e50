"""No two brokers can take the same epoch, whatever each of them knows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.replication.epochs import STRIDE, first_epoch, leader_of, next_epoch

BROKERS = st.integers(0, STRIDE - 1)


@given(st.integers(0, 10**6), BROKERS)
def test_the_next_epoch_is_above_and_names_its_leader(current: int, broker: int) -> None:
    epoch = next_epoch(current, broker)
    assert current < epoch <= current + STRIDE
    assert leader_of(epoch) == broker


@given(BROKERS)
def test_the_first_epoch_names_its_leader(broker: int) -> None:
    assert leader_of(first_epoch(broker)) == broker


@given(st.integers(0, 1000), st.integers(0, 1000), BROKERS, BROKERS)
def test_two_brokers_never_take_the_same(one: int, other: int, first: int, second: int) -> None:
    assert first == second or next_epoch(one, first) != next_epoch(other, second)
