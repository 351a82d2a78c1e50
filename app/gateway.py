"""What all HTTP surfaces share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.broker.broker import Broker
from core.config import Config, Endpoint
from core.types import ApiSupport


class Gateway:
    """What the HTTP surfaces share: the settings, the broker once it is open, the addresses really bound."""

    def __init__(self, config: Config, broker: Broker) -> None:
        self.config = config
        self.broker = broker
        # What the Kafka door serves: the server's to say.
        self.protocol_versions: Callable[[], list[ApiSupport]] = list
        self.endpoints: list[Endpoint] = []
        self.http_endpoints: list[Endpoint] = []
        # Changes of topics over HTTP run one after the other, so that nothing happens between an If-Match
        # and its change.
        self.topic_changes = asyncio.Lock()

    def current_broker(self) -> Broker:
        """The broker, for the lean routes."""
        return self.broker
