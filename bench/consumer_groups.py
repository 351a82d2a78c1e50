"""What consumer groups of KIP-848 cost: a target for 1,000 members and 10,000 partitions, and a heartbeat.

python -m bench.consumer_groups
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from uuid import UUID

from core.errors import ErrorCode
from core.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings
from core.groups.effects import Moment
from core.groups.target_assignment import Subscriber, assign
from core.groups.topic_catalog import TopicCatalog
from core.vocabulary.consumer_groups import ConsumerHeartbeat

MEMBERS, PARTITIONS, BEATS = 1_000, 10_000, 20_000
NOW = Moment(1_000.0, 1_000_000)


def main() -> None:
    """Print a table of medians."""
    for topics in (1, 100, 10_000):
        _targets(topics)
    group = _group()
    request = ConsumerHeartbeat("m0", group.roster.members["m0"].epoch, client_id="c", client_host="/h")
    assert group.beat(request, NOW)[0].error is ErrorCode.NONE
    _report(f"heartbeat without a change, {MEMBERS} members", BEATS, lambda: group.beat(request, NOW))


def _targets(topics: int) -> None:
    shapes = {UUID(int=number + 1): PARTITIONS // topics for number in range(topics)}
    everything = frozenset(shapes)
    empty = [Subscriber(f"m{n}", (True, f"m{n}"), everything, {}) for n in range(MEMBERS)]
    for assignor in ("uniform", "range"):
        first = assign(assignor, empty, shapes)
        again = [one._replace(has=first[one.member_id]) for one in empty[1:]]
        _report(f"{assignor}, {topics} topics, new", 5, partial(assign, assignor, empty, shapes))
        _report(f"{assignor}, {topics} topics, a member left", 5, partial(assign, assignor, again, shapes))


def _group() -> ConsumerGroup:
    catalog = TopicCatalog([("t", UUID(int=1), PARTITIONS)])
    group = ConsumerGroup("g", ConsumerGroupSettings(assignment_interval=3_600.0), catalog)
    for number in range(MEMBERS):
        join = ConsumerHeartbeat(
            f"m{number}",
            0,
            topics=["t"],
            rebalance_timeout_ms=1_000,
            owned={},
            client_id="c",
            client_host="/h",
        )
        group.beat(join, NOW)
    return group


def _report(what: str, count: int, call: Callable[[], object]) -> None:
    times = []
    for _ in range(count):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    print(f"{what:45} {median(times) * 1e6:12.1f} µs")


if __name__ == "__main__":
    main()
