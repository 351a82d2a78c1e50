"""Each API in each version, asked by a client without a right, with those that it needs, and with each other one.

The answers themselves are compared with those of a real Kafka in tests/golden/test_kafka_4_1_acls.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.answer_errors import error_codes
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.handler import Need
from core.listeners.kafka.listener import KafkaListener
from core.protocol.apis import APIS
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.metadata import MetadataRequest
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.security.acl import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from core.security.principal import Principal
from core.types import TopicPartition

from .conftest import Client, produce_request
from .test_every_version import prepare, request_of

DENIED = {29, 30, 31, 53}
# What may not be seen is left out; so in DescribeLogDirs before version 3.
LISTS = {16, 66}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
# Rights that Kafka takes in the place of those in `Handler.needs`.
INSTEAD: dict[int, set[Need]] = {
    16: {(Operation.DESCRIBE, CLUSTER)},
    19: {(Operation.CREATE, CLUSTER)},
    20: {(Operation.DELETE, CLUSTER)},
    22: {(Operation.WRITE, TOPIC)},
    23: {(Operation.CLUSTER_ACTION, CLUSTER)},
    27: {(Operation.ALTER, CLUSTER)},
}
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
NEEDING = sorted(key for key, handler in HANDLERS.items() if handler.needs)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, super_users=("User:ANONYMOUS",))


@pytest.fixture
def alice(listener: KafkaListener) -> Client:
    made = Client(listener)
    made.session.act_as(Principal("User", "alice"))
    return made


def rule(operation: Operation, kind: ResourceType, permission: Permission = Permission.ALLOW) -> Acl:
    name = CLUSTER_NAME if kind is CLUSTER else "*"
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, permission)


async def allow(broker: Broker, *needs: Need) -> None:
    """Let alice have these rights, on any name, and no others."""
    await broker.acls.delete([AclFilter()])
    assert not any(await broker.acls.create([rule(*need) for need in needs]))


async def codes(client: Client, key: int, version: int, broker: Broker) -> set[int]:
    return set(error_codes(key, await client.ask(key, version, request_of(key, version, broker))))


@pytest.mark.parametrize("key", NEEDING, ids=lambda key: APIS[key].name)
async def test_each_version_is_denied_without_a_right_and_not_with_those_needed(
    client: Client, alice: Client, broker: Broker, key: int
) -> None:
    low, high = HANDLERS[key].versions
    for version in range(low, high + 1):
        await prepare(client, broker)
        await allow(broker)
        denied = await codes(alice, key, version, broker)
        if key in LISTS or (key == 35 and version < 3):
            assert not denied, version
        else:
            assert denied and denied <= DENIED, (version, denied)
        await allow(broker, *HANDLERS[key].needs)
        assert not await codes(alice, key, version, broker) & DENIED, version


@pytest.mark.parametrize("key", NEEDING, ids=lambda key: APIS[key].name)
async def test_no_other_right_is_enough(client: Client, alice: Client, broker: Broker, key: int) -> None:
    await prepare(client, broker)
    needs = HANDLERS[key].needs
    newest = HANDLERS[key].versions[1]
    for kind in (TOPIC, GROUP, CLUSTER, ResourceType.TRANSACTIONAL_ID):
        for operation in Operation:
            if operation in (Operation.ANY, Operation.ALL) or key in LISTS:
                continue
            right = (operation, kind)
            enough = any(
                kind is wanted and operation in {needed, *IMPLYING.get(needed, ())}
                for needed, wanted in needs
            )
            if right in INSTEAD.get(key, ()) or (enough and len(needs) == 1):
                continue
            await allow(broker, right)
            assert await codes(alice, key, newest, broker) & DENIED, right
    for right in INSTEAD.get(key, ()):
        await allow(broker, right)
        assert not await codes(alice, key, newest, broker) & DENIED, right


# --- single rules --------------------------------------------------------------------------------------------


async def test_what_exists_cannot_be_told_from_what_does_not(
    client: Client, alice: Client, broker: Broker
) -> None:
    """A denied client gets the same bytes for a topic that exists and for one that does not."""
    await client.create("here")
    await allow(broker)
    for key, fields in (
        (3, "topics"), (2, "topics"), (20, "topics"), (21, "topics"), (37, "topics"), (61, "topics"), (75, "topics"),
    ):  # fmt: skip
        answers = []
        for name in ("here", "gone"):
            request_type = APIS[key].request_type
            one: Any = {"name": name}
            if key == 2:
                one["partitions"] = [{"timestamp": -1}]
            elif key == 21:
                one["partitions"] = [{"offset": 0}]
            elif key == 37:
                one["count"] = 3
            elif key == 61:
                one["partition_indexes"] = [0]
            answers.append(
                repr(await alice.newest(key, msgspec.convert({fields: [one]}, request_type))).replace(
                    "gone", "here"
                )
            )
        assert answers[0] == answers[1], APIS[key].name


async def test_metadata_of_one_caller_is_not_given_to_another(
    client: Client, alice: Client, broker: Broker
) -> None:
    await client.create("secret")
    asked = MetadataRequest(topics=None)
    for _ in range(2):
        assert [topic.name for topic in (await client.newest(3, asked)).topics] == ["secret"]
        assert (await alice.newest(3, asked)).topics == []
    await allow(broker, (Operation.DESCRIBE, TOPIC))
    assert [topic.name for topic in (await alice.newest(3, asked)).topics] == ["secret"]
    await allow(broker)
    assert (await alice.newest(3, asked)).topics == []


async def test_a_fetch_that_waits_is_denied_when_its_right_is_taken(
    client: Client, alice: Client, broker: Broker
) -> None:
    await client.create("t")
    await allow(broker, (Operation.READ, TOPIC))
    asked = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1000)])],
    )
    waiting = asyncio.create_task(alice.ask(1, 12, asked))
    while not len(broker.purgatory):
        await asyncio.sleep(0)
    await broker.acls.create([rule(Operation.READ, TOPIC, Permission.DENY)])
    await client.produce("t", [b"hidden"])
    (topic,) = (await waiting).responses
    (partition,) = topic.partitions
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not partition.records


async def test_a_denied_produce_without_acks_closes_the_connection(
    client: Client, alice: Client, broker: Broker
) -> None:
    await client.create("t")
    await allow(broker)
    batch = bytes(build_batch([NewRecord(value=b"v")], now_ms=1))
    with pytest.raises(RefusedError):
        await alice.ask(0, 9, produce_request("t", batch, acks=0))
    assert broker.partitions.offsets(TopicPartition("t", 0)).log_end_offset == 0


async def test_a_denied_topic_harms_no_other_in_the_same_request(
    client: Client, alice: Client, broker: Broker
) -> None:
    await client.create("mine")
    await client.create("secret")
    await broker.acls.create(
        [Acl(TOPIC, "mine", PatternType.LITERAL, "User:alice", "*", Operation.WRITE, Permission.ALLOW)]
    )
    data = bytes(build_batch([NewRecord(value=b"v")], now_ms=1))
    request = produce_request("mine", data)
    request.topic_data += produce_request("secret", data).topic_data
    answer = await alice.ask(0, 9, request)
    assert [one.partition_responses[0].error_code for one in answer.responses] == [0, 29]


async def test_rules_are_there_after_a_restart(config: Config, client: Client, broker: Broker) -> None:
    made = rule(Operation.READ, TOPIC)
    assert await broker.acls.create([made, made]) == [None, None]
    await broker.close()
    again = Broker(config, broker.clock)
    await again.open()
    assert again.acls.describe(AclFilter()) == [made]
    assert await again.acls.delete([AclFilter()]) == [[made]]
    await again.close()


async def test_the_number_of_rules_is_limited(tmp_path: Path) -> None:
    broker = Broker(Config(data_dir=tmp_path, authorizer=True, max_acls=2), ManualClock())
    await broker.open()
    made = [rule(operation, TOPIC) for operation in (Operation.READ, Operation.WRITE, Operation.ALTER)]
    results = await broker.acls.create(made)
    assert [None if one is None else one.code for one in results] == [None, None, ErrorCode.INVALID_REQUEST]
    assert await broker.acls.create(made[:1]) == [None]
    await broker.close()


async def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    broker = Broker(Config(data_dir=tmp_path), ManualClock())
    await broker.open()
    with pytest.raises(BrokerError) as refused:
        broker.acls.describe(AclFilter())
    assert refused.value.code is ErrorCode.SECURITY_DISABLED
    await broker.close()
