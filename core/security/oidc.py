"""Logins at an OpenID provider: the authorization code flow with PKCE, run by the broker as the client.

The browser gets no code verifier and no client secret. What a login needs is kept here, in memory, under a cookie
that the browser got before: `state` and `nonce` belong to that cookie, and are valid once. So a code of another login
or of another provider, and an answer that another browser began, are refused (RFC 6749, 7636, 9207, 9700; OpenID
Connect Core 1.0, 3.1).

The addresses of the provider come from the settings or from the discovery document of the issuer. The user is that of
the ID token, named by the same claim and prefix as that of the issuer's access tokens.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from core.clock import Clock
from core.config import OidcClient
from core.errors import BrokerError, ErrorCode
from core.security.jwks import DISCOVERY, JwksError, fetch, origin, url_problem
from core.security.jwt import JwtVerifier
from core.security.passwords import Identity

log = logging.getLogger(__name__)

# From the button of the page until the provider has sent the browser back.
PENDING_SECONDS = 10 * 60
# Anyone may begin a login. The oldest one is forgotten; all together take about 1 MiB.
MAX_PENDING = 1_000
_DISCOVERY_SECONDS = 3_600.0
_MAX_VALUE = 4_096
_MAX_SECRET_BYTES = 10_000


class _Pending(NamedTuple):
    state: str
    nonce: str
    verifier: str
    until: float


class _Provider(NamedTuple):
    """What a discovery document says. `names_itself`: whether each answer of the provider has the parameter `iss`."""

    authorization: str
    token: str
    names_itself: bool


class OidcLogins:
    """The logins of one process that are under way. All methods are called on the event loop."""

    def __init__(self, client: OidcClient, jwts: JwtVerifier, clock: Clock) -> None:
        self._client = client
        self._jwts = jwts
        self._clock = clock
        # By the digest of the cookie, the oldest first.
        self._pending: dict[bytes, _Pending] = {}
        self._provider: tuple[float, _Provider] | None = None

    @property
    def redirect_uri(self) -> str:
        """The address that the provider leads browsers back to."""
        return self._client.redirect_uri

    async def begin(self) -> tuple[str, str]:
        """Return the address at the provider for the browser, and the value of the cookie that the login belongs to.

        Raises COORDINATOR_NOT_AVAILABLE if the provider does not answer as it must.
        """
        try:
            provider = await self._discovered()
        except JwksError as error:
            log.warning("no login at %s: %s", self._client.issuer, error)
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "The provider of logins does not answer; try again later.",
            ) from None
        now = self._clock.monotonic()
        for old, one in list(self._pending.items()):
            if one.until <= now or len(self._pending) >= MAX_PENDING:
                del self._pending[old]
        cookie, state, nonce, verifier = (self._secret() for _ in range(4))
        self._pending[_digest(cookie)] = _Pending(state, nonce, verifier, now + PENDING_SECONDS)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_uri,
            "scope": self._client.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in provider.authorization else "?"
        return f"{provider.authorization}{mark}{urlencode(query)}", cookie

    async def finish(self, cookie: str, query: Mapping[str, str]) -> Identity | None:
        """Return the user of a login that the provider has answered; None if it is refused.

        The log has the reason. `query` has the parameters with which the browser came back. The login is forgotten,
        whatever they are.
        """
        pending = self._pending.pop(_digest(cookie), None)
        try:
            if pending is None or pending.until <= self._clock.monotonic():
                raise JwksError("this browser has begun none, or too long ago")
            return await self._finish(pending, query)
        except JwksError as error:
            log.info("a login at %s was refused: %s", self._client.issuer, error)
        except BrokerError as error:
            log.info("a login at %s was refused: %s", self._client.issuer, error.message)
        return None

    async def _finish(self, pending: _Pending, query: Mapping[str, str]) -> Identity:
        if not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise JwksError("the state is that of another login")
        provider = await self._discovered()
        # RFC 9207: the answer of another provider, which this browser was led to, names the other one.
        named = query.get("iss")
        if named != self._client.issuer and (named is not None or provider.names_itself):
            raise JwksError(f"the answer is of {str(named)[:200]!r}")
        if "error" in query:
            raise JwksError(f"the provider refused: {query['error'][:200]!r}")
        code = query.get("code", "")
        if not 0 < len(code) <= _MAX_VALUE:
            raise JwksError("the answer has no code")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_uri,
            "client_id": self._client.client_id,
            "code_verifier": pending.verifier,
        }
        answer = await fetch(provider.token, form=form, headers=await self._authorization())
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise JwksError("the provider sent no ID token")
        found = await self._jwts.verify_id_token(
            token, self._client.issuer, self._client.client_id, pending.nonce
        )
        # An ID token says that the user has logged in; its own end, often after minutes, is not that of the login.
        return Identity(found.principal, self._clock.wall_ms() + self._client.session_minutes * 60_000)

    async def _authorization(self) -> dict[str, str]:
        """The secret of the client by Basic (RFC 6749, 2.3.1), read for each login: it may be replaced."""
        if self._client.secret_file is None:
            return {}
        try:
            secret = await asyncio.to_thread(_read, self._client.secret_file)
        except (OSError, UnicodeDecodeError) as error:
            raise JwksError(f"the secret of the client cannot be read: {error}") from None
        pair = f"{quote(self._client.client_id, safe='')}:{quote(secret, safe='')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def _discovered(self) -> _Provider:
        now = self._clock.monotonic()
        if self._provider is not None and now - self._provider[0] < _DISCOVERY_SECONDS:
            return self._provider[1]
        issuer = self._client.issuer
        document = await fetch(issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != issuer:
            raise JwksError(f"its discovery document is of {str(document.get('issuer'))[:200]!r}")
        # The browser may be sent anywhere that the issuer says; the code and the secret are for its own origin.
        authorization = document.get("authorization_endpoint")
        token = self._client.token_endpoint or document.get("token_endpoint")
        for url in (authorization, token):
            if not isinstance(url, str) or url_problem(url):
                raise JwksError("its discovery document lacks an endpoint with https")
        assert isinstance(authorization, str) and isinstance(token, str)
        if not self._client.token_endpoint and origin(token) != origin(issuer):
            raise JwksError(
                f"its token endpoint is at another origin, {token[:200]!r}: if that is right, set token_endpoint"
            )
        names_itself = document.get("authorization_response_iss_parameter_supported") is True
        provider = _Provider(authorization, token, names_itself)
        self._provider = now, provider
        return provider

    def _secret(self) -> str:
        return base64.urlsafe_b64encode(self._clock.secret_bytes(32)).rstrip(b"=").decode()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_SECRET_BYTES).decode().strip()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
