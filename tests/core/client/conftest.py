"""An embedded broker with a Kafka listener on loopback, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.client.cluster import ClusterClient
from core.client.settings import Address, ClientSettings, Secret
from core.clock import Clock
from core.config import Config, Endpoint, TlsSettings
from core.listeners.acceptor import Acceptor
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.security.tls import ServerCertificate
from tests.tls import Certificate


def text_of(value: str) -> Secret:
    """Return a secret that is always the same."""

    async def secret() -> str:
        return value

    return secret


class Served:
    """A broker on a port. `stop` closes its listener and all connections; `start` opens it on the same port."""

    def __init__(
        self,
        broker: Broker,
        options: tuple[tuple[str, str], ...] = (),
        certificate: Certificate | None = None,
    ) -> None:
        self.broker = broker
        self.port = 0
        self._options = options
        self._certificate = certificate
        self._acceptor: Acceptor | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    async def start(self) -> None:
        listener = KafkaListener(self.broker, HANDLERS)
        endpoint = Endpoint("kafka", "127.0.0.1", self.port, self._options)
        config, clock = self.broker.config, self.broker.clock
        certificate = None
        if self._certificate is not None:
            files = TlsSettings("default", self._certificate.file, self._certificate.key)
            certificate = ServerCertificate(files, config, clock)
            certificate.load()
        self._acceptor = Acceptor(endpoint, config, clock, listener, certificate=certificate)
        self._acceptor.bind()
        self.port = self._acceptor.endpoint.port
        await self._acceptor.start()

    async def stop(self) -> None:
        assert self._acceptor is not None
        await self._acceptor.stop()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    broker = Broker(Config(data_dir=tmp_path, drain_timeout_ms=10), Clock())
    await broker.open()
    one = Served(broker)
    await one.start()
    yield one
    await one.stop()
    await broker.close()


@pytest.fixture
def client_settings(served: Served) -> ClientSettings:
    return ClientSettings(bootstrap=(served.address,), client_id="test")


@pytest.fixture
async def cluster(client_settings: ClientSettings) -> AsyncIterator[ClusterClient]:
    client = ClusterClient(client_settings, Clock())
    await client.open()
    yield client
    await client.close()
