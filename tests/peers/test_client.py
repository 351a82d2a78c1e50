"""`core.client` against a real Apache Kafka: its versions, its logins, and what two releases of it answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from core.client.cluster import ClusterClient
from core.client.coordinators import CoordinatorKind
from core.client.failures import codes_of
from core.client.fetcher import Fetcher, Stretch
from core.client.links import ALONE
from core.client.offsets import EARLIEST, LATEST, list_offsets
from core.client.producer import Producer
from core.client.properties import client_settings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core.protocol.messages.end_txn import EndTxnRequest
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.aborted import AbortedRecords
from core.records.batch import batches, build_batch, read_records
from core.records.record import NewRecord
from core.types import TimestampOffset, TopicPartition
from tests.peers.kafka import KafkaProcess
from tests.tls import make_certificate

MIB = 2**20
USER, PASSWORD = "alice", "canary-of-a-password"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(params=["kafka", "kafka39"])
def peer(request: pytest.FixtureRequest) -> KafkaProcess:
    found: KafkaProcess = request.getfixturevalue(request.param)
    return found


async def opened(properties: dict[str, str]) -> ClusterClient:
    cluster = ClusterClient(client_settings(properties), Clock())
    await cluster.open()
    return cluster


@pytest.fixture
async def cluster(peer: KafkaProcess) -> AsyncIterator[ClusterClient]:
    made = await opened({"bootstrap.servers": peer.bootstrap})
    yield made
    await made.close()


async def create(cluster: ClusterClient, partitions: int = 1, **configs: str) -> str:
    """Create a topic; return its name once each partition has a leader."""
    name = f"client-{uuid.uuid4()}"
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 30_000)
    answer = await cluster.ask_controller(request)
    assert list(codes_of(answer)) == []
    async with asyncio.timeout(60):
        while True:
            await cluster.refresh([name])
            topic = cluster.topics.get(name)
            if topic and len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions):
                return name
            await asyncio.sleep(0.05)


def values(got: Stretch, offset: int = 0) -> list[bytes | None]:
    aborted = AbortedRecords(got.aborted)
    return [
        record.value
        for at, header in batches(got.data)
        if not aborted.hides(header)
        for record in read_records(got.data, at, header, max_bytes=MIB, first_offset=offset)
    ]


def of(*texts: bytes) -> list[NewRecord]:
    return [NewRecord(value=text) for text in texts]


async def test_records_there_and_back(cluster: ClusterClient) -> None:
    topic = await create(cluster, 2)
    tp = TopicPartition(topic, 1)
    told = asyncio.Event()
    producer, fetcher = Producer(cluster), Fetcher(cluster, lambda _: told.set())
    sent = [producer.send(tp, of(b"%d" % number), now_ms=1_000 + number) for number in range(100)]
    offsets = [(await one)[0].result for one in sent]
    assert [one and one.base_offset for one in offsets] == list(range(100))
    got = await fetcher.bring(tp, 0, max_bytes=MIB)
    assert values(got) == [b"%d" % number for number in range(100)] and got.next_offset == 100
    assert got.offsets[1:] == (100, 100, 100)
    found = await list_offsets(cluster, {tp: 1_050, TopicPartition(topic, 0): LATEST})
    assert found[tp] == TimestampOffset(1_050, 50, 0)
    assert found[TopicPartition(topic, 0)] == TimestampOffset(-1, 0, 0)
    for number in range(3):
        told.clear()
        assert (await producer.send(tp, of(b"later"), now_ms=1, acks=1))[0].error is None
        async with asyncio.timeout(60):
            await told.wait()
        more = fetcher.at_hand(tp, 100 + number, max_bytes=MIB)
        assert more is not None and values(more, 100 + number) == [b"later"]
    with pytest.raises(BrokerError) as caught:
        await fetcher.bring(tp, 500, max_bytes=MIB)
    assert caught.value.details == {"log_start_offset": 0, "high_watermark": 103}
    await producer.close()
    await fetcher.close()


async def test_what_the_leader_refuses(cluster: ClusterClient) -> None:
    topic = await create(cluster, 1, cleanup_policy="compact", max_message_bytes="1000")
    tp = TopicPartition(topic, 0)
    producer, fetcher = Producer(cluster), Fetcher(cluster)
    good, large = [NewRecord(key=b"k", value=b"x" * 200)], [NewRecord(key=b"k", value=b"y" * 2_000)]
    bad = [NewRecord(key=b"k", value=b"a"), NewRecord(value=b"no key")]
    sent = [producer.send(tp, one, now_ms=1) for one in (good, bad, good, large, *[good] * 10)]
    parts = [(await one)[0] for one in sent]
    codes = [part.error and part.error.code for part in parts]
    assert codes == [None, ErrorCode.INVALID_RECORD, None, ErrorCode.MESSAGE_TOO_LARGE, *[None] * 10]
    assert parts[1].error is not None
    assert [at for at, _ in parts[1].error.details["record_errors"]] == [1]  # type: ignore[attr-defined]
    assert [part.result.base_offset for part in parts if part.result] == list(range(12))
    got = await fetcher.bring(tp, 0, max_bytes=MIB)
    assert values(got) == [b"x" * 200] * 12
    missing = (await producer.send(TopicPartition("missing", 0), of(b"a"), now_ms=1))[0].error
    assert missing is not None and missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await producer.close()
    await fetcher.close()


async def test_many_batches_in_flight_keep_their_order(cluster: ClusterClient) -> None:
    """A refused batch among five under way: those after it get another producer id."""
    tp = TopicPartition(await create(cluster, 1, max_message_bytes="20000"), 0)
    producer, fetcher = Producer(cluster), Fetcher(cluster)
    raw = [build_batch(of(b"%d" % number), now_ms=1) for number in range(50)]
    raw[20] = build_batch(of(b"x" * 30_000), now_ms=1)
    sent = [producer.append(tp, batch) for batch in raw]
    results = await asyncio.gather(*sent, return_exceptions=True)
    refused = results.pop(20)
    assert isinstance(refused, BrokerError) and refused.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [one.base_offset for one in results] == list(range(49))  # type: ignore[union-attr]
    got = await fetcher.bring(tp, 0, max_bytes=MIB)
    assert values(got) == [b"%d" % number for number in range(50) if number != 20]
    await producer.close()
    await fetcher.close()


async def test_a_transaction_that_is_aborted_and_one_that_is_committed(cluster: ClusterClient) -> None:
    tp = TopicPartition(await create(cluster), 0)
    fetcher, producer = Fetcher(cluster), Producer(cluster)
    for number, commit in enumerate((False, True)):
        name = f"client-{uuid.uuid4()}"
        made = await cluster.ask_coordinator(
            name, InitProducerIdRequest(name, 60_000), kind=CoordinatorKind.TRANSACTION
        )
        assert made.error_code == 0
        own = made.producer_id, made.producer_epoch
        added = await cluster.ask_coordinator(
            name,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=own[0],
                v3_and_below_producer_epoch=own[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(tp.topic, [0])],
            ),
            kind=CoordinatorKind.TRANSACTION,
            newest=3,
        )
        assert list(codes_of(added)) == []
        batch = build_batch(
            of(b"%d" % number), now_ms=1, producer_id=own[0], producer_epoch=own[1], base_sequence=0,
            transactional=True,
        )  # fmt: skip
        data = TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(0, memoryview(batch))])
        produced = await cluster.ask(cluster.leader(tp), ProduceRequest(name, -1, 30_000, [data]), newest=11)
        assert list(codes_of(produced)) == []
        ended = await cluster.ask_coordinator(
            name, EndTxnRequest(name, *own, commit), kind=CoordinatorKind.TRANSACTION, newest=4
        )
        assert ended.error_code == 0
        await producer.send(tp, of(b"plain"), now_ms=1)
    for committed, expected in (
        (True, [b"plain", b"1", b"plain"]),
        (False, [b"0", b"plain", b"1", b"plain"]),
    ):
        offset, found = 0, list[bytes | None]()
        # The markers are written after the answer to EndTxn.
        async with asyncio.timeout(60):
            while offset < 6:
                got = await fetcher.bring(tp, offset, max_bytes=MIB, committed=committed)
                found += values(got, offset)
                offset = got.next_offset
                await asyncio.sleep(0.05)
        assert found == expected
    await fetcher.close()
    await producer.close()


async def test_a_topic_that_is_made_again_under_a_reader(cluster: ClusterClient) -> None:
    topic = await create(cluster)
    tp = TopicPartition(topic, 0)
    told = asyncio.Event()
    producer, fetcher = Producer(cluster), Fetcher(cluster, lambda _: told.set())
    assert (await producer.send(tp, of(b"old", b"old"), now_ms=1))[0].error is None
    assert values(await fetcher.bring(tp, 0, max_bytes=MIB)) == [b"old", b"old"]
    told.clear()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic)], topic_names=[topic], timeout_ms=30_000)
    assert list(codes_of(await cluster.ask_controller(request))) == []
    async with asyncio.timeout(60):
        await told.wait()
    settings = CreateTopicsRequest([CreatableTopic(topic, 1, 1, [], [])], 30_000)
    async with asyncio.timeout(60):
        while list(codes_of(await cluster.ask_controller(settings))):
            await asyncio.sleep(0.05)
    parts = await producer.send(tp, of(b"new"), now_ms=1)
    assert parts[0].result is not None and parts[0].result.base_offset == 0
    assert values(await fetcher.bring(tp, 0, max_bytes=MIB)) == [b"new"]
    await producer.close()
    await fetcher.close()


async def test_coordinators(cluster: ClusterClient) -> None:
    group = str(uuid.uuid4())
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    answer = await cluster.ask_coordinator(group, request, lane=ALONE, timeout_ms=60_000)
    assert ErrorCode(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED and answer.member_id
    request.member_id = answer.member_id
    answer = await cluster.ask_coordinator(group, request, lane=ALONE, timeout_ms=60_000)
    assert answer.error_code == 0 and answer.leader == answer.member_id
    assert await cluster.find_coordinator(group) in cluster.brokers


class Secured(KafkaProcess):
    """Kafka with a listener for TLS and logins, whose sessions last four seconds."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        certificate = make_certificate(directory)
        self.ca = certificate.file
        store = directory / "server.pem"
        store.write_text(certificate.key.read_text() + certificate.file.read_text())
        users = f'{_PLAIN} required user_{USER}="{PASSWORD}";'
        super().__init__(
            directory,
            listeners=("SECURE:SASL_SSL",),
            settings={
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.secure.plain.sasl.jaas.config": users,
                "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
                "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
                "connections.max.reauth.ms": "4000",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
            },
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    process = Secured(tmp_path_factory.mktemp("secured-kafka"))
    process.start()
    yield process
    process.kill()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_login_over_tls_that_is_renewed(secured: Secured, mechanism: str) -> None:
    plain = await opened({"bootstrap.servers": secured.bootstrap})
    await make_user(plain)
    await plain.close()
    properties = {
        "bootstrap.servers": f"127.0.0.1:{secured.ports['SECURE']}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(secured.ca),
    }
    cluster = await opened(properties)
    tp = TopicPartition(await create(cluster), 0)
    producer, fetcher = Producer(cluster), Fetcher(cluster)
    loop = asyncio.get_running_loop()
    begun, count = loop.time(), 0
    await fetcher.bring(tp, 0, max_bytes=MIB)
    links = {id(link) for link in cluster.links.open}
    while loop.time() - begun < 6:
        assert (await producer.send(tp, of(b"x"), now_ms=1))[0].error is None
        count += 1
        fetcher.at_hand(tp, 0, max_bytes=MIB)
        await asyncio.sleep(0.02)
    assert links <= {id(link) for link in cluster.links.open}, "no connection was lost"
    found = await list_offsets(cluster, {tp: LATEST})
    assert found[tp] == TimestampOffset(-1, count, 0)
    assert (await list_offsets(cluster, {tp: EARLIEST}))[tp] == TimestampOffset(-1, 0, 0)
    for one in (producer, fetcher, cluster):
        await one.close()  # type: ignore[attr-defined]
    with pytest.raises(BrokerError) as caught:
        await opened({**properties, "sasl.password": "wrong"})
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def make_user(cluster: ClusterClient) -> None:
    """Make the credentials of SCRAM, as `kafka-configs` does (KIP-554)."""
    from core.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from core.security.scram import Mechanism, salted_password

    salt = b"salt of the test"
    # As with Kafka's own tools, one credential at a time.
    for one in Mechanism:
        salted = salted_password(one, PASSWORD, salt, 4096)
        request = AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion(USER, one, 4096, salt, salted)]
        )
        assert list(codes_of(await cluster.ask_controller(request))) == []
