"""Committed offsets: one store for every door, the same fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.doors import DoorError, KafkaDoor, Membership, NativeDoor, TextDoor, having

committers = pytest.mark.parametrize("door", having("commit"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]
# Members of a test come one after the other; the usual three seconds are for those that start together.
BROKER_SCHEMES = ("text",)
BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}


@committers
def test_what_one_door_commits_every_door_fetches_also_after_kill_9(
    door: Any, broker: BrokerProcess, kafka: KafkaDoor, name: Names
) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 2)
    # An offset beyond the end of the log would be moved back to it.
    kafka.produce(topic, 0, [(None, b"value")] * 7)
    assert door.committed(group, topic, 0) is None
    door.commit(group, topic, 0, 5)
    door.commit(group, topic, 1, 0)
    door.commit(group, topic, 0, 7)
    for restart in (False, True):
        if restart:
            broker.kill()
            broker.start()
        for kind in (KafkaDoor, NativeDoor, TextDoor):
            other = kind(broker)
            assert [other.committed(group, topic, p) for p in (0, 1)] == [7, 0], kind.name
            other.close()


@committers
def test_who_is_no_member_cannot_commit_for_one(door: Any, kafka: KafkaDoor, name: Names) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 1)
    member = kafka.join(group, [topic])
    with pytest.raises(DoorError, match="UNKNOWN_MEMBER_ID"):
        door.commit(group, topic, 0, 1, Membership(group, "nobody", member.generation))
    with pytest.raises(DoorError, match="ILLEGAL_GENERATION"):
        door.commit(group, topic, 0, 1, member._replace(generation=member.generation + 1))
    # Kafka's own word for it on the binary port; over HTTP the group's state is the better reason.
    with pytest.raises(DoorError, match=r"UNKNOWN_MEMBER_ID|NON_EMPTY_GROUP"):
        door.commit(group, topic, 0, 1)
    assert kafka.committed(group, topic, 0) is None
    door.commit(group, topic, 0, 9, member)
    assert door.committed(group, topic, 0) == 9
    kafka.leave(member)


@committers
def test_a_group_with_members_is_not_deleted(door: Any, kafka: KafkaDoor, name: Names) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 1)
    member = kafka.join(group, [topic])
    door.commit(group, topic, 0, 3, member)
    with pytest.raises(DoorError, match="NON_EMPTY_GROUP"):
        door.delete_group(group)
    kafka.leave(member)
    door.delete_group(group)
    with pytest.raises(DoorError, match="GROUP_ID_NOT_FOUND"):
        door.delete_group(group)
    assert kafka.committed(group, topic, 0) is None
