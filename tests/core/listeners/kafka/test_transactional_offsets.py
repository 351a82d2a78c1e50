"""TxnOffsetCommit in every version, and OffsetFetch while a transaction is open."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.config import Config, Endpoint
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import Principal
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.transactions import ProducerIdAndEpoch
from tests.core.listeners.kafka.conftest import Client
from tests.core.listeners.kafka.test_groups import member

T = TypeVar("T")

FETCH, TXN_COMMIT = 9, 28
NIL = UUID(int=0)
SETTINGS = {"group_initial_rebalance_delay_ms": 0}
OK, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
TRANSACTIONAL_ID, GROUP, TOPIC = ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP, ResourceType.TOPIC


class Transactions:
    """A coordinator of one producer. `error` is what it says of it; `begun` counts the requests that may begin."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.begun = 0

    available = True

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        return True

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        assert (transactional_id, *producer) == ("id", 7, 3)
        if self.error:
            raise BrokerError(self.error, "no")
        self.begun += begins
        return await work()


@pytest.fixture
def config(tmp_path: Path, settings: dict[str, Any]) -> Config:
    return Config(data_dir=tmp_path, super_users=("User:ANONYMOUS",), **settings)


@pytest.fixture
def transactions() -> Transactions:
    return Transactions()


@pytest.fixture
def listener(broker: Broker, transactions: Transactions, monkeypatch: pytest.MonkeyPatch) -> KafkaListener:
    monkeypatch.setattr(broker, "transactions", transactions)
    made = KafkaListener(broker, HANDLERS)
    made.bound(Endpoint("kafka", "127.0.0.1", 9092))
    return made


@pytest.fixture
async def client(listener: KafkaListener) -> Client:
    made = Client(listener)
    await made.create("t", 2)
    await made.create("u", 1)
    return made


def request(*topics: tuple[str, int, int], **member: Any) -> TxnOffsetCommitRequest:
    """(topic, partition, offset) of group g, in the transaction of id."""
    named = [
        TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(partition, offset, 4, "note")])
        for name, partition, offset in topics
    ]
    return TxnOffsetCommitRequest("id", "g", 7, 3, topics=named, **member)


async def commit(client: Client, version: int, asked: TxnOffsetCommitRequest) -> list[int]:
    answer = await client.ask(TXN_COMMIT, version, asked)
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics] == [
        (t.name, [p.partition_index for p in t.partitions]) for t in asked.topics
    ]
    return [p.error_code for t in answer.topics for p in t.partitions]


async def end(broker: Broker) -> None:
    settlement = broker.groups.settle_transaction(7, 3, True)
    await broker.store.submit(settlement.effects)
    settlement.apply()


async def fetch(
    client: Client, version: int, *, stable: bool, everything: bool = False
) -> list[tuple[int, ...]]:
    topic_id = client.listener.broker.topics.get("t").topic_id if version >= 10 else NIL
    by_id = None if everything else [OffsetFetchRequestTopics("t", topic_id, [0, 1])]
    named = None if everything else [OffsetFetchRequestTopic("t", [0, 1])]
    groups = [OffsetFetchRequestGroup("g", None, -1, by_id)]
    answer = await client.ask(FETCH, version, OffsetFetchRequest("g", named, groups, stable))
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return [(p.partition_index, p.committed_offset, p.error_code) for t in topics for p in t.partitions]


@pytest.mark.parametrize("version", range(6))
async def test_an_offset_of_each_version_is_committed_with_the_transaction(
    client: Client, broker: Broker, transactions: Transactions, version: int
) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 5)]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = request(("t", 0, 9), ("nope", 0, 1), ("t", 1, 8), ("t", 2, 1))
    assert await commit(client, version, asked) == [OK, unknown, OK, unknown]
    assert transactions.begun == (version >= 5)
    assert await fetch(client, 8, stable=False) == [(0, 5, OK), (1, -1, OK)]
    await end(broker)
    assert await fetch(client, 8, stable=True) == [(0, 9, OK), (1, 8, OK)]
    found = broker.groups.committed("g", "t", 0)
    assert found is not None and (found.leader_epoch, found.metadata) == (4 if version >= 2 else -1, "note")


@pytest.mark.parametrize("version", range(7, 11))
async def test_a_reader_of_stable_offsets_waits_for_the_transaction(
    client: Client, broker: Broker, version: int
) -> None:
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 5), Commit("t", 1, 6)]))
    assert await fetch(client, version, stable=True) == [(0, 5, OK), (1, 6, OK)]
    assert await commit(client, 3, request(("t", 0, 9))) == [OK]
    for everything in (False, True):
        assert await fetch(client, version, stable=True, everything=everything) == [
            (0, -1, UNSTABLE),
            (1, 6, OK),
        ]
        assert await fetch(client, version, stable=False, everything=everything) == [(0, 5, OK), (1, 6, OK)]
    await end(broker)
    assert await fetch(client, version, stable=True) == [(0, 9, OK), (1, 6, OK)]


async def test_versions_from_3_on_are_fenced_by_the_member(client: Client) -> None:
    name = await member(client)
    assert await commit(client, 2, request(("t", 0, 9))) == [OK]
    as_member = {"generation_id": 1, "member_id": name}
    assert await commit(client, 3, request(("t", 0, 9), **as_member)) == [OK]
    old = request(("t", 0, 9), generation_id=0, member_id=name)
    assert await commit(client, 3, old) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize(
    ("error", "told", "first"),
    [
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, 0),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, 0),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, 0),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2),
    ],
)
async def test_what_the_coordinator_refuses_is_not_staged(
    client: Client, transactions: Transactions, error: ErrorCode, told: ErrorCode, first: int
) -> None:
    transactions.error = error
    for version in range(first, 6):
        assert await commit(client, version, request(("t", 0, 9), ("u", 0, 1))) == [told, told]
    for version in range(first):
        assert await commit(client, version, request(("t", 0, 9))) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert transactions.begun == 0
    assert client.listener.broker.groups.describe("g") is None


async def test_rights_are_looked_at_in_the_order_of_kafka(
    client: Client, broker: Broker, transactions: Transactions
) -> None:
    alice = Client(client.listener)
    alice.session.act_as(Principal("User", "alice"))

    async def allow(operation: Operation, kind: ResourceType, name: str) -> None:
        rule = Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        assert not any(await broker.acls.create([rule]))

    # The first rule switches the authorizer on.
    await allow(Operation.READ, TOPIC, "u")
    asked = request(("t", 0, 9), ("u", 0, 8))
    assert set(await commit(alice, 5, asked)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    await allow(Operation.WRITE, TRANSACTIONAL_ID, "id")
    assert set(await commit(alice, 5, asked)) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert transactions.begun == 0
    await allow(Operation.READ, GROUP, "g")
    assert await commit(alice, 5, asked) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, OK]
    await end(broker)
    assert [one[:2] for one in broker.groups.all_committed("g")] == [("u", 0)]
    with pytest.raises(BrokerError) as error:
        alice.session.broker.groups.is_unstable("g", "t", 0)
    assert error.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
