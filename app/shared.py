"""What all HTTP surfaces share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from app.hosting import Served
from app.http.principal import caller_of, principal_of
from app.http.refusals import Refusals
from app.http.request import Scope
from core.config import Config, Endpoint
from core.facade import Facade
from core.security.guarded import Guarded
from core.security.oidc import OidcLogins
from core.security.sessions import Sessions
from core.security.setup import SetupToken
from core.security.tickets import StreamTickets
from core.transactions.long_transactions import CallersTransactions
from core.types import ApiSupport


class Shared:
    """What the HTTP surfaces share: the settings, the broker, refusals, and what the server knows.

    `protocol_versions` are the APIs of the Kafka listener. `endpoints` are the TCP listeners, a list that the server
    fills when it starts; `http_endpoints` are those of HTTP. `setup` is the token by which the
    first user is created. `sessions` are those of the console, `tickets` those of an EventSource, `oidc` its logins
    at an OpenID provider.
    """

    def __init__(
        self,
        config: Config,
        broker: Served,
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
        self.sessions = Sessions(broker.clock, broker.passwords)
        found = config.console_oidc
        self.oidc = None if found is None else OidcLogins(found, broker.jwts, broker.clock)
        self.tickets = StreamTickets(broker.clock, broker.passwords)
        # Changes of topics over HTTP run one after the other, so that nothing happens between an If-Match
        # and its change.
        self.topic_changes = asyncio.Lock()

    def current_broker(self) -> Facade:
        """Return the broker without a check of rights, for what is no request and for what callers share."""
        return self.broker

    def capabilities(self) -> frozenset[str]:
        """Return the names of what the broker can do."""
        return self.broker.capabilities

    def long_transactions(self, scope: Scope) -> CallersTransactions:
        """Return the transactions of several requests as the client of a request may use them."""
        return self.broker.long_transactions.of(self.acting(scope), principal_of(scope))

    def acting(self, scope: Scope) -> Guarded:
        """Return the broker as the client of a request may use it."""
        return self.broker.guards.of(caller_of(scope))
