"""What routes need, handed to them: the broker, and the addresses that this process listens on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from app.requests import invalid_parameter
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
        # How the registration in ZooKeeper stands; None where there is to be none.
        self.zookeeper_state: Callable[[], str | None] = lambda: None
        self.endpoints: list[Endpoint] = []
        self.http_endpoints: list[Endpoint] = []
        # Changes of topics over HTTP run one after the other, so that nothing happens between an If-Match
        # and its change.
        self.topic_changes = asyncio.Lock()

    def current_broker(self) -> Broker:
        """The broker, for the lean routes."""
        return self.broker


async def gateway(request: Request) -> Gateway:
    """The gateway that this application was made with."""
    found = request.app.state.gateway
    assert isinstance(found, Gateway)
    return found


async def broker(request: Request) -> Broker:
    """The broker behind this application."""
    return (await gateway(request)).broker


async def known_parameters_only(request: Request) -> None:
    """Refuse a query parameter that the route does not take, or that stands twice: a typing error does harm.

    `?dry_ran=true` must not delete anything.
    """
    if not request.scope["query_string"]:
        return
    known = {one.alias for one in request.scope["route"].dependant.query_params}
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise invalid_parameter(
                name[:60], f"There is no parameter {name[:60]!r} here; known are: {takes}."
            )
        if name in seen:
            raise invalid_parameter(name, f"The parameter {name!r} stands there twice.")
        seen.add(name)


GatewayDep = Annotated[Gateway, Depends(gateway)]
BrokerDep = Annotated[Broker, Depends(broker)]
