"""Topics: create, grow, configure, delete; the same rules at every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.doors import DoorError, KafkaDoor, having

topics = pytest.mark.parametrize("door", having("topics"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]


@topics
def test_a_topic_made_at_one_door_is_there_at_the_others(door: Any, kafka: KafkaDoor, name: Names) -> None:
    topic = name()
    door.create_topic(topic, 3, {"retention.ms": "123456"})
    for one in (door, kafka):
        assert one.partitions(topic) == 3
        assert one.config(topic)["retention.ms"] == "123456"
    door.grow(topic, 5)
    assert kafka.partitions(topic) == 5
    door.delete_topic(topic)
    for one in (door, kafka):
        with pytest.raises(DoorError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            one.partitions(topic)


@topics
@pytest.mark.parametrize(
    ("topic", "partitions", "configs", "error"),
    [
        ("sp%20ace", 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("good", 2**31 - 1, {}, "INVALID_PARTITIONS"),
        ("good", 1, {"no.such.config": "1"}, "INVALID_CONFIG"),
        ("good", 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("good", 1, {"cleanup.policy": "shred"}, "INVALID_CONFIG"),
    ],
)
def test_what_one_door_refuses_the_others_refuse(
    door: Any, topic: str, partitions: int, configs: dict[str, str], error: str
) -> None:
    with pytest.raises(DoorError, match=error):
        door.create_topic(topic, partitions, configs)


@topics
def test_a_topic_shrinks_at_no_door(door: Any, name: Names) -> None:
    topic = name()
    door.create_topic(topic, 3)
    with pytest.raises(DoorError, match="INVALID_PARTITIONS"):
        door.grow(topic, 2)
    with pytest.raises(DoorError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        door.grow(name(), 2)
    with pytest.raises(DoorError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        door.delete_topic(name())
