"""Open Kafka connections end with their user, password or token: no answer more, and closed within a second."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.config import Config, Endpoint
from core.errors import ErrorCode
from core.listeners.connection import Last, RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.records.record import NewRecord
from tests.core.security.scram_client import ScramClient

from .conftest import Client

PASSWORD = "canary-of-a-password"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    supers = ("User:alice", "User:bob")
    return Config(
        data_dir=tmp_path, scram_iterations=4096, failed_authentication_delay_ms=0, super_users=supers
    )


@pytest.fixture
async def listener(broker: Broker) -> KafkaListener:
    await broker.users.create("alice", PASSWORD)
    await broker.users.create("bob", PASSWORD)
    made = KafkaListener(broker, HANDLERS)
    made.bound(Endpoint("kafka", "127.0.0.1", 9092, (("auth", "plain,scram-sha-256"),)))
    return made


async def logged_in(listener: KafkaListener, user: str, password: str = PASSWORD) -> Client:
    client = Client(listener)
    await client.ask(17, 1, SaslHandshakeRequest("PLAIN"))
    answer = await client.ask(36, 2, SaslAuthenticateRequest(f"\0{user}\0{password}".encode()))
    assert answer.error_code == 0
    return client


def is_over(client: Client) -> bool:
    """Whether the acceptor's next sweep closes the connection."""
    limits = client.session.authentication._limits
    return limits is not None and limits.ready_by <= client.listener.now()


async def test_a_deleted_user_gets_no_answer_more(listener: KafkaListener) -> None:
    alice, bob = [await logged_in(listener, name) for name in ("alice", "bob")]
    assert not is_over(alice)
    await listener.broker.users.delete("alice")
    assert is_over(alice) and not is_over(bob)
    with pytest.raises(RefusedError):
        await alice.newest(3, MetadataRequest([]))
    assert (await bob.newest(3, MetadataRequest([]))).brokers


async def test_a_changed_password_ends_the_logins_by_the_old_one_alone(listener: KafkaListener) -> None:
    broker = listener.broker
    _, text = await broker.tokens.create("alice", "", None)
    by_token, bob = await logged_in(listener, "alice", text), await logged_in(listener, "bob")
    by_plain, by_scram = await logged_in(listener, "alice"), Client(listener)
    await by_scram.ask(17, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
    scram = ScramClient("alice", PASSWORD, "sha256")
    first = await by_scram.ask(36, 2, SaslAuthenticateRequest(scram.first()))
    last = await by_scram.ask(36, 2, SaslAuthenticateRequest(scram.final(first.auth_bytes)))
    assert last.error_code == 0
    await broker.users.set_password("alice", "another password")
    assert [is_over(one) for one in (by_plain, by_scram, by_token, bob)] == [True, True, False, False]
    for one in (by_plain, by_scram):
        with pytest.raises(RefusedError):
            await one.newest(3, MetadataRequest([]))
    for one in (by_token, await logged_in(listener, "alice", "another password")):
        assert (await one.newest(3, MetadataRequest([]))).brokers


async def test_a_user_that_changes_its_credential_gets_an_answer_and_closed(listener: KafkaListener) -> None:
    alice = await logged_in(listener, "alice")
    change = ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"a" * 32)
    frame = encode_request_header(51, 0, 1, "test") + encode_request(
        51, 0, AlterUserScramCredentialsRequest(upsertions=[change])
    )
    working = alice.session.handle(memoryview(bytearray(frame)))
    assert not isinstance(working, list) and working is not None
    assert isinstance(await working, Last)  # type: ignore[misc]
    assert is_over(alice)


async def test_a_deleted_token_ends_its_connections_alone(listener: KafkaListener) -> None:
    info, text = await listener.broker.tokens.create("alice", "", None)
    by_token, by_password = await logged_in(listener, "alice", text), await logged_in(listener, "alice")
    await listener.broker.tokens.delete(info.token_id)
    assert is_over(by_token) and not is_over(by_password)
    with pytest.raises(RefusedError):
        await by_token.newest(3, MetadataRequest([]))


async def test_a_fetch_that_waits_brings_no_records_to_a_deleted_user(listener: KafkaListener) -> None:
    broker = listener.broker
    topic = await broker.topics.create("t", partitions=1)
    alice, bob = [await logged_in(listener, name) for name in ("alice", "bob")]
    wanted = FetchTopic("t", topic.topic_id, [FetchPartition(0, fetch_offset=0, partition_max_bytes=10_000)])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100_000, topics=[wanted])
    polls = [asyncio.create_task(one.newest(1, request)) for one in (alice, bob)]
    while len(broker.purgatory) < 2:
        await asyncio.sleep(0)
    await broker.users.delete("alice")
    await broker.records.produce("t", [NewRecord(value=b"secret")], partition=0)
    answers = await asyncio.gather(*polls, return_exceptions=True)
    assert isinstance(answers[0], RefusedError)
    assert not isinstance(answers[1], BaseException) and answers[1].responses[0].partitions[0].records


async def test_a_user_that_deletes_itself_gets_an_answer_and_closed(listener: KafkaListener) -> None:
    # By a token: the deletion of the first credential alone ends logins by password.
    alice = await logged_in(listener, "alice", (await listener.broker.tokens.create("alice", "", None))[1])
    for mechanism in (1, 2):
        request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("alice", mechanism)])
        header = encode_request_header(51, 0, mechanism, "test")
        frame = header + encode_request(51, 0, request)
        working = alice.session.handle(memoryview(bytearray(frame)))
        assert not isinstance(working, list) and working is not None
        answer = await working  # type: ignore[misc]
        assert isinstance(answer, Last) is (mechanism == 2)
    assert "alice" not in listener.broker.users and is_over(alice)


async def test_a_user_deleted_within_its_login_is_not_let_in(listener: KafkaListener) -> None:
    client = Client(listener)
    await client.ask(17, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
    scram = ScramClient("alice", PASSWORD, "sha256")
    first = await client.ask(36, 2, SaslAuthenticateRequest(scram.first()))
    await listener.broker.users.delete("alice")
    last = await client.ask(36, 2, SaslAuthenticateRequest(scram.final(first.auth_bytes)))
    assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_connection_that_ends_is_forgotten(listener: KafkaListener) -> None:
    alice = await logged_in(listener, "alice")
    assert len(listener.broker.logins) == 1
    alice.session.close()
    assert len(listener.broker.logins) == 0
