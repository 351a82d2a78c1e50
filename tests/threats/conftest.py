"""A whole program in this process, with users, an HTTP listener and a Kafka listener that ask clients to log in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.core.listeners.kafka.conftest import Client

PORT = 8082
ADMIN, PASSWORD = "admin", "canary-of-a-password"
KAFKA_AUTH = (("auth", "plain,scram-sha-256,scram-sha-512"),)


class World:
    """The program. `admin` is its super user; other users begin without a right."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = ManualClock()
        config = Config(
            data_dir=data_dir, listeners=(), scram_iterations=4096, failed_authentication_delay_ms=0
        )
        endpoint = Endpoint("http", "127.0.0.1", PORT, (("auth", "basic,token"),))
        self.app = create_app(config, self.clock, http_endpoints=[endpoint])
        self.broker = self.app.server.broker
        self.listener = KafkaListener(self.broker, HANDLERS)
        self.listener.bound(Endpoint("kafka", "127.0.0.1", 9092, KAFKA_AUTH))
        transport = httpx.ASGITransport(app=self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}")
        self.tokens: dict[str, str] = {}

    async def add(self, user: str) -> str:
        """Create a user with a password and a token; return the token."""
        await self.broker.users.create(user, PASSWORD)
        _, self.tokens[user] = await self.broker.tokens.create(user, "", None)
        return self.tokens[user]

    async def allow(self, user: str, operation: Operation, kind: ResourceType, name: str) -> None:
        """Add a rule for one user and one name."""
        rule = Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
        assert await self.broker.acls.create([rule]) == [None]

    async def http(
        self, user: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        """Send a request as a user, by its token, under a request id that is always the same."""
        own = {"authorization": f"Bearer {self.tokens[user]}", "x-request-id": "the-same"}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await self.client.request(method, path, headers={**own, **headers}, **content)

    async def kafka(self, user: str, password: str | None = None) -> Client:
        """Log in over the Kafka listener by PLAIN, with the user's token unless there is a password."""
        client = Client(self.listener)
        await client.ask(17, 1, SaslHandshakeRequest("PLAIN"))
        token = f"\0{user}\0{password or self.tokens[user]}".encode()
        assert (await client.ask(36, 2, SaslAuthenticateRequest(token))).error_code == 0
        client.correlation_id = 0
        return client


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "data")
    async with made.app.lifespan():
        await made.add(ADMIN)
        yield made
        await made.client.aclose()
