"""How much a micro-batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.source.admission import limited, new_offsets

OFFSETS = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 20)), st.integers(0, 10_000), max_size=8)


@given(OFFSETS, OFFSETS, st.integers(1, 5000))
def test_a_limited_batch_ends_between_start_and_end_and_each_partition_moves(
    start: dict[tuple[str, int], int], more: dict[tuple[str, int], int], most: int
) -> None:
    end = {tp: start.get(tp, 0) + more.get(tp, 0) for tp in start.keys() | more.keys()}
    taken = limited(start, end, most)
    assert taken.keys() == end.keys()
    for tp, last in taken.items():
        assert start.get(tp, 0) <= last <= end[tp]
        assert last > start.get(tp, 0) or end[tp] == start.get(tp, 0)
    assert new_offsets(start, taken) <= max(most, 0) + len(end)


def test_partitions_share_a_limit_by_what_they_have() -> None:
    assert limited({("t", 0): 100}, {("t", 0): 1000, ("t", 1): 100}, 100) == {("t", 0): 190, ("t", 1): 10}
