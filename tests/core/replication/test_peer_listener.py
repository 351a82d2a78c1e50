"""Brokers over a listener of their own with mutual TLS: users are copied, and nothing else acts as a broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from core.config import Config, Endpoint, Peer, TlsSettings
from core.errors import ErrorCode
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.records.record import NewRecord
from core.replication.peer import PeerConnection, PeerError
from core.replication.peer_protocol import Item, Kind, Question
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import ANONYMOUS, Caller
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA, METADATA_ID
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.test_cluster_roles import refused

TP = TopicPartition("t", 0)
RULE = r"RULE:^CN=([^,]*),.*$/$1/"


class SecureBrokers(Brokers):
    """A cluster whose brokers have a listener of their own, on `ports`, and one for clients on any port."""

    def __init__(self, path: Path, count: int = 2, **settings: Any) -> None:
        super().__init__(path, count, peer_principal="User:broker-{id}", peer_timeout_ms=4_000, **settings)
        self.ca = trustme.CA()
        self._ca_file = path / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self._ca_file))
        self.tls = {number: self.certificate(f"broker-{number}") for number in self.ports}

    def certificate(self, name: str, *, ca: trustme.CA | None = None, host: str = "127.0.0.1") -> TlsSettings:
        """A certificate with a common name, in files."""
        issued = (ca or self.ca).issue_cert(host, common_name=name)
        file = self._path / f"{name}-{host}-{'other' if ca else 'own'}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        file.chmod(0o600)
        return TlsSettings("peers", file, file, self._ca_file, "required", RULE)

    def config(self, number: int) -> Config:
        """The settings of one broker."""
        own = Endpoint("peer", "127.0.0.1", self.ports[number], (("tls", "peers"),))
        listeners = (own, Endpoint("kafka", "127.0.0.1", 0))
        return replace(super().config(number), listeners=listeners, tls=(self.tls[number],))

    def kafka(self, number: int) -> int:
        """The port for clients."""
        return next(one.port for one in self.servers[number].endpoints if one.scheme == "kafka")

    def as_broker(
        self, number: int, tls: TlsSettings | None, *, to: int = 1, port: int = 0
    ) -> PeerConnection:
        """A connection that names itself broker `number`, with a certificate; without one in plain text."""
        config = replace(self.config(number), tls=(tls,) if tls is not None else ())
        if tls is None:
            config = replace(config, listeners=config.listeners[1:])
        return PeerConnection(Peer(to, "127.0.0.1", port or self.ports[to]), config)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[SecureBrokers]:
    """Two brokers of three; clients on the ordinary listener are super users."""
    brokers = SecureBrokers(tmp_path, 3, super_users=("User:ANONYMOUS",))
    await brokers.start(1, 2)
    try:
        await brokers.serving()
        await brokers.create("t", replicas=[1, 2], replication_factor=-1)
        yield brokers
    finally:
        await brokers.stop()


def fetch(brokers: Brokers, replica: int, offset: int, topic: str = "t") -> FetchRequest:
    """A fetch of a follower that claims to have everything below an offset."""
    broker = brokers[1]
    topic_id = METADATA_ID if topic == METADATA.topic else broker.topics.get(topic).topic_id
    epoch = broker.partitions.info(TopicPartition(topic, 0)).leader_epoch
    partition = FetchPartition(0, epoch, offset, -1, 0, 1_000_000)
    return FetchRequest(
        replica_state=ReplicaState(replica),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1_000_000,
        topics=[FetchTopic("", topic_id, [partition])],
    )


async def asks(connection: PeerConnection, key: int, version: int, message: Any) -> Any:
    try:
        return await connection.request(key, version, message)
    finally:
        await connection.wait_closed()


async def test_users_tokens_and_rules_work_on_a_promoted_broker(tmp_path: Path) -> None:
    rule = Acl(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    )  # fmt: skip
    async with SecureBrokers(tmp_path, 2) as brokers:
        first, second = brokers[1], brokers[2]
        await brokers.create("t")
        await first.users.create("alice", "secret of alice")
        assert first.authorizer.enabled
        _, token = await first.tokens.create("alice", "", None)
        assert await first.acls.create([rule]) == [None]
        await first.records.produce("t", [NewRecord(value=b"kept")], acks=-1)
        await brokers.stop(1)
        assert not any((await second.roles.lead_everything()).values())
        await brokers.serving(2)
        for password in ("secret of alice", token):
            identity = await second.passwords.check("alice", password, "127.0.0.1")
            assert identity is not None and str(identity.principal) == "User:alice"
        assert await second.passwords.check("alice", "wrong", "127.0.0.1") is None
        assert rule in second.authorizer and second.authorizer.enabled
        assert second.partitions.info(TP).offsets.high_watermark == 1
        assert b"secret of alice" not in b"".join(
            path.read_bytes() for path in tmp_path.glob("*/__cluster_metadata*/*.log")
        )


async def test_a_client_is_no_broker_not_even_a_super_user(two: SecureBrokers) -> None:
    """Threat 13: a forged replica id would move the in-sync set and the high watermark."""
    await two.stop(2)
    await two[1].records.produce("t", [NewRecord(value=b"alone")], acks=1)
    before = two[1].partitions.info(TP)
    for replica in (2, 3):
        stranger = two.as_broker(replica, None, port=two.kafka(1))
        answer = await asks(stranger, 1, 16, fetch(two, replica, 1))
        assert (answer.error_code, answer.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        answer = await asks(stranger, 1, 16, fetch(two, replica, 0, METADATA.topic))
        assert (answer.error_code, answer.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 1)])
        ends = await asks(stranger, 23, 4, OffsetForLeaderEpochRequest(replica, [asked]))
        assert ends.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        item = Item(METADATA_ID.bytes, 0, 32_000 + replica, 0)
        for kind in Kind:
            with pytest.raises(PeerError):
                await stranger.exchange(Question(kind, replica, [item]))
        await stranger.wait_closed()
    with pytest.raises(Exception, match="Cluster authorization failed"):
        two[1].guards.of(Caller(ANONYMOUS, "127.0.0.1")).roles.report_progress(TP, 2, 1)
    assert two[1].partitions.info(TP) == before
    assert before.offsets.high_watermark == 0 and before.leads and two[1].roles.metadata_leader == 1


async def test_a_consumer_reads_as_before_and_follower_epochs_need_no_proof_of_it(two: SecureBrokers) -> None:
    client = two.as_broker(2, None, port=two.kafka(1))
    asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 1)])
    ends = await asks(client, 23, 4, OffsetForLeaderEpochRequest(-1, [asked]))
    assert ends.topics[0].partitions[0].error_code == ErrorCode.NONE
    answer = await asks(client, 3, 12, MetadataRequest(topics=None))
    found = {broker.node_id: broker.port for broker in answer.brokers}
    assert found[1] == two.kafka(1) and two.ports[1] not in found.values()


async def test_a_certificate_of_no_broker_is_refused(two: SecureBrokers) -> None:
    for tls in (
        two.certificate("alice"),
        two.certificate("broker-1"),  # the broker that is asked is no peer of itself
        two.certificate("broker-9"),
        two.certificate("broker-2", ca=trustme.CA()),
    ):
        stranger = two.as_broker(2, tls)
        with pytest.raises(PeerError):
            await asks(stranger, 18, 3, ApiVersionsRequest())
    plain = two.as_broker(2, None, port=two.ports[1])
    with pytest.raises(PeerError):
        await asks(plain, 18, 3, ApiVersionsRequest())


async def test_a_broker_acts_for_itself_alone(two: SecureBrokers) -> None:
    """Threat 14: the certificate of broker 3 does not make it broker 2."""
    third = two.as_broker(3, two.tls[3])
    before = two[1].partitions.info(TP)
    answer = await asks(third, 1, 16, fetch(two, 2, 0))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(PeerError):
        await third.exchange(Question(Kind.VOTE, 2, [Item(METADATA_ID.bytes, 0, 32_002)]))
    answered = await third.exchange(Question(Kind.ASK, 3, [Item(METADATA_ID.bytes, 0)]))
    assert answered.broker_id == 1 and answered.states[0].leads
    own = await asks(third, 1, 16, fetch(two, 3, 0, METADATA.topic))
    assert own.error_code == ErrorCode.NONE and own.responses
    with pytest.raises(PeerError):  # an API for clients
        await asks(third, 3, 12, MetadataRequest(topics=None))
    assert two[1].partitions.info(TP).isr == before.isr and two[1].partitions.info(METADATA).leads


async def test_a_broker_does_not_talk_to_one_with_another_certificate(two: SecureBrokers) -> None:
    """Threat 14: an address that was taken over."""
    await two.stop(2)
    cases = {
        "its certificate is that of User:broker-3": two.certificate("broker-3", host="127.0.0.1"),
        "IP address mismatch": two.certificate("broker-2", host="localhost"),
        "self.signed|unable to get local issuer": two.certificate("broker-2", ca=trustme.CA()),
    }
    for reason, tls in cases.items():
        connected: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append(await reader.read(1))  # noqa: B023
            writer.close()

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(tls.certificate))
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerError, match=reason):
            await asks(two.as_broker(1, two.tls[1], to=2, port=port), 18, 3, ApiVersionsRequest())
        server.close()
        assert b"".join(connected) == b"", "nothing was sent"


async def test_a_topic_with_the_name_of_the_metadata_is_refused(two: SecureBrokers) -> None:
    """It would have taken the directory of the metadata log."""
    await refused(ErrorCode.INVALID_TOPIC_EXCEPTION, two[1].topics.create(METADATA.topic))
    await until(lambda: two[1].partitions.info(METADATA).leads)
