"""Committed offsets: one store for every client, the same fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import ClientError, KafkaClient, LineClient, Membership, NativeClient, having

committers = pytest.mark.parametrize("client", having("commit"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]
# Members of a test come one after the other; the usual three seconds are for those that start together.
BROKER_SCHEMES = ("text",)
BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}


@pytest.mark.slow
@committers
def test_what_one_client_commits_every_client_fetches_also_after_kill_9(
    client: Any, broker: BrokerProcess, kafka: KafkaClient, name: Names
) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 2)
    # An offset beyond the end of the log would be moved back to it.
    kafka.produce(topic, 0, [(None, b"value")] * 7)
    assert client.committed(group, topic, 0) is None
    client.commit(group, topic, 0, 5)
    client.commit(group, topic, 1, 0)
    client.commit(group, topic, 0, 7)
    for restart in (False, True):
        if restart:
            broker.kill()
            broker.start()
        for kind in (KafkaClient, NativeClient, LineClient):
            other = kind(broker)
            assert [other.committed(group, topic, p) for p in (0, 1)] == [7, 0], kind.name
            other.close()


@committers
def test_a_client_that_is_no_member_cannot_commit_for_one(
    client: Any, kafka: KafkaClient, name: Names
) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 1)
    member = kafka.join(group, [topic])
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.commit(group, topic, 0, 1, Membership(group, "nobody", member.generation))
    with pytest.raises(ClientError, match="ILLEGAL_GENERATION"):
        client.commit(group, topic, 0, 1, member._replace(generation=member.generation + 1))
    # Kafka's own word for it on the binary port; over HTTP the group's state is the better reason.
    with pytest.raises(ClientError, match=r"UNKNOWN_MEMBER_ID|NON_EMPTY_GROUP"):
        client.commit(group, topic, 0, 1)
    assert kafka.committed(group, topic, 0) is None
    client.commit(group, topic, 0, 9, member)
    assert client.committed(group, topic, 0) == 9
    kafka.leave(member)


@committers
def test_a_group_with_members_is_not_deleted(client: Any, kafka: KafkaClient, name: Names) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 1)
    member = kafka.join(group, [topic])
    client.commit(group, topic, 0, 3, member)
    with pytest.raises(ClientError, match="NON_EMPTY_GROUP"):
        client.delete_group(group)
    kafka.leave(member)
    client.delete_group(group)
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        client.delete_group(group)
    assert kafka.committed(group, topic, 0) is None
