"""core.groups.target_assignment: even, sticky, complete."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from core.groups.target_assignment import ASSIGNORS, Subscriber, Target, assign

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def member(name: str, *topics: UUID, has: dict[UUID, frozenset[int]] | None = None) -> Subscriber:
    return Subscriber(name, (True, name), frozenset(topics), has or {})


def counts(target: Target) -> dict[str, int]:
    return {name: sum(len(numbers) for numbers in mine.values()) for name, mine in target.items()}


def moved(before: Target, after: Target) -> int:
    """Partitions that a member has now and did not have."""
    return sum(
        len(numbers - before.get(name, {}).get(topic, frozenset()))
        for name, mine in after.items()
        for topic, numbers in mine.items()
    )


def test_uniform_levels_members_and_moves_as_little_as_it_can() -> None:
    shapes = {A: 7, B: 5}
    first = assign("uniform", [member("a", A, B), member("b", A, B)], shapes)
    assert counts(first) == {"a": 6, "b": 6}
    joined = [member(n, A, B, has=dict(first.get(n, {}))) for n in "abc"]
    second = assign("uniform", joined, shapes)
    assert counts(second) == {"a": 4, "b": 4, "c": 4}
    assert moved(first, second) == 4
    left = [member(n, A, B, has=dict(second[n])) for n in "bc"]
    assert moved(second, assign("uniform", left, shapes)) == 4


def test_uniform_levels_different_subscriptions() -> None:
    target = assign("uniform", [member("a", A), member("b", A, B)], {A: 2, B: 4})
    assert target == {"a": {A: frozenset({0, 1})}, "b": {B: frozenset({0, 1, 2, 3})}}


def test_range_gives_the_same_numbers_of_each_topic() -> None:
    target = assign("range", [member("a", A, B), member("b", A, B)], {A: 4, B: 4})
    assert target["a"] == {A: frozenset({0, 1}), B: frozenset({0, 1})}
    again = assign(
        "range", [member(n, A, B, has=dict(target.get(n, {}))) for n in ("0", "a", "b")], {A: 4, B: 4}
    )
    # The new member comes last, whatever its name.
    assert again["a"] == {A: frozenset({0, 1}), B: frozenset({0, 1})}
    assert again["0"] == {A: frozenset({3}), B: frozenset({3})}


def test_what_does_not_exist_any_more_is_not_kept() -> None:
    has = {A: frozenset({0, 9}), C: frozenset({0})}
    assert assign("uniform", [member("a", A, B, has=has)], {A: 1, B: 1}) == {
        "a": {A: frozenset({0}), B: frozenset({0})}
    }


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from([A, B, C])), max_size=6),
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9)),
    st.sampled_from(list(ASSIGNORS)),
    st.data(),
)
def test_each_partition_that_a_member_wants_has_one_owner_that_wants_it(
    wanted: dict[str, set[UUID]], shapes: dict[UUID, int], assignor: str, data: st.DataObject
) -> None:
    before = assign(assignor, [member(n, *t) for n, t in wanted.items()], shapes)
    left = {n: t for n, t in wanted.items() if data.draw(st.booleans())}
    target = assign(assignor, [member(n, *t, has=dict(before[n])) for n, t in left.items()], shapes)
    given_out = [(t, p) for mine in target.values() for t, numbers in mine.items() for p in numbers]
    asked = {t for topics in left.values() for t in topics}
    assert sorted(given_out) == [(t, p) for t in sorted(asked) if t in shapes for p in range(shapes[t])]
    assert all(set(mine) <= left[name] for name, mine in target.items())
    loads = counts(target)
    if assignor == "uniform" and len({frozenset(t) for t in left.values()}) == 1:
        assert max(loads.values()) - min(loads.values()) <= 1
    # Nothing moves without a reason.
    again = assign(assignor, [member(n, *t, has=dict(target[n])) for n, t in left.items()], shapes)
    assert assignor != "uniform" or again == target
