"""The assignor of share groups, by Kafka's name "simple" (KIP-932).

Every partition that members subscribe to has at least one member, and every member that subscribes to a topic with
partitions has at least one partition. A partition has several members if there are more members than partitions.
What a member has stays with it as far as the balance allows.

Pure functions. Partitions and members are numbers and names in sorted order, so equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

Place = TypeVar("Place")


def assign(
    wanted: Mapping[str, Collection[Place]], before: Mapping[str, Collection[Place]], order: Sequence[Place]
) -> dict[str, set[Place]]:
    """Return the partitions of each member.

    `wanted` are the partitions that each member may read, `before` what each has, `order` all partitions in the order
    in which they are given out. Members with the same partitions to choose from share them evenly.
    """
    assigned: dict[str, set[Place]] = {member: set() for member in wanted}
    pools: dict[frozenset[Place], list[str]] = {}
    for member in sorted(wanted):
        pools.setdefault(frozenset(wanted[member]), []).append(member)
    for pool, members in pools.items():
        if pool:
            places = [place for place in order if place in pool]
            _share_out(places, members, before, assigned)
    return assigned


def _share_out(
    places: Sequence[Place],
    members: Sequence[str],
    before: Mapping[str, Collection[Place]],
    assigned: dict[str, set[Place]],
) -> None:
    """Give the partitions of one pool to its members.

    Each partition has ⌈members / partitions⌉ members at most, so that a place for every member is there.
    """
    sharing = -(-len(members) // len(places))
    least, extra = divmod(len(places) * sharing, len(members))
    counts = dict.fromkeys(places, 0)
    # Members that have much keep much: they get the quotas that are larger by one.
    quotas: dict[str, int] = {}
    for rank, member in enumerate(sorted(members, key=lambda one: (-len(before.get(one, ())), one))):
        quotas[member] = min(least + (rank < extra), len(places))
    for member in members:
        kept = assigned[member]
        had = before.get(member, ())
        for place in places:
            if len(kept) == quotas[member]:
                break
            if place in had and counts[place] < sharing:
                kept.add(place)
                counts[place] += 1
    # The partitions with the fewest members first; each list is in order, and a partition moves up with each member.
    levels: list[dict[Place, None]] = [{} for _ in range(sharing + 1)]
    for place in places:
        levels[counts[place]][place] = None
    for member in members:
        _fill(assigned[member], quotas[member], levels)
    for place in list(levels[0]):
        # Its members are at their quotas with partitions that they share with others.
        member = min(members, key=lambda one: (len(assigned[one]), one))
        assigned[member].add(place)


def _fill(mine: set[Place], quota: int, levels: Sequence[dict[Place, None]]) -> None:
    """Give a member partitions up to its quota, those with the fewest members first."""
    for level in range(len(levels) - 1):
        for place in [one for one in levels[level] if one not in mine][: max(quota - len(mine), 0)]:
            mine.add(place)
            del levels[level][place]
            levels[level + 1][place] = None
        if len(mine) >= quota:
            return
