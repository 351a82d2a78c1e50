"""The committed offsets of one group as a collection, and which of them may go."""

from __future__ import annotations

import pytest

from core.groups.effects import OffsetsChange
from core.groups.group import Group, GroupSettings
from core.groups.offsets import GroupOffsets, expired
from core.vocabulary.groups import CommittedOffset, State

DAY = 86_400_000
RETENTION = 7 * DAY


def at(commit_ms: int = 0, expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(5, -1, "", commit_ms, expire_ms)


def group(
    state: State, protocol_type: str | None, topics: set[str] | None = None, empty_since: int = -1
) -> Group:
    made = Group("g", GroupSettings(3.0, 10))
    made.state, made.protocol_type, made.empty_since_ms = state, protocol_type, empty_since
    made.subscribed_topics = None if topics is None else frozenset(topics)
    return made


def test_changes_are_applied_in_both_directions() -> None:
    offsets = GroupOffsets()
    assert not offsets
    offsets.apply(OffsetsChange("g", [("t", 0, at(1)), ("t", 1, at(2)), ("u", 0, at(3))]))
    assert (offsets.get("t", 1), offsets.get("t", 2), offsets.get("v", 0)) == (at(2), None, None)
    assert sorted(offsets.topics()) == ["t", "u"] and offsets.topic("t") == {0: at(1), 1: at(2)}
    offsets.apply(OffsetsChange("g", [("t", 0, at(9))], [("u", 0), ("u", 7), ("v", 0)]))
    assert list(offsets) == [("t", 0, at(9)), ("t", 1, at(2))]
    offsets.apply(OffsetsChange("g", [], [("t", 0), ("t", 1)]))
    assert not offsets and offsets.topic("t") == {}


@pytest.mark.parametrize(
    ("of", "now", "gone"),
    [
        (group(State.EMPTY, None), RETENTION - 1, []),
        (group(State.EMPTY, None), RETENTION, ["t", "u"]),
        (group(State.EMPTY, "consumer", empty_since=DAY), RETENTION, []),
        (group(State.EMPTY, "consumer", empty_since=DAY), RETENTION + DAY, ["t", "u"]),
        (group(State.EMPTY, "consumer"), RETENTION, ["t", "u"]),
        (group(State.STABLE, "consumer", {"t"}), RETENTION, ["u"]),
        (group(State.STABLE, "consumer", None), RETENTION, []),
        (group(State.STABLE, "connect"), RETENTION, []),
        (group(State.PREPARING_REBALANCE, "consumer", {"t"}), RETENTION, []),
        (group(State.COMPLETING_REBALANCE, "consumer", {"t"}), RETENTION, []),
    ],
)
def test_an_offset_is_deleted_when_its_time_is_over_and_its_group_needs_it_no_more(
    of: Group, now: int, gone: list[str]
) -> None:
    offsets = GroupOffsets()
    offsets.apply(OffsetsChange("g", [("t", 0, at()), ("u", 0, at())]))
    assert [topic for topic, _ in expired(offsets, of, now, RETENTION)] == gone


def test_a_retention_of_its_own_counts_from_the_commit_on() -> None:
    offsets = GroupOffsets()
    offsets.apply(OffsetsChange("g", [("t", 0, at(expire_ms=DAY)), ("t", 1, at(expire_ms=30 * DAY))]))
    simple = group(State.EMPTY, None)
    assert expired(offsets, simple, DAY, RETENTION) == [("t", 0)]
    assert expired(offsets, simple, 29 * DAY, RETENTION) == [("t", 0)]
    reading = group(State.STABLE, "consumer", {"t"})
    assert expired(offsets, reading, 29 * DAY, RETENTION) == []
