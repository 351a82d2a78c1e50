"""SaslHandshake, SaslAuthenticate and raw frames on a Kafka listener: order, refusals, lifetimes, the end."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.errors import ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.security.acl import Operation, PatternType, ResourceType
from core.security.principal import ANONYMOUS, Principal
from core.vocabulary.users import ScopeRule
from tests.core.security.scram_client import ScramClient

from .conftest import Client

PASSWORD = "canary-of-a-password"
VERSIONS = ApiVersionsRequest("test", "1")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, scram_iterations=4096, failed_authentication_delay_ms=0)


@pytest.fixture
async def listener(broker: Broker) -> KafkaListener:
    await broker.users.create("alice", PASSWORD)
    await broker.users.create("bob", PASSWORD)
    made = KafkaListener(broker, HANDLERS)
    options = (("auth", "plain,scram-sha-256,scram-sha-512"),)
    made.bound(Endpoint("kafka", "127.0.0.1", 9092, options))
    return made


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.ask(17, version, SaslHandshakeRequest(mechanism))


async def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    return await client.ask(36, version, SaslAuthenticateRequest(token))


async def log_in(client: Client, user: str = "alice", password: str = PASSWORD) -> Any:
    await handshake(client)
    return await authenticate(client, f"\0{user}\0{password}".encode())


async def test_a_user_logs_in_and_is_known_as_itself(client: Client, config: Config) -> None:
    assert client.session.principal == ANONYMOUS
    assert (await client.ask(18, 3, VERSIONS)).error_code == 0
    offered = await handshake(client)
    assert (offered.error_code, offered.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    answer = await authenticate(client, f"\0alice\0{PASSWORD}".encode())
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 3_600_000)
    assert client.session.principal == Principal(name="alice")
    assert (await client.newest(3, MetadataRequest([]))).brokers


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
async def test_scram_over_requests(client: Client, mechanism: str, digest: str, version: int) -> None:
    await handshake(client, mechanism)
    scram = ScramClient("alice", PASSWORD, digest)
    first = await authenticate(client, scram.first(), version)
    assert first.error_code == 0 and client.session.principal == ANONYMOUS
    last = await authenticate(client, scram.final(first.auth_bytes), version)
    assert last.error_code == 0 and scram.verify(last.auth_bytes)
    assert client.session.principal == Principal(name="alice")


async def test_scram_over_raw_frames(client: Client) -> None:
    assert (await handshake(client, "SCRAM-SHA-256", version=0)).error_code == 0
    scram = ScramClient("alice", PASSWORD)
    first = await client.raw(scram.first())
    assert first is not None
    last = await client.raw(scram.final(first))
    assert last is not None and scram.verify(last)
    assert (await client.newest(3, MetadataRequest([]))).brokers


async def test_plain_over_raw_frames_is_answered_by_an_empty_frame(client: Client) -> None:
    await handshake(client, version=0)
    assert await client.raw(f"\0alice\0{PASSWORD}".encode()) == b""
    assert client.session.principal == Principal(name="alice")


async def test_a_wrong_password_over_raw_frames_has_no_answer(client: Client) -> None:
    await handshake(client, version=0)
    with pytest.raises(RefusedError):
        await client.raw(b"\0alice\0wrong")
    with pytest.raises(RefusedError):
        await client.raw(f"\0alice\0{PASSWORD}".encode())


async def test_all_failures_have_one_answer_which_is_the_last(listener: KafkaListener) -> None:
    texts = set()
    for token in (b"\0alice\0wrong", b"\0nobody\0wrong", b"bob\0alice\0" + PASSWORD.encode(), b"", b"\xff"):
        client = Client(listener)
        answer = await log_in_with(client, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        texts.add(answer.error_message)
        with pytest.raises(RefusedError):
            await client.ask(18, 3, VERSIONS)
    assert len(texts) == 1 and "alice" not in texts.pop()


async def log_in_with(client: Client, token: bytes) -> Any:
    await handshake(client)
    return await authenticate(client, token)


async def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(client: Client) -> None:
    answer = await handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    with pytest.raises(RefusedError):
        await handshake(client)


async def test_nothing_else_is_decoded_before(listener: KafkaListener) -> None:
    for key in [*sorted(set(HANDLERS) - {17, 18, 36}), 20_481, 32_035, 999]:
        # A header without a body: decoding the body would be a refusal for another reason.
        with pytest.raises(RefusedError, match="has not authenticated"):
            await Client(listener).raw(struct.pack(">hhihb", key, 0, 1, -1, 0))


async def test_tokens_before_a_handshake_and_versions_after_it_are_refused(listener: KafkaListener) -> None:
    with pytest.raises(RefusedError):
        await authenticate(Client(listener), f"\0alice\0{PASSWORD}".encode())
    client = Client(listener)
    await handshake(client)
    assert (await client.ask(18, 3, VERSIONS)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    client = Client(listener)
    await handshake(client)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(RefusedError):
        await handshake(client)


async def test_versions_may_be_asked_for_once_more_only_if_they_were_refused(client: Client) -> None:
    refused = await client.raw(struct.pack(">hhih", 18, 99, 1, -1))
    assert refused is not None and struct.unpack_from(">h", refused, 4) == (ErrorCode.UNSUPPORTED_VERSION,)
    assert (await client.ask(18, 3, ApiVersionsRequest("a b", "1"))).error_code == ErrorCode.INVALID_REQUEST
    assert (await client.ask(18, 3, VERSIONS)).error_code == 0
    with pytest.raises(RefusedError):
        await client.ask(18, 3, VERSIONS)


async def test_on_a_listener_without_authentication_there_is_no_sasl(broker: Broker) -> None:
    listener = KafkaListener(broker, HANDLERS)
    listener.bound(Endpoint("kafka", "127.0.0.1", 9092))
    client = Client(listener)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await authenticate(client, b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.newest(3, MetadataRequest([]))).brokers


async def test_a_session_ends_unless_the_client_logs_in_again(client: Client, clock: ManualClock) -> None:
    await log_in(client)
    clock.advance(3_599)
    assert (await client.newest(3, MetadataRequest([]))).brokers
    assert (await log_in(client)).session_lifetime_ms == 3_600_000
    clock.advance(3_599)
    assert (await client.newest(3, MetadataRequest([]))).brokers
    clock.advance(1)
    with pytest.raises(RefusedError, match="session is over"):
        await client.newest(3, MetadataRequest([]))


async def test_a_session_that_is_over_may_still_log_in_again(client: Client, clock: ManualClock) -> None:
    await log_in(client)
    clock.advance(4_000)
    assert (await log_in(client)).error_code == 0
    assert (await client.newest(3, MetadataRequest([]))).brokers


async def test_a_new_login_is_of_the_same_user(listener: KafkaListener, clock: ManualClock) -> None:
    client = Client(listener)
    await log_in(client)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE, "within a second"
    assert (await client.newest(3, MetadataRequest([]))).brokers
    clock.advance(2)
    await handshake(client)
    with pytest.raises(RefusedError):
        await client.newest(3, MetadataRequest([]))
    client = Client(listener)
    await log_in(client)
    clock.advance(2)
    assert (await log_in(client, "bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_token_is_a_password_and_ends_the_session_with_its_time(
    client: Client, broker: Broker, clock: ManualClock
) -> None:
    _, text = await broker.tokens.create("alice", "", 60_000)
    assert (await log_in(client, "alice", text)).session_lifetime_ms == 60_000
    clock.advance(60)
    with pytest.raises(RefusedError, match="session is over"):
        await client.newest(3, MetadataRequest([]))


async def test_a_token_as_a_password_has_its_scope(client: Client, broker: Broker) -> None:
    for name in ("orders-1", "secret"):
        await broker.topics.create(name)
    broker.authorizer.set_super_users(["User:alice"])
    rule = ScopeRule(Operation.READ, ResourceType.TOPIC, PatternType.PREFIXED, "orders-")
    _, text = await broker.tokens.create("alice", "", None, scope=(rule,))
    assert (await log_in(client, "alice", text)).error_code == 0
    seen = (await client.newest(3, MetadataRequest(None))).topics
    assert [topic.name for topic in seen] == ["orders-1"]
    asked = MetadataRequest([MetadataRequestTopic(name="secret")])
    denied = (await client.newest(3, asked)).topics
    assert [topic.error_code for topic in denied] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_without_a_longest_session_it_does_not_end(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "other").mkdir()
    broker = Broker(replace(Config(data_dir=tmp_path / "other"), max_reauth_ms=0), clock)
    await broker.open()
    await broker.users.create("alice", PASSWORD)
    listener = KafkaListener(broker, HANDLERS)
    listener.bound(Endpoint("kafka", "127.0.0.1", 9092, (("auth", "plain"),)))
    client = Client(listener)
    assert (await log_in(client)).session_lifetime_ms == 0
    clock.advance(10**6)
    assert (await client.newest(3, MetadataRequest([]))).brokers
    await broker.close()


async def test_frames_are_small_until_the_user_is_known(listener: KafkaListener, config: Config) -> None:
    session = listener.session()
    limits = session.connected("127.0.0.1", "127.0.0.1")
    assert limits is not None and limits.max_frame_bytes == 65_536
    assert limits.ready_by == listener.now() + 30
    client = Client(listener)
    client.session = session
    await log_in(client)
    assert limits.max_frame_bytes == config.max_frame_bytes and limits.ready_by == float("inf")
