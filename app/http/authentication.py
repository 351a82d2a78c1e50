"""Find the user of a request: passwords by Basic, tokens by Bearer, for the listeners that ask for them.

A bearer token is one of the broker's own, or an access token of another issuer (JWT): see `core.security.jwt`.

`Authenticator` is the `Resolver` of `app.http.principal`. A listener with the option `auth` refuses a request without
valid credentials with 401, before any route is looked for; but not the probes of supervisors, and the files of the
console and of the documentation, which hold nothing of the broker. The credentials are those of the Kafka listener.
A client with a certificate need not send any; if it does, they count. A page of the console sends the bearer token of
its session, an EventSource a stream ticket.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence

from app.errors import Problem
from app.http.principal import CERTIFICATE, CREDENTIAL, LOGIN, TOKEN_SCOPE
from app.http.request import Request, decode_path
from core.config import Config, Endpoint
from core.errors import BrokerError
from core.security.audit import SOURCE, Audit, Source
from core.security.jwt import MAX_TOKEN, JwtVerifier
from core.security.logins import OpenLogins
from core.security.passwords import Identity, PasswordChecks
from core.security.sessions import BEARER_PREFIX, Sessions
from core.security.setup import SetupToken
from core.security.tickets import StreamTickets
from core.vocabulary.idempotency import NO_PRINCIPAL
from core.vocabulary.users import TOKEN_PREFIX

BASIC, TOKEN, JWT = "basic", "token", "jwt"
# The client that may create the first user, and do nothing else.
SETUP = "setup token"
SETUP_REQUEST = ("POST", "/api/v1/users")
# In the scope of a request: the Identity of its credentials, and how clients of its listener log in, if they must.
IDENTITY, ASKS = "sluice.identity", "sluice.asks"
LOGIN_PATH = "/console/session"
_OPEN = frozenset({"/livez", "/readyz", "/healthz", "/favicon.ico"})
_METRICS = "/metrics"
_OPEN_PREFIXES = ("/console", "/docs", "/problems")
_OF_CREDENTIALS = ("/api/v1/users", "/api/v1/tokens")
_MAX_HEADER = len("Bearer ") + MAX_TOKEN


class Authenticator:
    """Resolves the principal of each request. `endpoints` are the HTTP listeners, as they are bound."""

    def __init__(
        self,
        config: Config,
        endpoints: Sequence[Endpoint],
        passwords: PasswordChecks,
        logins: OpenLogins,
        setup: SetupToken,
        sessions: Sessions,
        tickets: StreamTickets,
        jwts: JwtVerifier,
        audit: Audit,
    ) -> None:
        self._audit = audit
        self._config = config
        self._passwords = passwords
        self._logins = logins
        self._setup = setup
        self._sessions = sessions
        self._tickets = tickets
        self._jwts = jwts
        # By port. Of two listeners with the same port on different addresses both ask, if one does.
        self._ways: dict[int, frozenset[str]] = {}
        for endpoint in endpoints:
            ways = self._ways.get(endpoint.port, frozenset()) | set(endpoint.authentication)
            self._ways[endpoint.port] = ways

    async def __call__(self, request: Request, ticket: str | None) -> str:
        """Return the principal of a request, as `User:alice`. Raises Problem (401, 429)."""
        server = request.scope.get("server")
        # A server that does not say where the request came in must let no client in.
        ways = self._ways.get(server[1]) if server is not None else None
        if ways is None:
            ways = frozenset().union(*self._ways.values())
        path = decode_path(request.scope)
        if ticket is not None:
            return await self._ticket(ticket, path, ways, request)
        request.scope[ASKS] = ways
        login = path == LOGIN_PATH and request.scope["method"] == "POST"
        shown = request.scope.get(CERTIFICATE)
        own = NO_PRINCIPAL if shown is None else str(shown)
        if path == _METRICS and self._config.open_metrics:
            return own
        if not ways or path in _OPEN or (_is_below(path, _OPEN_PREFIXES) and not login):
            return own
        header = request.headers.get(b"authorization")
        if header is None:
            if shown is not None:
                address = (request.scope.get("client") or ("",))[0]
                self._audit.login(own, "SSL", address, repeated=True)
                return own
            raise self._refusal(ways, request, "This server asks its clients to log in.")
        scheme, _, value = header[:_MAX_HEADER].partition(b" ")
        kind, value = scheme.lower(), value.strip()
        identity: Identity | None = None
        if kind == b"bearer":
            token = value.decode("latin-1")
            if TOKEN in ways and self._setup.fits(token) and (request.scope["method"], path) == SETUP_REQUEST:
                return SETUP
            page = None if login else self._sessions.owner_of(token)
            identity = page or await self._bearer(ways, token, request)
        elif kind == b"basic":
            identity = await self._basic(ways, value, request)
        mechanism = _mechanism(kind, value)
        address = (request.scope.get("client") or ("",))[0]
        if identity is None:
            self._audit.failed_login(_claimed(kind, value), mechanism, address)
            await asyncio.sleep(self._config.failed_authentication_delay_ms / 1000)
            raise self._refusal(ways, request, "The credentials are not valid.", invalid=True)
        SOURCE.set(Source("http", mechanism))
        self._audit.login(str(identity.principal), mechanism, address, repeated=True)
        return self._note(identity, request, path)

    async def _ticket(self, ticket: str, path: str, ways: frozenset[str], request: Request) -> str:
        found = self._tickets.use(ticket, path) if request.scope["method"] == "GET" else None
        if found is not None:
            SOURCE.set(Source("http", "TICKET"))
            address = (request.scope.get("client") or ("",))[0]
            self._audit.login(str(found.principal), "TICKET", address)
            return self._note(found, request, path)
        await asyncio.sleep(self._config.failed_authentication_delay_ms / 1000)
        raise self._refusal(
            ways,
            request,
            "The ticket is not valid: it opens one stream of its path, once, within 30 seconds. Get another one.",
        )

    def _note(self, identity: Identity, request: Request, path: str) -> str:
        """Return the principal. Have the request end with its credentials, as a stream or a long poll must."""
        request.scope[IDENTITY] = identity
        if identity.scope is not None:
            # That of a token also holds for the sessions and tickets that were made with it.
            request.scope[TOKEN_SCOPE] = identity.scope
        if identity.credential:
            request.scope[CREDENTIAL] = identity.credential
        task = asyncio.current_task()
        # A client gets an answer that deletes its own user or token, or changes its password; none of these lasts.
        if task is not None and not _is_below(path, _OF_CREDENTIALS):
            request.scope[LOGIN] = self._logins.add(identity, task.cancel)
        return str(identity.principal)

    async def _bearer(self, ways: frozenset[str], token: str, request: Request) -> Identity | None:
        """A token of the broker's own, or of another issuer."""
        if token.startswith(TOKEN_PREFIX):
            return self._passwords.token(token) if TOKEN in ways else None
        if JWT not in ways:
            return None
        try:
            owner = Identity(*await self._jwts.verify(token))
        except BrokerError:
            return None
        client = request.scope.get("client")
        return await self._passwords.access_token(token, owner, client[0] if client else "")

    async def _basic(self, ways: frozenset[str], value: bytes, request: Request) -> Identity | None:
        """A password, or a token in its place."""
        user, colon, password = _decoded(value).partition(":")
        if not colon:
            return None
        if BASIC not in ways:
            # A token alone: a password is remembered from any listener that takes it.
            owner = self._passwords.token(password)
            return owner if owner is not None and owner.principal.name == user else None
        client = request.scope.get("client")
        return await self._passwords.check(user, password, client[0] if client else "")

    def _refusal(
        self, ways: frozenset[str], request: Request, detail: str, *, invalid: bool = False
    ) -> Problem:
        challenges = []
        if ways & {TOKEN, JWT}:
            challenges.append('Bearer realm="sluice"' + (', error="invalid_token"' if invalid else ""))
        # A browser would open its own dialog over the console.
        page = b"sec-fetch-site" in request.headers or request.scope["path"].startswith("/console/")
        if BASIC in ways and not page:
            challenges.append('Basic realm="sluice", charset="UTF-8"')
        headers = {"www-authenticate": ", ".join(challenges or ['Bearer realm="sluice"'])}
        return Problem("unauthenticated", detail, headers={**headers, "cache-control": "no-store"})


def _decoded(value: bytes) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _mechanism(kind: bytes, value: bytes) -> str:
    """Return the name of a way to log in for the audit log; a JWT is told by what it is not."""
    if kind == b"bearer":
        own = value.startswith(TOKEN_PREFIX.encode())
        return ("SESSION" if value.startswith(BEARER_PREFIX.encode()) else "TOKEN") if own else "JWT"
    return "BASIC" if kind == b"basic" else ""


def _claimed(kind: bytes, value: bytes) -> str:
    """Return the user that a client says to be, not proven."""
    return _decoded(value).partition(":")[0] if kind == b"basic" else ""


def _is_below(path: str, prefixes: Sequence[str]) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)
