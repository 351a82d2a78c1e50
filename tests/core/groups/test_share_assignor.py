"""core.groups.share_assignor: each partition has a member, each member a partition, and what it had stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.groups.share_assignor import assign


def shared(members: int, places: int, before: dict[str, set[int]] | None = None) -> dict[str, set[int]]:
    order = list(range(places))
    return assign({f"m{one:03}": order for one in range(members)}, before or {}, order)


@pytest.mark.parametrize(
    ("members", "places", "sizes"),
    [
        (1, 3, [3]),
        (2, 3, [1, 2]),
        (3, 3, [1, 1, 1]),
        (3, 2, [1, 1, 2]),
        (4, 2, [1, 1, 1, 1]),
        (5, 1, [1] * 5),
    ],
)
def test_members_share_partitions_evenly(members: int, places: int, sizes: list[int]) -> None:
    found = shared(members, places)
    assert sorted(map(len, found.values())) == sizes
    assert set().union(*found.values()) == set(range(places))


def test_no_partitions_and_no_members() -> None:
    assert assign({"a": []}, {}, []) == {"a": set()}
    assert assign({}, {"left": {1}}, [1, 2]) == {}


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.sets(st.integers(0, 8)), max_size=9),
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.sets(st.integers(0, 9)), max_size=9),
)
def test_every_partition_has_a_member_and_every_member_a_partition(
    wanted: dict[str, set[int]], before: dict[str, set[int]]
) -> None:
    order = sorted(set().union(*wanted.values()))
    found = assign(wanted, before, order)
    assert set(found) == set(wanted)
    for member, mine in found.items():
        assert mine <= wanted[member]
        assert bool(mine) == bool(wanted[member])
    assert set().union(*found.values()) == set(order)
    # Without a change nothing moves, whatever was before.
    assert assign(wanted, found, order) == found


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11))
def test_a_member_that_leaves_moves_only_its_own_when_none_is_shared(
    members: int, places: int, leaver: int
) -> None:
    before = shared(members, places)
    left = {name: mine for name, mine in before.items() if name != f"m{leaver % members:03}"}
    if not left or members > places:
        return
    order = list(range(places))
    after = assign(dict.fromkeys(left, order), left, order)
    assert all(left[name] <= after[name] for name in left)
