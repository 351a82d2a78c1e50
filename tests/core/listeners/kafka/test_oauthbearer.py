"""SASL/OAUTHBEARER on a Kafka listener: which tokens let in, for how long, and what a refusal is."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.security.principal import ANONYMOUS, Principal
from tests.issuer import Issuer, bad_tokens

from .conftest import Client


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    async with Issuer(lambda: clock.wall_ms() / 1000).served() as made:
        yield made


@pytest.fixture
def config(tmp_path: Path, issuer: Issuer) -> Config:
    return Config(data_dir=tmp_path, failed_authentication_delay_ms=0, oauth=(issuer.settings,))


@pytest.fixture
async def listener(broker: Broker) -> KafkaListener:
    made = KafkaListener(broker, HANDLERS)
    made.bound(Endpoint("kafka", "127.0.0.1", 9092, (("auth", "oauthbearer"),)))
    return made


def first(token: str, authzid: str = "", more: str = "") -> bytes:
    return f"n,{authzid and 'a='}{authzid},\x01auth=Bearer {token}\x01{more}\x01".encode()


async def log_in(client: Client, message: bytes) -> Any:
    assert (await client.ask(17, 1, SaslHandshakeRequest("OAUTHBEARER"))).mechanisms == ["OAUTHBEARER"]
    return await client.ask(36, 2, SaslAuthenticateRequest(message))


async def test_a_token_lets_in_until_it_expires(client: Client, issuer: Issuer, clock: ManualClock) -> None:
    answer = await log_in(client, first(issuer.mint(), "alice", "traceId=7\x01"))
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 600_000)
    assert client.session.principal == Principal(name="alice")
    assert (await client.newest(3, MetadataRequest([]))).brokers
    # KIP-368: a later token of the same user.
    clock.advance(500)
    assert (await log_in(client, first(issuer.mint()))).session_lifetime_ms == 600_000
    clock.advance(599)
    assert (await client.newest(3, MetadataRequest([]))).brokers
    clock.advance(1)
    with pytest.raises(RefusedError, match="session is over"):
        await client.newest(3, MetadataRequest([]))


async def test_another_user_cannot_take_a_connection_over(
    client: Client, issuer: Issuer, clock: ManualClock
) -> None:
    await log_in(client, first(issuer.mint()))
    clock.advance(2)
    answer = await log_in(client, first(issuer.mint(sub="bob")))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_bad_tokens_are_refused_as_the_rfc_says(listener: KafkaListener, issuer: Issuer) -> None:
    texts = set()
    for name, token in bad_tokens(issuer).items():
        client = Client(listener)
        answer = await log_in(client, first(token))
        if answer.error_code == 0:
            assert answer.auth_bytes == b'{"status":"invalid_token"}', name
            assert client.session.principal == ANONYMOUS
            answer = await client.ask(36, 2, SaslAuthenticateRequest(b"\x01"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, name
        assert client.session.principal == ANONYMOUS, name
        texts.add(answer.error_message)
        with pytest.raises(RefusedError):
            await client.newest(3, MetadataRequest([]))
    assert len(texts) == 1


async def test_raw_frames(listener: KafkaListener, issuer: Issuer) -> None:
    client = Client(listener)
    await client.ask(17, 0, SaslHandshakeRequest("OAUTHBEARER"))
    assert await client.raw(first(issuer.mint())) == b""
    assert client.session.principal == Principal(name="alice")
    client = Client(listener)
    await client.ask(17, 0, SaslHandshakeRequest("OAUTHBEARER"))
    assert await client.raw(first(issuer.mint(aud="x"))) == b'{"status":"invalid_token"}'
    with pytest.raises(RefusedError):
        await client.raw(b"\x01")
