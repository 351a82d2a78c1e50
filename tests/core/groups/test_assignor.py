"""Assignments on behalf of members that cannot compute them: whole, even, in order, and sticky."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.groups.assignor import STRATEGIES, assign
from core.protocol.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from core.types import TopicPartition
from core.vocabulary.groups import JoinedMember
from core.vocabulary.member_metadata import assigned_partitions, assignment_of

PARTITIONS = {"t": 5, "u": 3}


def member(
    name: str, *topics: str, instance: str | None = None, owned: tuple[int, ...] = (), generation: int = -1
) -> JoinedMember:
    subscription = Subscription(
        list(topics), None, [TopicPartitions("t", list(owned))] if owned else [], generation
    )
    return JoinedMember(name, instance, encode_subscription(subscription, 2))


def run(
    protocol: str,
    *members: JoinedMember,
    previous: Mapping[str, bytes] | None = None,
    partitions: Mapping[str, int] = PARTITIONS,
) -> dict[str, list[str]]:
    assigned = assign(protocol, members, lambda topic: partitions.get(topic, 0), previous or {})
    return {name: [str(p) for p in sorted(assigned_partitions(blob))] for name, blob in assigned}


def had(**partitions: list[int]) -> dict[str, bytes]:
    return {name: assignment_of(TopicPartition("t", p) for p in given) for name, given in partitions.items()}


def test_range_gives_neighbours_and_the_extra_to_the_earlier() -> None:
    assert run("range", member("b", "t", "u"), member("a", "t", "u")) == {
        "a": ["t-0", "t-1", "t-2", "u-0", "u-1"],
        "b": ["t-3", "t-4", "u-2"],
    }


def test_range_is_the_rule_by_which_consumers_of_0_7_agreed() -> None:
    """Its text's example: three consumers, two brokers with three partitions each, sorted, in chunks."""
    places = [f"{broker}-{partition}" for broker in (0, 1) for partition in range(3)]
    assigned = run("range", *(member(name, "t") for name in "CAB"), partitions={"t": len(places)})
    by_place = {name: [places[int(p.removeprefix("t-"))] for p in given] for name, given in assigned.items()}
    assert by_place == {"A": ["0-0", "0-1"], "B": ["0-2", "1-0"], "C": ["1-1", "1-2"]}


@given(st.integers(0, 40), st.integers(1, 12))
def test_range_gives_chunks_of_neighbours_the_larger_ones_first(partitions: int, consumers: int) -> None:
    """0.7: each consumer gets partitions // consumers, and the first partitions % consumers get one more."""
    names = [f"c{number:02}" for number in range(consumers)]
    assigned = run("range", *(member(name, "t") for name in reversed(names)), partitions={"t": partitions})
    least, extra = divmod(partitions, consumers)
    start = 0
    for number, name in enumerate(names):
        size = least + (number < extra)
        assert sorted(int(p.removeprefix("t-")) for p in assigned[name]) == [*range(start, start + size)]
        start += size


def test_roundrobin_deals_like_cards() -> None:
    assert run("roundrobin", member("a", "t", "u"), member("b", "t")) == {
        "a": ["t-0", "t-2", "t-4", "u-0", "u-1", "u-2"],
        "b": ["t-1", "t-3"],
    }


def test_sticky_without_a_past_is_even_with_the_extra_to_the_earlier() -> None:
    assert {k: len(v) for k, v in run("sticky", member("b", "t"), member("a", "t")).items()} == {
        "a": 3,
        "b": 2,
    }


def test_sticky_leaves_partitions_where_they_are() -> None:
    previous = had(a=[1, 3], b=[0, 2, 4])
    assert run("sticky", member("a", "t"), member("b", "t"), previous=previous) == {
        "a": ["t-1", "t-3"],
        "b": ["t-0", "t-2", "t-4"],
    }
    with_a_new_one = run("sticky", member("a", "t"), member("b", "t"), member("c", "t"), previous=previous)
    assert with_a_new_one == {"a": ["t-1", "t-3"], "b": ["t-0", "t-2"], "c": ["t-4"]}


def test_sticky_gives_what_a_member_left_to_those_that_have_least() -> None:
    left = run("sticky", member("a", "t"), member("b", "t"), previous=had(a=[0], b=[1, 2], c=[3, 4]))
    assert left == {"a": ["t-0", "t-3", "t-4"], "b": ["t-1", "t-2"]}


def test_what_a_member_says_it_owns_counts_more_than_what_is_remembered() -> None:
    says = member("b", "t", owned=(0, 1))
    assert run("sticky", member("a", "t"), says, previous=had(a=[0, 1, 2]))["b"][:2] == ["t-0", "t-1"]


def test_of_two_owners_the_one_of_the_newer_generation_is_believed() -> None:
    old, new = member("a", "t", owned=(0, 1), generation=3), member("b", "t", owned=(0, 1), generation=4)
    assert run("sticky", old, new)["b"][:2] == ["t-0", "t-1"]


def test_cooperative_sticky_takes_before_it_gives() -> None:
    owner, new = member("a", "t", owned=(0, 1, 2, 3, 4)), member("b", "t")
    first = run("cooperative-sticky", owner, new)
    assert first == {"a": ["t-0", "t-1", "t-2"], "b": []}
    let_go = member("a", "t", owned=(0, 1, 2))
    assert run("cooperative-sticky", let_go, new) == {"a": ["t-0", "t-1", "t-2"], "b": ["t-3", "t-4"]}


def test_static_members_come_first_in_order_of_their_instance_ids() -> None:
    assert run("range", member("a", "u"), member("z", "u", instance="2"), member("y", "u", instance="1")) == {
        "y": ["u-0"],
        "z": ["u-1"],
        "a": ["u-2"],
    }


def test_members_get_nothing_of_topics_they_do_not_want_or_that_are_not_there() -> None:
    assert run("roundrobin", member("a", "nope"), member("b", "t")) == {
        "a": [],
        "b": ["t-0", "t-1", "t-2", "t-3", "t-4"],
    }


def test_an_unreadable_subscription_gets_nothing_and_harms_no_other() -> None:
    broken = JoinedMember("x", None, b"\0")
    assert run("range", broken, member("a", "u")) == {"x": [], "a": ["u-0", "u-1", "u-2"]}


def test_a_protocol_that_is_not_known_is_assigned_as_range() -> None:
    assert run("homemade", member("a", "t")) == run("range", member("a", "t"))


def test_an_unreadable_assignment_is_none() -> None:
    assert assigned_partitions(b"\0\0\0") == frozenset()
    assert assigned_partitions(b"") == frozenset()


TOPICS = ("p", "q", "r")
groups = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=8
)
counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})


@pytest.mark.parametrize("protocol", sorted(STRATEGIES))
@given(group=groups, partitions=counts, data=st.data())
def test_every_wanted_partition_has_one_owner_that_wants_it(
    protocol: str, group: dict[str, frozenset[str]], partitions: dict[str, int], data: st.DataObject
) -> None:
    existing = [TopicPartition(t, p) for t, count in partitions.items() for p in range(count)]
    past = {}
    for partition in existing:
        owner = data.draw(st.sampled_from([None, *group]))
        if owner is not None:
            past.setdefault(owner, []).append(partition)
    members = [member(name, *sorted(topics)) for name, topics in group.items()]
    previous = {name: assignment_of(had) for name, had in past.items()}
    assigned = assign(protocol, members, partitions.__getitem__, previous)
    owned = [(name, p) for name, blob in assigned for p in assigned_partitions(blob)]
    assert len({p for _, p in owned}) == len(owned)
    assert all(p.topic in group[name] for name, p in owned)
    wanted = {p for p in existing if any(p.topic in topics for topics in group.values())}
    assert {p for _, p in owned} == wanted
    if protocol in ("sticky", "cooperative-sticky"):
        sizes = {name: len(assigned_partitions(blob)) for name, blob in assigned}
        for name, partition in owned:
            assert all(sizes[name] - sizes[o] < 2 for o in group if partition.topic in group[o])


@pytest.mark.parametrize("protocol", sorted(STRATEGIES))
@given(
    names=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=9, unique=True),
    count=st.integers(0, 40),
)
def test_the_extra_partitions_go_to_the_earlier_members(protocol: str, names: list[str], count: int) -> None:
    assigned = assign(protocol, [member(n, "t") for n in names], lambda _: count, {})
    sizes = [len(assigned_partitions(blob)) for _, blob in assigned]
    assert [name for name, _ in assigned] == sorted(names)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@given(count=st.integers(0, 40), before=st.integers(1, 6), after=st.integers(1, 6))
def test_sticky_moves_no_more_than_it_must(count: int, before: int, after: int) -> None:
    first = assign("sticky", [member(f"m{n}", "t") for n in range(before)], lambda _: count, {})
    second = assign("sticky", [member(f"m{n}", "t") for n in range(after)], lambda _: count, dict(first))
    sizes = [len(assigned_partitions(blob)) for _, blob in second]
    kept = sum(
        len(assigned_partitions(blob) & assigned_partitions(dict(first).get(name, b"")))
        for name, blob in second
    )
    if after <= before:  # no member that stays has to give anything up
        assert kept == sum(len(assigned_partitions(blob)) for _, blob in first[:after])
    else:  # the newcomers get their share and nothing else moves
        assert count - kept == sum(sizes[before:])
