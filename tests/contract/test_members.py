"""Membership: members of different clients are one group; fences and errors agree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import ClientError, KafkaClient, LineClient, Membership, NativeClient, having

members = pytest.mark.parametrize("client", having("members"), indirect=True, ids=lambda d: d.name)
joiners = pytest.mark.parametrize("client", having("join"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]
# Members of a test come one after the other; the usual three seconds are for those that start together.
BROKER_SCHEMES = ("text",)
BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}


@joiners
def test_a_member_owns_all_beats_and_leaves(client: Any, kafka: KafkaClient, name: Names) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 4)
    member = client.join(group, [topic])
    assert client.owned(member) == {(topic, p) for p in range(4)}
    client.heartbeat(member)
    client.leave(member)
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.heartbeat(member)
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.leave(member)


@members
def test_generations_and_members_are_fenced(client: Any, kafka: KafkaClient, name: Names) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 1)
    member = client.join(group, [topic])
    with pytest.raises(ClientError, match="ILLEGAL_GENERATION"):
        client.heartbeat(member._replace(generation=member.generation + 1))
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.heartbeat(member._replace(member_id="nobody"))
    with pytest.raises(ClientError, match="UNKNOWN_MEMBER_ID"):
        client.join(group, [topic], member_id="never-given")
    client.leave(member)


@pytest.mark.slow
@pytest.mark.parametrize("first", [KafkaClient, NativeClient, LineClient], ids=lambda d: d.name)
@pytest.mark.parametrize("second", [KafkaClient, NativeClient, LineClient], ids=lambda d: d.name)
def test_members_of_two_protocols_share_a_topic_and_survive_kill_9(
    broker: BrokerProcess, kafka: KafkaClient, name: Names, first: type[Any], second: type[Any]
) -> None:
    group, topic = name(), name()
    kafka.create_topic(topic, 4)
    one, two = first(broker), second(broker)
    alone = one.join(group, [topic])
    arrived: list[Membership] = []
    joining = threading.Thread(target=lambda: arrived.append(two.join(group, [topic])))
    joining.start()
    _until_rebalance(one, alone)
    again = one.join(group, [topic], member_id=alone.member_id)
    joining.join(30)
    (other,) = arrived
    assert again.member_id == alone.member_id
    assert again.generation == other.generation > alone.generation
    shares = [one.owned(again), two.owned(other)]
    assert shares[0] | shares[1] == {(topic, p) for p in range(4)} and not shares[0] & shares[1]
    assert {len(share) for share in shares} == {2}
    with pytest.raises(ClientError, match="ILLEGAL_GENERATION"):
        one.commit(group, topic, 0, 1, alone)
    broker.kill()
    broker.start()
    one.close()
    two.close()
    one, two = first(broker), second(broker)
    one.heartbeat(again)
    two.heartbeat(other)
    assert [one.owned(again), two.owned(other)] == shares
    # The line protocol takes commits from a partition's owner alone.
    one.commit(group, topic, min(partition for _, partition in shares[0]), 1, again)
    one.leave(again)
    _until_rebalance(two, other)
    two.leave(two.join(group, [topic], member_id=other.member_id))
    one.close()
    two.close()


def _until_rebalance(client: Any, member: Membership) -> None:
    for _ in range(2000):
        try:
            client.heartbeat(member)
        except ClientError as refused:
            # The broker comes to the round for members that say lines: for them it is over already.
            assert refused.name in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION")
            return
        threading.Event().wait(0.01)
    raise AssertionError("no rebalance began")
