"""What all HTTP surfaces share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from app.http.refusals import Refusals
from core.config import Config, Endpoint
from core.facade import Facade
from core.security.setup import SetupToken
from core.types import ApiSupport


class Shared:
    """What the HTTP surfaces share: the settings, the broker, refusals, and what the server knows.

    `protocol_versions` are the APIs of the Kafka listener. `endpoints` are the TCP listeners, a list that the server
    fills when it starts; `http_endpoints` are those of HTTP. `setup` is the token by which the
    first user is created.
    """

    def __init__(
        self,
        config: Config,
        broker: Facade,
        refusals: Refusals | None = None,
        *,
        protocol_versions: Callable[[], list[ApiSupport]] = list,
        endpoints: Sequence[Endpoint] = (),
        http_endpoints: Sequence[Endpoint] = (),
        setup: SetupToken | None = None,
    ) -> None:
        self.config = config
        self.broker = broker
        self.refusals = refusals or Refusals()
        self.protocol_versions = protocol_versions
        self.endpoints = endpoints
        self.http_endpoints = http_endpoints
        self.setup = setup
        # Changes of topics over HTTP run one after the other, so that nothing happens between an If-Match
        # and its change.
        self.topic_changes = asyncio.Lock()

    def current_broker(self) -> Facade:
        """Return the broker, for the lean routes."""
        return self.broker
