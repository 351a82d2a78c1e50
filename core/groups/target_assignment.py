"""Assign the partitions of a consumer group to its members: the assignors of the broker (KIP-848).

- `uniform`: as even as the subscriptions allow; a member keeps the partitions that it has, up to its share.
- `range`: neighboring partitions, topic by topic; members that subscribe to the same topics get the same numbers of
  each of them, so that equal keys meet. A member keeps its place in the order.

Both work on *classes* of topics: topics with the same set of subscribers. Most groups have one class, and a class of
any size costs no more than the sum of its partitions and members. `uniform` takes the classes with few subscribers
first and levels the loads that members have so far; over several classes that is even in practice, not by proof.

Plain data in, plain data out: `assign` may run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from core.groups.reconciliation import MemberTarget

Target = dict[str, MemberTarget]


class Subscriber(NamedTuple):
    """A member as an assignor sees it: the topics that it subscribes to and that exist, and what it has now.

    `order` puts the members in order: equal groups get equal assignments.
    """

    member_id: str
    order: tuple[bool, str]
    topics: frozenset[UUID]
    has: MemberTarget


@dataclass(slots=True)
class _Class:
    """Topics with the same subscribers. `topics` are (id, number of partitions), the order of names."""

    subscribers: list[Subscriber]
    topics: list[tuple[UUID, int]]


_Shares = dict[str, dict[UUID, list[int]]]


def assign(assignor: str, subscribers: Iterable[Subscriber], topics: Mapping[UUID, int]) -> Target:
    """Return the partitions of each member. `topics` are partition counts, in the order of the topics' names.

    A topic that no member subscribes to is not assigned. An unknown assignor is `uniform`.
    """
    ordered = sorted(subscribers, key=lambda one: one.order)
    shares: _Shares = {one.member_id: {} for one in ordered}
    ASSIGNORS.get(assignor, _uniform)(_classes(ordered, topics), shares)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in mine.items() if numbers}
        for member_id, mine in shares.items()
    }


def _classes(subscribers: Sequence[Subscriber], topics: Mapping[UUID, int]) -> list[_Class]:
    """Return the classes of topics, those with the fewest subscribers first."""
    # Members of equal subscriptions are looked at once.
    kinds: dict[frozenset[UUID], list[int]] = {}
    for index, one in enumerate(subscribers):
        kinds.setdefault(one.topics, []).append(index)
    if len(kinds) == 1:
        (only,) = kinds
        found = [(topic_id, count) for topic_id, count in topics.items() if topic_id in only]
        return [_Class(list(subscribers), found)] if found else []
    by_kinds: dict[tuple[int, ...], list[tuple[UUID, int]]] = {}
    numbered = list(enumerate(kinds))
    for topic_id, count in topics.items():
        key = tuple(number for number, kind in numbered if topic_id in kind)
        if key:
            by_kinds.setdefault(key, []).append((topic_id, count))
    members = list(kinds.values())
    classes = [
        _Class([subscribers[i] for i in sorted(i for number in key for i in members[number])], found)
        for key, found in by_kinds.items()
    ]
    return sorted(classes, key=lambda one: len(one.subscribers))


def _uniform(classes: Sequence[_Class], shares: _Shares) -> None:
    loads = dict.fromkeys(shares, 0)
    for one in classes:
        counts = dict(one.topics)
        kept = {s.member_id: _valid(s, counts) for s in one.subscribers}
        quotas = _quotas(one, loads, kept)
        for member_id, quota in quotas.items():
            loads[member_id] += quota
        _fill(one, shares, _keep(one, shares, kept, quotas), quotas)


def _valid(subscriber: Subscriber, counts: Mapping[UUID, int]) -> int:
    """Return how many partitions of these topics a member has and may keep."""
    valid = 0
    for topic_id, numbers in subscriber.has.items():
        count = counts.get(topic_id, 0)
        valid += len(numbers) if max(numbers, default=-1) < count else sum(n < count for n in numbers)
    return valid


def _quotas(one: _Class, loads: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, int]:
    """Return how many partitions of a class each member gets, so that the loads become as equal as they can."""
    left = sum(count for _, count in one.topics)
    members = sorted(one.subscribers, key=lambda s: loads[s.member_id])
    # Raise the lowest loads together until all partitions are given out.
    level, active = loads[members[0].member_id], 0
    while active < len(members):
        following = loads[members[active].member_id]
        if (following - level) * active > left:
            break
        left -= (following - level) * active
        level = following
        active += 1
    level += left // active
    extra = left % active
    quotas = {s.member_id: max(0, level - loads[s.member_id]) for s in one.subscribers}
    # One more for those that have more than their share already, so that fewer partitions move.
    takers = sorted((s.member_id for s in members[:active]), key=lambda m: kept[m] <= quotas[m])
    for member_id in takers[:extra]:
        quotas[member_id] += 1
    return quotas


def _keep(
    one: _Class, shares: _Shares, kept: Mapping[str, int], quotas: dict[str, int]
) -> list[tuple[UUID, list[int]]]:
    """Let members keep what they have, up to their quota, which is reduced by it. Return what is free."""
    counts = dict(one.topics)
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in counts}
    for subscriber in one.subscribers:
        member_id = subscriber.member_id
        if not kept[member_id]:
            continue
        left = quotas[member_id]
        for topic_id, numbers in subscriber.has.items():
            count = counts.get(topic_id)
            if count is None or not left:
                continue
            mine = [n for n in sorted(numbers) if n < count and n not in taken[topic_id]][:left]
            if mine:
                shares[member_id][topic_id] = mine
                taken[topic_id].update(mine)
                left -= len(mine)
        quotas[member_id] = left
    return [
        (
            topic_id,
            [n for n in range(count) if n not in taken[topic_id]] if taken[topic_id] else list(range(count)),
        )
        for topic_id, count in one.topics
    ]


def _fill(
    one: _Class, shares: _Shares, free: Iterable[tuple[UUID, list[int]]], quotas: dict[str, int]
) -> None:
    """Give free partitions to the members whose quota is not used up, in their order."""
    waiting = iter([s.member_id for s in one.subscribers if quotas[s.member_id]])
    member_id, left = "", 0
    for topic_id, numbers in free:
        start = 0
        while start < len(numbers):
            if not left:
                member_id = next(waiting)
                left = quotas[member_id]
            some = numbers[start : start + left]
            shares[member_id].setdefault(topic_id, []).extend(some)
            left -= len(some)
            start += len(some)


def _range(classes: Sequence[_Class], shares: _Shares) -> None:
    for one in classes:
        counts = dict(one.topics)
        first = {s.member_id: _first_held(s, counts) for s in one.subscribers}
        members = sorted((s.member_id for s in one.subscribers), key=lambda m: first[m])
        for topic_id, count in one.topics:
            share, extra = divmod(count, len(members))
            start = 0
            for index, member_id in enumerate(members):
                end = start + share + (index < extra)
                if end == start:
                    break
                shares[member_id][topic_id] = list(range(start, end))
                start = end


def _first_held(subscriber: Subscriber, counts: Mapping[UUID, int]) -> float:
    """Return the place of a member in the order: the lowest number that it has; new members come last."""
    held = [min(numbers) for topic_id, numbers in subscriber.has.items() if numbers and topic_id in counts]
    return min(held, default=float("inf"))


# The names that a member may ask for; the first is the default.
ASSIGNORS: dict[str, Callable[[Sequence[_Class], _Shares], None]] = {"uniform": _uniform, "range": _range}
